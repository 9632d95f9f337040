"""What addresses and callers are counted under, and what runs at once."""

from __future__ import annotations

import pytest

from auth.values.identity_model import ANONYMOUS, STRANGER, Principal, PrincipalKind
from server.lib.rates.rates import rate
from server.lib.rates.usage_table import RateTable
from server.store.limits.endpoint_gate import Gate, GateRules, sharer_of, site_of
from server.store.limits.restraint_counts import Restraint

ALICE = Principal(kind=PrincipalKind.USER, subject="alice", client_id="desktop", grant_id="g1")
ALICE_TOO = Principal(kind=PrincipalKind.USER, subject="alice", client_id="terminal", grant_id="g2")
BOB = Principal(kind=PrincipalKind.USER, subject="bob", client_id="desktop", grant_id="g3")


def clock() -> int:
    return 10**15


def gate_of(*, address: int = 3, caller: int = 3, at_once: int = 2, loopback: bool = False) -> Gate:
    return Gate(
        GateRules(calls_at_once=at_once, loopback=loopback),
        Restraint(),
        addresses=RateTable(rate(60, 60, address), clock=clock),
        callers=RateTable(rate(60, 60, caller), clock=clock),
    )


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", ""),
        ("127.8.8.8", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
        ("unix", ""),
    ],
)
def test_an_address_is_counted_with_its_household_and_this_machine_is_not(address: str, site: str) -> None:
    assert gate_of().site_of(address) == site


def test_this_machine_is_counted_where_the_owner_says_so() -> None:
    assert gate_of(loopback=True).site_of("127.0.0.1") == "127.0.0.1"
    assert site_of("", True) == ""  # nobody knows who that is


def test_an_address_that_knocks_too_often_waits() -> None:
    gate = gate_of()
    assert [bool(gate.knock("203.0.113.7")) for _ in range(4)] == [False, False, False, True]
    assert gate.turned_back("203.0.113.7", gate.knock("203.0.113.7")) == 1
    assert not gate.knock("203.0.113.8")
    assert gate.restraint.counts["address"] == 1


def test_callers_who_are_known_use_up_their_own_and_not_their_addresss() -> None:
    gate = gate_of(address=2, caller=5)
    for _ in range(5):  # an office, with more people than its address may ask for
        assert not gate.knock("203.0.113.7")
        assert not gate.recognise(ALICE, "203.0.113.7")
        assert not gate.knock("203.0.113.7")
        assert not gate.recognise(BOB, "203.0.113.7")
    assert gate.recognise(ALICE, "203.0.113.7") == 1
    assert gate.restraint.counts["caller"] == 1


def test_a_person_has_one_budget_for_all_their_programs() -> None:
    gate = gate_of(caller=2)
    assert [gate.recognise(who, "") for who in (ALICE, ALICE_TOO, ALICE, BOB)] == [0, 0, 1, 0]


@pytest.mark.parametrize("nobody", [ANONYMOUS, STRANGER])
def test_who_is_not_known_uses_up_their_addresss(nobody: Principal) -> None:
    gate = gate_of(address=2)
    for _ in range(2):
        assert not gate.knock("203.0.113.7")
        assert not gate.recognise(nobody, "203.0.113.7")
    assert gate.knock("203.0.113.7")


def test_so_many_run_at_once_and_one_more_when_one_has_ended() -> None:
    gate = gate_of(at_once=2)
    assert [gate.begin("a"), gate.begin("a"), gate.begin("a"), gate.begin("b")] == [True, True, False, True]
    gate.end("a")
    assert gate.begin("a") and not gate.begin("a")
    assert gate.restraint.counts["at once"] == 2


def test_what_is_shared_is_shared_by_person_and_among_the_unknown_by_address() -> None:
    assert sharer_of(ALICE, "203.0.113.7") == sharer_of(ALICE_TOO, "") == "user:alice"
    assert sharer_of(ANONYMOUS, "127.0.0.1") == "127.0.0.1"
    assert sharer_of(ANONYMOUS, "2001:db8::1") == sharer_of(STRANGER, "2001:db8::2") == "2001:db8::/64"


def test_who_was_held_back_lately_is_told_by_how_often_and_forgotten_after_an_hour() -> None:
    now = 1000.0
    restraint = Restraint(clock=lambda: now)
    for _ in range(3):
        restraint.note("user:alice", "tool")
    restraint.note("203.0.113.7", "address")
    assert [(each.who, each.limit, each.times) for each in restraint.lately()] == [
        ("user:alice", "tool", 3),
        ("203.0.113.7", "address", 1),
    ]
    for number in range(1000):
        restraint.note(f"flood {number}", "address")
    assert len(restraint.told()) <= 100
    now += 3601
    assert restraint.told() == []
    assert restraint.counts["tool"] == 3


KEY = Principal(kind=PrincipalKind.API_KEY, subject="key_1", grant_id="key_1")
TOKEN = Principal(kind=PrincipalKind.API_KEY, subject="token:main:ci")  # of the settings: it has no grant


@pytest.mark.parametrize(
    ("who", "by"), [(ALICE, "caller"), (KEY, "caller"), (TOKEN, "caller"), (STRANGER, "address")]
)
def test_more_of_one_request_count_as_what_the_first_counted_as(who: Principal, by: str) -> None:
    gate = gate_of(address=4, caller=4)
    assert gate.recognise_more(who, "203.0.113.7", 4) == 0
    assert gate.recognise_more(who, "203.0.113.7", 1) == 1
    assert gate.restraint.counts[by] == 1
    # Another of the same address has what is left of its own, and nothing where the address is what counts.
    assert bool(gate.recognise_more(BOB, "203.0.113.7", 1)) is False
    assert bool(gate.recognise_more(ANONYMOUS, "203.0.113.7", 1)) is (by == "address")


def test_more_of_one_request_on_this_machine_count_where_the_owner_says_so() -> None:
    assert gate_of(caller=1).recognise_more(ALICE, "127.0.0.1", 5) == 0
    assert gate_of(caller=1, loopback=True).recognise_more(ALICE, "127.0.0.1", 2) == 1
    assert gate_of(address=1).recognise_more(ANONYMOUS, "127.0.0.1", 5) == 0


def test_of_those_who_were_held_back_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.store.limits.restraint_counts._REMEMBERED", 2)
    restraint = Restraint()
    for who in ("a", "b", "a", "c"):
        restraint.note(who, "caller")
    assert [(each.who, each.times) for each in restraint.lately()] == [("a", 2), ("c", 1)]
    assert restraint.counts["caller"] == 4
