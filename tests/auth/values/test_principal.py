"""Who a caller is, said once: `Principal.identified` and `Principal.key`, by which sessions, tasks and subscriptions tell callers apart."""

from __future__ import annotations

import pytest

from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.calls.tasks.task_order import owner_of

ANN = Principal(kind=PrincipalKind.USER, subject="usr_ann", client_id="cli_1", grant_id="grt_1")
NAMELESS = (ANONYMOUS, Principal(kind=PrincipalKind.PAYER, subject="payer"))


@pytest.mark.parametrize("kind", list(PrincipalKind))
def test_whoever_has_shown_something_of_their_own_is_identified(kind: PrincipalKind) -> None:
    nameless = {PrincipalKind.ANONYMOUS, PrincipalKind.PAYER}
    assert Principal(kind=kind, subject="x").identified == (kind not in nameless)


def test_a_caller_is_the_same_from_everywhere_and_with_every_login_of_the_same_program() -> None:
    again = Principal(
        kind=PrincipalKind.USER,
        subject="usr_ann",
        client_id="cli_1",
        grant_id="grt_2",
        scopes=frozenset({"mcp"}),
    )
    assert ANN.key("10.0.0.1") == again.key("10.0.0.2") == ANN.key()


@pytest.mark.parametrize(
    "other",
    [
        Principal(kind=PrincipalKind.USER, subject="usr_ann", client_id="cli_2"),
        Principal(kind=PrincipalKind.USER, subject="usr_ann"),
        Principal(kind=PrincipalKind.USER, subject="usr_bob", client_id="cli_1"),
        Principal(kind=PrincipalKind.CLIENT, subject="usr_ann", client_id="cli_1"),
    ],
)
def test_another_kind_person_or_program_is_another_caller(other: Principal) -> None:
    assert other.key("10.0.0.1") != ANN.key("10.0.0.1")


@pytest.mark.parametrize("caller", NAMELESS, ids=lambda caller: caller.kind.value)
def test_callers_without_a_name_are_told_apart_by_where_they_call_from(caller: Principal) -> None:
    assert caller.key("10.0.0.1") == caller.key("10.0.0.1")
    assert caller.key("10.0.0.1") != caller.key("10.0.0.2")


def test_a_payer_with_a_token_is_the_same_by_whichever_token() -> None:
    first, second = (
        Principal(
            kind=PrincipalKind.PAYER, subject="payer:eip155:8453:0xab", client_id="payers", grant_id=grant
        )
        for grant in ("grt_1", "grt_2")
    )
    assert first.identified and first.key("10.0.0.1") == second.key("10.0.0.2") == "x402:eip155:8453:0xab"


def test_keys_are_written_as_rows_of_tasks_have_them() -> None:
    assert owner_of(ANN, "main").caller == ANN.key() == "user:usr_ann:cli_1"
    assert Principal(kind=PrincipalKind.API_KEY, subject="key_1").key() == "api_key:key_1:"
    assert [owner_of(caller, "main").caller for caller in NAMELESS] == ["anonymous", "anonymous"]
    assert [caller.key("::1") for caller in NAMELESS] == ["anonymous:::1", "payer:::1"]
