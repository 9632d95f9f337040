"""Who is asked for more, and who is not asked again."""

from __future__ import annotations

from msgspec.structs import replace

from auth.values.database import AuditEntry
from auth.values.identity_model import Principal, PrincipalKind
from server.calls.rights.step_ups import STANDS_SECONDS, StepUps

ANN = Principal(kind=PrincipalKind.USER, subject="usr_1", client_id="c1", grant_id="g1")
WRITE, DELETE = frozenset({"mcp:write"}), frozenset({"mcp:delete"})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def said(event: str, *, actor: str = "user:usr_1", client_id: str = "c1", outcome: str = "ok") -> AuditEntry:
    return AuditEntry(0, event, actor, client_id, None, None, None, outcome, "")


def test_a_login_is_asked_for_more_until_it_comes_back_without() -> None:
    asked = StepUps(clock=Clock())
    assert asked.may_ask(ANN, WRITE) and asked.may_ask(ANN, WRITE), "calls side by side, or tried again"
    again = replace(ANN, grant_id="g2")
    assert not asked.may_ask(again, WRITE)
    assert not asked.may_ask(again, WRITE) and not asked.may_ask(ANN, WRITE)


def test_a_no_is_of_one_caller_to_one_thing() -> None:
    asked = StepUps(clock=Clock())
    asked.may_ask(ANN, WRITE)
    again = replace(ANN, grant_id="g2")
    assert not asked.may_ask(again, WRITE)
    assert asked.may_ask(again, DELETE) and asked.may_ask(again, WRITE | DELETE)
    assert asked.may_ask(replace(again, subject="usr_2"), WRITE)
    assert asked.may_ask(replace(again, client_id="c2"), WRITE)


def test_a_no_stands_for_a_while() -> None:
    clock = Clock()
    asked = StepUps(clock=clock)
    asked.may_ask(ANN, WRITE)
    again = replace(ANN, grant_id="g2")
    clock.now += STANDS_SECONDS - 1
    assert not asked.may_ask(again, WRITE)
    clock.now += STANDS_SECONDS - 1
    assert not asked.may_ask(again, WRITE), "it counts from the no on"
    clock.now += 1
    assert asked.may_ask(again, WRITE)
    clock.now += STANDS_SECONDS
    assert asked.may_ask(replace(ANN, grant_id="g3"), WRITE), "the question was forgotten"


def test_who_says_no_at_the_page_is_heard() -> None:
    for event in ("code.denied", "device.denied"):
        asked = StepUps(clock=Clock())
        asked.may_ask(ANN, WRITE)
        for other in (
            said("code.issued"),
            said(event, outcome="refused"),
            said(event, actor="user:usr_2"),
            said(event, client_id="c2"),
        ):
            asked.hear([other])
        assert asked.may_ask(ANN, WRITE)
        asked.hear([said("code.issued"), said(event)])
        assert not asked.may_ask(ANN, WRITE)


def test_no_more_are_remembered_than_so_many() -> None:
    asked = StepUps(clock=Clock(), most=3)
    for number in range(10):
        asked.may_ask(replace(ANN, client_id=f"c{number}"), WRITE)
        assert len(asked) <= 3
    assert asked.may_ask(replace(ANN, client_id="c0", grant_id="g2"), WRITE), "the oldest was forgotten"
    assert not asked.may_ask(replace(ANN, client_id="c9", grant_id="g2"), WRITE)
