"""Whom an agent hits that is out of order (server/console/overview/outages.py), and how that is said (server/console/overview/outage_effects.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from auth.values.identity_model import ANONYMOUS
from server.agents.base.backend import Trouble
from server.calls.policy.hooks import OUT_OF_ORDER
from server.cli.terminal import duration
from server.console.overview.outage_effects import AgentHit, hit_as_told, hit_in_words, lasting, told_hit
from server.console.overview.outages import FOUND_OUT, hit_by, outages
from server.store.inline_store import open_inline_store
from server.store.jobs import Store
from tests.console.overview.overview_fakes import FailingCatalog, broken, endpoints_of, keep
from tests.store.call_records.records_fakes import ADA, HOUR, KEY, NOW, call

REFUSED = Trouble("it cannot be reached: connection refused", NOW + 10_000)
BOB = replace(ADA, subject="user-2", person="Bob")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_inline_store(clock=lambda: NOW) as store:
        yield store


async def test_calls_of_its_tools_that_failed_since_it_began_are_counted_and_whose_they_were(
    store: Store,
) -> None:
    since = REFUSED.since
    await keep(
        store,
        call(who=ADA, at=since - FOUND_OUT - 1, outcome="failed"),  # before it began
        call(who=ADA, at=since - FOUND_OUT, outcome="failed"),
        call(who=ADA, at=since + 5, outcome="timeout"),
        call(who=BOB, at=since + 6, outcome="error"),
        call(who=ADA, at=since + 7),  # went well
        call(who=BOB, at=since + 8, outcome="invalid"),  # would have failed anyway
        call(who=KEY, at=since + 9, tool="other", outcome="failed"),
        call(who=KEY, at=since + 9, server="second", outcome="failed"),
    )
    found = await hit_by(store, "main", broken(REFUSED, "echo"), NOW + 60_000)
    assert found == AgentHit(calls=3, people=("Ada", "Bob"))


async def test_of_the_hours_after_the_first_the_sums_are_counted_also_where_no_row_is_left(
    store: Store,
) -> None:
    await keep(store, call(who=ADA, at=REFUSED.since, outcome="failed"))
    await keep(store, *(call(who=BOB, at=NOW + HOUR, outcome="failed") for _ in range(700)))
    assert await store.read(lambda db: db.fetch_one("SELECT count(*) AS n FROM calls")) == {"n": 501}
    found = await hit_by(store, "main", broken(REFUSED, "echo"), NOW + HOUR + 1)
    assert found == AgentHit(calls=701, people=("Bob", "Ada"))


async def test_nobody_is_hit_by_what_only_waits_for_its_owner_or_offers_nothing(store: Store) -> None:
    await keep(store, call(who=ADA, at=REFUSED.since, outcome="failed"))
    waits = replace(REFUSED, kind="waits")
    assert await hit_by(store, "main", broken(waits, "echo"), NOW + 20_000) == AgentHit()
    assert await hit_by(store, "main", broken(REFUSED), NOW + 20_000) == AgentHit()


async def test_whoever_is_refused_by_what_stands_in_front_of_the_tools_is_hit_also_after_the_first_hour(
    store: Store,
) -> None:
    told = f"This call was not made: {OUT_OF_ORDER}"
    await keep(
        store,
        call(who=ADA, at=REFUSED.since, tool="any", outcome="refused", reason=told),
        call(who=BOB, at=REFUSED.since + 2 * HOUR, outcome="refused", reason=told),
        call(who=BOB, at=REFUSED.since + 5, outcome="refused", reason="it needs the scope mcp:tools"),
        call(who=BOB, at=REFUSED.since + 5, outcome="failed"),
        call(who=BOB, at=REFUSED.since + 5, server="second", outcome="refused", reason=told),
        call(who=BOB, at=REFUSED.since - FOUND_OUT - 1, outcome="refused", reason=told),
    )
    found = await hit_by(store, "main", replace(broken(REFUSED), refusal=OUT_OF_ORDER), NOW + 3 * HOUR)
    assert found == AgentHit(calls=2, people=("Ada", "Bob"))


async def test_those_with_the_most_calls_are_named_and_the_others_counted(store: Store) -> None:
    for number in range(8):
        somebody = replace(ADA, subject=f"u{number}", person=f"person {number}")
        await keep(
            store, *(call(who=somebody, at=REFUSED.since + 20, outcome="failed") for _ in range(number + 1))
        )
    await keep(store, *(call(who=ANONYMOUS, at=REFUSED.since + 20, outcome="failed") for _ in range(20)))
    found = await hit_by(store, "main", broken(REFUSED, "echo"), NOW + 30_000)
    assert found.people == ("callers without a login", *(f"person {n}" for n in (7, 6, 5, 4)))
    assert (found.calls, found.others) == (56, 4)


async def test_all_that_fails_is_told_of_with_what_waits_to_be_written(store: Store) -> None:
    async def write_down() -> None:
        await keep(store, call(who=ADA, at=REFUSED.since + 1, outcome="failed"))

    servers = endpoints_of(main=FailingCatalog(broken(REFUSED, "echo")), second=FailingCatalog())
    (found,) = await outages(servers, store, write_down, NOW + 20_000)
    assert found.told() == {
        "name": "main[1] (chat)",
        "server": "main",
        "words": REFUSED.words,
        "since": REFUSED.since,
        "kind": "fails",
        "calls": 1,
        "people": ["Ada"],
        "others": 0,
    }


@pytest.mark.parametrize(
    ("hit", "said"),
    [
        (AgentHit(), ""),
        (AgentHit(calls=1, people=("vera",)), "1 call failed, of vera"),
        (AgentHit(calls=3, people=("vera", "nightly")), "3 calls failed, of vera and nightly"),
        (AgentHit(calls=9, people=("a", "b"), others=1), "9 calls failed, of a, b and 1 other"),
    ],
)
def test_it_is_said_in_one_sentence_here_and_in_another_program(hit: AgentHit, said: str) -> None:
    assert hit_in_words(hit) == said == hit_as_told(told_hit(hit))


def test_of_a_server_that_counts_nobody_nothing_is_said() -> None:
    assert hit_as_told({"name": "main[1] (chat)", "words": "gone", "since": 0}) == ""


@pytest.mark.parametrize("seconds", [0, 1, 119, 120, 3_599, 3_600, 7_199, 7_200, 86_400, 40 * 86_400])
def test_how_long_it_lasts_is_said_everywhere_as_in_the_terminal(seconds: int) -> None:
    assert lasting(seconds * 1_000 + 999) == duration(seconds)
