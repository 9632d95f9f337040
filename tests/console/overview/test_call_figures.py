"""What calls came to (server/console/overview/call_figures.py): a day beside the one before, tools, whoever called, the door; of everybody or of one person."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from auth.audit import audit_trail
from auth.grants import last_calls
from auth.tokens import api_keys
from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.console.overview import call_figures, owner_needs
from server.console.overview.call_figures import HourFigures, SlowTool
from server.console.overview.outage_effects import percent
from tests.auth.browser_fakes import House
from tests.auth.people_fakes import invited, let_in
from tests.e2e.overview_states import keep, record

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.fixture
def house() -> House:
    house = House().owned()
    house.add_user("usr_bob", "bob")
    house.time = house.time // HOUR * HOUR + 3 * DAY + 20 * MINUTE
    return house


def person(house: House, user_id: str, name: str, grant_id: str | None = None) -> Principal:
    return Principal(
        kind=PrincipalKind.USER,
        subject=user_id,
        client_id=house.builtin.id,
        grant_id=grant_id,
        person=name,
        program=house.builtin.name,
    )


def test_a_day_is_24_hours_with_this_one_and_is_told_beside_the_one_before(house: House) -> None:
    now, bob = house.time, person(house, "usr_bob", "bob")
    keep(
        house,
        record(now, bob, "quick", ms=2),
        record(now, bob, "quick", "failed", ms=2),
        record(now - 23 * HOUR - 20 * MINUTE, bob, "slow", ms=4_000),  # the first moment that counts
        record(now - 23 * HOUR - 21 * MINUTE, bob, "quick", "timeout"),  # the day before
        record(now - 47 * HOUR - 20 * MINUTE, ANONYMOUS, "quick"),
        record(now - 47 * HOUR - 21 * MINUTE, bob, "quick"),  # neither
    )
    day = house.store.now(partial(call_figures.day, now=now))
    assert (day.calls, day.failed, day.calls_before, day.failed_before) == (3, 1, 2, 1)
    assert len(day.hours) == 24
    assert (day.hours[0], day.hours[-1]) == (
        HourFigures(now // HOUR * HOUR - 23 * HOUR, 1, 0),
        HourFigures(now // HOUR * HOUR, 2, 1),
    )
    assert day.slowest is not None
    assert (day.slowest.tool, round(day.slowest.p95)) == ("slow", 4_850)  # within its bucket
    assert day.slowest == SlowTool("agent", "slow", day.slowest.p95)


def test_somebody_who_is_not_the_owner_sees_what_they_called_with_logins_and_keys_and_no_more(
    house: House,
) -> None:
    now = house.time
    order = api_keys.ApiKeyOrder(name="nightly", user_id="usr_bob", scope="mcp:tools")
    made = house.store.now(
        partial(api_keys.create, order=order, seed=house.entropy(32), by="local:0", now=now)
    )
    assert isinstance(made, api_keys.NewApiKey)
    key = Principal(
        kind=PrincipalKind.API_KEY, subject=made.key.id, grant_id=made.key.id, person="bob", program="nightly"
    )
    alice, bob = person(house, house.owner_id, "alice"), person(house, "usr_bob", "bob")
    former = person(house, "usr_gone", "bob")  # somebody who was called so before
    keep(house, *(record(now, who, f"tool_{place}") for place, who in enumerate((alice, bob, key, former, ANONYMOUS))))  # fmt: skip
    assert house.store.now(partial(call_figures.day, now=now)).calls == 5
    assert house.store.now(partial(call_figures.day, now=now, whose="usr_bob")).calls == 2
    used = house.store.now(partial(call_figures.tools, now=now, whose="usr_bob"))
    assert {each.tool for each in used} == {"tool_1", "tool_2"}
    callers = house.store.now(partial(call_figures.callers, now=now, whose="usr_bob"))
    assert {(each.person, each.program) for each in callers} == {
        ("bob", house.builtin.name),
        ("bob", "nightly"),
    }


def test_a_caller_is_a_person_with_a_program_by_their_last_call_whatever_they_were_called_before(
    house: House,
) -> None:
    now = house.time
    first, second = (let_in(house, "usr_bob", ip=f"203.0.113.{place}") for place in (1, 2))
    bob = person(house, "usr_bob", "bob", second)
    keep(house, record(now - 2 * HOUR, replace(bob, person="robert"), "echo", "failed"))
    keep(house, record(now - 5 * MINUTE, bob, "echo"), record(now - HOUR, ANONYMOUS, "echo"))
    house.store.now(partial(last_calls.note, called={first: now - 9 * DAY}))
    quiet = let_in(house, house.owner_id)
    house.store.now(partial(last_calls.note, called={quiet: now - 2 * DAY}))
    found = house.store.now(partial(call_figures.callers, now=now))
    assert [(each.person, each.kind, each.calls, each.failed, each.called_at) for each in found] == [
        ("bob", "user", 2, 1, now - 5 * MINUTE),
        ("", "anonymous", 1, 0, None),
        ("alice", "user", 0, 0, now - 2 * DAY),
    ]
    assert found[0].place == "203.0.113.2"


def test_a_tool_that_is_offered_and_was_not_called_is_told_of_with_its_last_call(house: House) -> None:
    now, bob = house.time, person(house, "usr_bob", "bob")
    keep(house, record(now - 40 * DAY, bob, "old"), record(now - MINUTE, bob, "echo"))
    used = house.store.now(partial(call_figures.tools, now=now))
    offered = [("agent", "echo"), ("agent", "old"), ("agent", "never")]
    found = house.store.now(partial(call_figures.with_unused, used=used, offered=offered))
    assert [(each.tool, each.calls, each.called_at) for each in found] == [
        ("echo", 1, now - MINUTE),
        ("old", 0, now - 40 * DAY),
        ("never", 0, None),
    ]


def test_lists_are_bounded_however_much_there_is(house: House) -> None:
    now = house.time
    many = [
        person(house, f"usr_{number}", f"person {number}") for number in range(call_figures.MOST_CALLERS + 20)
    ]
    keep(house, *(record(now, who, f"tool_{place}") for place, who in enumerate(many)))
    used = house.store.now(partial(call_figures.tools, now=now))
    assert len(used) == call_figures.MOST_TOOLS
    assert len(house.store.now(partial(call_figures.callers, now=now))) == call_figures.MOST_CALLERS
    offered = [("agent", f"unused_{number}") for number in range(500)]
    found = house.store.now(partial(call_figures.with_unused, used=used, offered=offered))
    assert len(found) == call_figures.MOST_TOOLS


def test_the_door_counts_what_was_refused_in_a_day_and_programs_that_are_new(house: House) -> None:
    now = house.time

    def written(event: str, outcome: str, at: int) -> None:
        house.store.now(
            lambda db: audit_trail.record(db, at=at, event=event, outcome=outcome, actor="user:x")  # pyright: ignore[reportArgumentType]
        )

    for event, outcome, at in (
        ("device.code_entered", "refused", now),
        ("device.code_entered", "refused", now - DAY - 1),
        ("device.code_entered", "ok", now),
        ("user.signed_in", "refused", now),
        ("client.registered", "ok", now),
        ("client.registered", "refused", now),
    ):
        written(event, outcome, at)
    door = house.store.now(partial(call_figures.at_the_door, now=now))
    assert (door.wrong_codes, door.wrong_sign_ins, door.new_programs, door.others) == (1, 1, 1, 1)


def test_an_owner_is_needed_by_logins_that_wait_invitations_and_keys_that_end(house: House) -> None:
    for number in range(owner_needs.SHOWN + 2):
        house.ask(ip=f"203.{number}.113.7")
    invited(house, "dora")
    invited(house, "erin", lifetime=MINUTE)
    for name, ends in (("soon", DAY), ("later", owner_needs.ENDS_SOON + DAY), ("over", -1)):
        order = api_keys.ApiKeyOrder(
            name=name, user_id="usr_bob", scope="mcp:tools", expires_at=house.time + ends + DAY
        )
        made = partial(api_keys.create, order=order, seed=house.entropy(32), by="local:0", now=house.time)
        house.store.now(made)
    house.store.db.execute("UPDATE api_keys SET expires_at = expires_at - ?", DAY)
    house.time += 2 * MINUTE
    found = house.store.now(partial(owner_needs.look, now=house.time))
    assert (len(found.waiting), found.waiting_count) == (owner_needs.SHOWN, owner_needs.SHOWN + 2)
    assert {(each.name, each.until is None) for each in found.invitations} == {
        ("dora", False),
        ("erin", True),
    }
    assert [(each.name, each.person) for each in found.keys] == [("soon", "bob")]
    assert house.store.now(partial(owner_needs.ending_keys, now=house.time, whose=house.owner_id)) == []


@pytest.mark.parametrize(
    ("failed", "calls", "words"),
    [(1, 1, "100"), (999, 1_000, "99"), (989, 1_000, "99"), (2, 3, "67"), (1, 300, "0.33"), (1, 10**7, "under 0.01")],
)  # fmt: skip
def test_a_share_is_told_in_two_digits_and_is_100_only_where_every_call_failed(
    failed: int, calls: int, words: str
) -> None:
    assert percent(failed, calls) == words
