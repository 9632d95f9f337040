"""So many a day: exact, whoever asks at once, over restarts, and over a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from server.store.inline_store import open_inline_store
from server.store.jobs import JobTooSlow, StoreBroken, StoreDb, StoreError, StoreUnavailable
from server.store.limits.daily_quotas import Quotas, ahead_of
from server.store.limits.restraint_counts import Restraint
from server.store.limits.tool_limits import ToolBounds
from server.store.limits.usage_meters import period_at

UNUSED_MILLIS = 60_000
MOST_AHEAD = 50
MOST_STRANGERS = 5_000

NOON = 1_800_014_400_000  # 2027-01-15 12:00 UTC
DAY = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> int:
        return self.now


class CountingStore:
    """A store that counts what is written, and can be out of order."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.writes = 0
        self.broken = False
        self.problem: StoreError = StoreUnavailable("the disk is full")
        self.written = False  # what it says it may not have been

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        self.writes += 1
        await trio.lowlevel.checkpoint()
        if self.broken:
            if self.written:
                await self.store.write(job)
            raise self.problem
        return await self.store.write(job)


def opened(clock: Clock) -> Any:
    return open_inline_store(clock=clock)


async def served(quotas: Quotas, times: int, limit: int, subject: str = "quota:main/search user:a") -> int:
    return [await quotas.take(subject, limit) for _ in range(times)].count(0)


async def test_so_many_and_no_more_with_a_write_for_every_twentieth_part() -> None:
    clock = Clock()
    async with opened(clock) as inner:
        store = CountingStore(inner)
        quotas = Quotas(store, clock=clock)  # type: ignore[arg-type]
        assert await served(quotas, 1200, 1000) == 1000
        assert store.writes == 1000 // ahead_of(1000) + 1
        assert await quotas.take("quota:main/search user:a", 1000) == 12 * 3600
        assert await served(quotas, 10, 1000, "quota:main/search user:b") == 10


async def test_many_at_once_get_exactly_as_many_as_there_are() -> None:
    clock, got = Clock(), list[int]()
    async with opened(clock) as inner:
        quotas = Quotas(CountingStore(inner), clock=clock)  # type: ignore[arg-type]

        async def take() -> None:
            got.append(await quotas.take("quota:main/x a", 70))

        async with trio.open_nursery() as nursery:
            for _ in range(300):
                nursery.start_soon(take)
    assert got.count(0) == 70


async def test_two_processes_share_one_quota() -> None:
    clock = Clock()
    async with opened(clock) as store:
        one, other = Quotas(store, clock=clock), Quotas(store, clock=clock)
        assert await served(one, 30, 100) == 30
        assert await served(other, 100, 100) == 70  # all but what the first holds, which it has not used up
        assert await served(one, 100, 100) == 0


async def test_what_is_held_ahead_is_given_back_at_the_end_and_lost_in_a_crash() -> None:
    clock = Clock()
    async with opened(clock) as store:
        orderly = Quotas(store, clock=clock)
        assert await served(orderly, 3, 1000) == 3
        await orderly.aclose()
        crashed = Quotas(store, clock=clock)
        assert await served(crashed, 3, 1000) == 3
        after = Quotas(store, clock=clock)
        left = await served(after, 1100, 1000)
        assert 1000 - 6 - MOST_AHEAD <= left <= 1000 - 6 - (ahead_of(1000) - 3)


async def test_a_small_quota_is_counted_one_by_one_so_a_crash_costs_nothing() -> None:
    clock = Clock()
    async with opened(clock) as store:
        assert await served(Quotas(store, clock=clock), 4, 10) == 4
        assert await served(Quotas(store, clock=clock), 20, 10) == 6


async def test_one_that_came_to_nothing_is_there_again() -> None:
    clock = Clock()
    async with opened(clock) as store:
        quotas = Quotas(store, clock=clock)
        for _ in range(20):
            assert await quotas.take("q a", 3) == 0
            quotas.put_back("q a")
        assert await served(quotas, 5, 3, "q a") == 3


async def test_the_next_day_begins_anew_and_what_is_left_of_the_last_is_not_carried_over() -> None:
    clock = Clock()
    async with opened(clock) as store:
        quotas = Quotas(store, clock=clock)
        assert await served(quotas, 60, 100) == 60
        clock.now += 12 * 3_600_000  # midnight, to the moment
        quotas.put_back("quota:main/search user:a")
        assert await served(quotas, 200, 100) == 100


async def test_more_is_found_once_another_process_has_given_back() -> None:
    clock = Clock()
    async with opened(clock) as store:
        one, other = Quotas(store, clock=clock), Quotas(store, clock=clock)
        assert await served(one, 1, 40) == 1  # holds one more
        assert await served(other, 50, 40) == 38
        await one.aclose()
        assert await served(other, 1, 40) == 0  # is not asked for with every call
        clock.now += 5_000
        assert await served(other, 5, 40) == 1


async def test_what_nobody_used_for_a_minute_is_there_for_other_processes() -> None:
    clock = Clock()
    async with opened(clock) as store:
        one, other = (Quotas(store, clock=clock, shared=True) for _ in range(2))
        assert await served(one, 3, 1000) == 3
        clock.now += UNUSED_MILLIS - 1
        await one.give_back_unused()
        assert await raised(store) == ahead_of(1000)
        clock.now += 1
        await one.give_back_unused()
        assert await raised(store) == 3
        assert await served(other, 1100, 1000) == 997
        assert await served(one, 1, 1000) == 0


async def test_who_calls_seldom_holds_nothing_ahead_and_who_calls_often_again_does() -> None:
    clock = Clock()
    async with opened(clock) as inner:
        store = CountingStore(inner)
        quotas = Quotas(store, clock=clock, shared=True)  # type: ignore[arg-type]
        for calls in range(1, 5):
            clock.now += UNUSED_MILLIS
            await quotas.give_back_unused()
            assert await served(quotas, 1, 1000) == 1
            assert (calls == 1) is (await raised(inner) > calls)
        assert store.writes == 1 + 1 + 3  # raised ahead, given back, and then one for each call
        assert await served(quotas, ahead_of(1000), 1000) == ahead_of(1000)
        assert store.writes == 6


async def test_of_one_more_than_are_held_ahead_what_the_first_has_left_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.store.limits.daily_quotas._HELD", 2)
    clock = Clock()
    async with opened(clock) as store:
        quotas = Quotas(store, clock=clock)
        for number, held in enumerate((1, 2, 2)):
            assert await served(quotas, 1, 1000, f"q {number}") == 1
            assert await raised(store) == held * ahead_of(1000) + (number == 2)


async def test_where_nobody_else_counts_nothing_is_written_for_who_calls_seldom() -> None:
    clock = Clock()
    async with opened(clock) as inner:
        store = CountingStore(inner)
        quotas = Quotas(store, clock=clock)  # type: ignore[arg-type]
        for _ in range(ahead_of(1000)):
            clock.now += UNUSED_MILLIS
            assert await served(quotas, 1, 1000) == 1
        assert store.writes == 1


async def test_what_could_not_be_given_back_is_the_next_time_and_of_yesterday_nothing_is() -> None:
    clock = Clock()
    async with opened(clock) as inner:
        store = CountingStore(inner)
        quotas = Quotas(store, clock=clock, shared=True)  # type: ignore[arg-type]
        for number in range(450):
            assert await served(quotas, 1, 1000, f"q {number}") == 1
        clock.now += UNUSED_MILLIS
        store.broken = True
        with pytest.raises(StoreUnavailable):
            await quotas.give_back_unused()
        store.broken, store.writes = False, 0
        await quotas.give_back_unused()
        assert (await raised(inner), store.writes) == (450, 3)
        await quotas.give_back_unused()
        assert (await raised(inner), store.writes) == (450, 3)
        clock.now += 5_000
        assert await served(quotas, 2, 1000, "q 7") == 2
        clock.now += DAY
        await quotas.give_back_unused()
        assert store.writes == 5  # the calls' own


async def raised(store: Any) -> int:
    (row,) = await store.read(lambda db: db.fetch_all("SELECT sum(amount) AS raised FROM meters"))
    return row["raised"]


async def test_a_store_that_cannot_write_lets_nobody_through_and_nothing_is_lost() -> None:
    clock = Clock()
    async with opened(clock) as inner:
        store = CountingStore(inner)
        quotas = Quotas(store, clock=clock)  # type: ignore[arg-type]
        store.broken = True
        with pytest.raises(StoreUnavailable):
            await quotas.take("q a", 10)
        store.broken = False
        assert await served(quotas, 20, 10, "q a") == 10


@pytest.mark.parametrize(
    ("problem", "written", "left"),
    [
        (StoreUnavailable("the disk is full"), False, 999),
        (JobTooSlow("it took too long"), False, 999),
        (StoreBroken("it may be written"), True, 999 - ahead_of(1000)),  # these were raised, and nobody knows
        (StoreBroken("it may be written"), False, 1000 - ahead_of(1000)),  # these were not given back
    ],
)
async def test_of_what_may_have_been_given_back_nobody_has_more_than_there_is(
    problem: StoreError, written: bool, left: int
) -> None:
    clock = Clock()
    async with opened(clock) as inner:
        store = CountingStore(inner)
        store.problem, store.written = problem, written
        quotas = Quotas(store, clock=clock)  # type: ignore[arg-type]
        assert await served(quotas, 1, 1000, "q a") == 1
        quotas.let_go()
        store.broken = True
        with pytest.raises(StoreError):
            await quotas.take("q a", 1000)
        store.broken = False
        assert await served(quotas, 1100, 1000, "q a") == left


async def test_who_is_cancelled_before_anything_is_given_back_loses_nothing() -> None:
    clock = Clock()
    async with opened(clock) as store:
        quotas = Quotas(store, clock=clock)
        assert await served(quotas, 1, 1000, "q a") == 1
        quotas.let_go()
        with trio.CancelScope() as scope:
            scope.cancel()
            await quotas.take("q a", 1000)
        assert await served(quotas, 1100, 1000, "q a") == 999


async def test_who_is_cancelled_while_more_is_raised_takes_nothing_from_the_others() -> None:
    clock = Clock()
    async with opened(clock) as inner:
        quotas = Quotas(CountingStore(inner), clock=clock)  # type: ignore[arg-type]
        with trio.CancelScope() as scope:
            scope.cancel()
            await quotas.take("q a", 10)
        assert await served(quotas, 20, 10, "q a") == 10


async def test_of_those_who_are_not_known_only_so_many_leave_a_row_of_their_own() -> None:
    clock = Clock()
    async with opened(clock) as store:
        quotas = Quotas(store, clock=clock)
        bounds = ToolBounds("main", {}, quota="2/day", quotas=quotas, restraint=Restraint())
        for number in range(MOST_STRANGERS):
            assert quotas.callers.name(f"address {number}", known=False) == f"address {number}"
        assert await bounds.use("x", "address 7", known=False) is None
        assert [await bounds.use("x", f"new {n}", known=False) is None for n in range(4)] == [
            True,
            True,
            False,
            False,
        ]
        bounds.put_back("x", "new 9", known=False)
        assert await bounds.use("x", "new 10", known=False) is None
        assert await bounds.use("x", "user:alice") is None
        rows = await store.read(lambda db: db.fetch_all("SELECT subject FROM meters ORDER BY subject"))
        assert [row["subject"].partition(" ")[2] for row in rows] == ["address 7", "strangers", "user:alice"]
        clock.now += DAY
        assert await bounds.use("x", "new 11", known=False) is None
        assert quotas.callers.name("new 12", known=False) == "new 12"


def test_a_day_is_one_of_utc() -> None:
    day = period_at("day", NOON)
    assert (day.name, day.ends_at - NOON, day.expires_at - day.ends_at) == ("2027-01-15", DAY // 2, 7 * DAY)
    assert period_at("day", day.ends_at - 1).name == "2027-01-15"
    assert period_at("day", day.ends_at).name == "2027-01-16"
