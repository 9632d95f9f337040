"""Names in the trail, told apart by who chose them."""

from __future__ import annotations

from auth.audit.audit_actors import shown_actor


def test_a_program_is_no_person_whatever_it_calls_itself() -> None:
    assert shown_actor("user:usr_1", person="vera") == "vera"
    assert shown_actor("client:c1", program="vera") == "the program “vera”"
    assert shown_actor("client:c1") == "the program “c1”"
    assert shown_actor("local:start") == "the server"
