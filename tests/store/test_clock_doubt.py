"""A clock that may be wrong (server/store/clock_doubt.py): it erases nothing until the server has run for a day with it."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from store_engines import NOW, AnyStore

from auth.values.database import AuditEntry
from server.store import clock_doubt
from server.store.clock_doubt import BEYOND_MILLIS, TRIAL_MILLIS, ClockDoubt
from server.store.jobs import StoreDb, StoreError
from server.store.maintenance import keep_sweeping, sweep
from server.store.retention import Retention

HOUR = 3_600_000
DAY = 24 * HOUR
AHEAD = 420 * DAY
KEY = b"a key of this chain alone"
RETENTION = Retention()


def furnish(db: StoreDb) -> None:
    db.execute("INSERT INTO attempts (bucket, at, sequence) VALUES ('b', ?, 0)", NOW)


async def left(store: AnyStore) -> int:
    row = await store.read(lambda db: db.fetch_one("SELECT count(*) AS n FROM attempts"))
    assert row is not None
    return row["n"]


async def advance(store: AnyStore, now: int, ran: int) -> ClockDoubt | None:
    return await store.write(partial(clock_doubt.advance, now=now, ran=ran))


class Hours:
    """A server that sweeps every hour, under clocks that say what they are told to."""

    def __init__(self, store: AnyStore, now: int) -> None:
        self.store = store
        self.now = now
        self.ran = 0.0
        self.reports: list[dict[str, int] | ClockDoubt | StoreError] = []

    async def run(self, hours: int) -> None:
        async def sleep(seconds: float) -> None:
            nonlocal left_over
            await trio.lowlevel.checkpoint()
            left_over -= 1
            if left_over < 0:
                scope.cancel()
                await trio.lowlevel.checkpoint()
            self.now += HOUR
            self.ran += 3600

        left_over = hours
        with trio.fail_after(60), trio.CancelScope() as scope:
            await keep_sweeping(
                self.store,
                owner="boot",
                clock=lambda: self.now,
                retention=RETENTION,
                report=self.reports.append,
                running=lambda: self.ran,
                sleep=sleep,
            )


@pytest.fixture
async def furnished(store: AnyStore) -> AnyStore:
    await store.write(furnish)
    assert await sweep(store, owner="boot", clock=lambda: NOW, retention=RETENTION) is not None
    return store


async def test_a_clock_far_beyond_the_last_sweep_erases_nothing_and_is_forgotten_when_it_is_right_again(
    furnished: AnyStore,
) -> None:
    hours = Hours(furnished, NOW + AHEAD)
    await hours.run(20)
    assert {type(report) for report in hours.reports} == {ClockDoubt}
    assert hours.reports[0] == ClockDoubt(ahead_ms=AHEAD, waits_ms=TRIAL_MILLIS)
    assert await left(furnished) == 1
    hours = Hours(furnished, NOW + HOUR)
    await hours.run(0)
    assert [type(report) for report in hours.reports] == [dict]
    assert await furnished.read(partial(clock_doubt.look, now=NOW + HOUR)) is None
    # The hours that it ran with the wrong clock are forgotten with it.
    doubt = await furnished.read(partial(clock_doubt.look, now=NOW + AHEAD))
    assert doubt is not None
    assert doubt.waits_ms == TRIAL_MILLIS


async def test_a_server_that_was_off_for_a_month_catches_up_after_a_day(furnished: AnyStore) -> None:
    hours = Hours(furnished, NOW + 30 * DAY)
    await hours.run(24)
    assert [type(report) for report in hours.reports] == [ClockDoubt] * 24 + [dict]
    assert await left(furnished) == 0
    assert await furnished.read(partial(clock_doubt.look, now=hours.now + DAY)) is None


async def test_the_day_may_be_made_of_several_runs_and_hours_that_the_machine_slept_do_not_count(
    furnished: AnyStore,
) -> None:
    at, last = NOW + 30 * DAY, None
    for _ in range(3):  # eight hours a day, each beginning with a look that knows of none
        assert await advance(furnished, at, 0) is not None
        for _ in range(8):
            at += HOUR
            last = await advance(furnished, at, HOUR)
        at += 16 * HOUR
    assert last is None
    assert await advance(furnished, at, 0) is None


async def test_a_clock_that_jumps_meanwhile_is_another_one(furnished: AnyStore) -> None:
    at = NOW + AHEAD
    await advance(furnished, at, 0)
    for now in (at + BEYOND_MILLIS + 1, at + AHEAD, NOW + 300 * DAY):
        for ran in (0, 23 * HOUR):
            doubt = await advance(furnished, now + ran, ran)
            assert doubt is not None
        assert doubt.waits_ms == HOUR
    # Nobody runs for longer than his own clock says.
    assert await advance(furnished, NOW + 300 * DAY + 23 * HOUR + 1, 9 * HOUR) is not None


@pytest.mark.parametrize(
    ("ahead", "doubted"), [(BEYOND_MILLIS, False), (BEYOND_MILLIS + 1, True), (-AHEAD, False)]
)
async def test_a_week_is_no_reason_for_doubt(furnished: AnyStore, ahead: int, doubted: bool) -> None:
    assert (await advance(furnished, NOW + ahead, 0) is not None) == doubted
    assert (await furnished.read(partial(clock_doubt.look, now=NOW + ahead)) is not None) == doubted


async def test_a_new_database_is_as_old_as_its_schema(store: AnyStore) -> None:
    assert await advance(store, NOW + BEYOND_MILLIS, 0) is None
    assert await advance(store, NOW + BEYOND_MILLIS + 1, 0) is not None


async def test_a_machine_whose_clock_begins_in_1970_at_each_start_is_not_doubted_when_it_is_set(
    furnished: AnyStore,
) -> None:
    assert await sweep(furnished, owner="boot", clock=lambda: 60_000, retention=RETENTION) is not None
    assert await advance(furnished, NOW + HOUR, 0) is None


async def test_one_run_sweeps_no_more_of_the_trail_than_three_days(store: AnyStore) -> None:
    store.chain_audit(KEY)
    row = AuditEntry(NOW, "test.done", "user:u", None, None, None, None, "ok", "")
    refusal = row._replace(actor="anonymous", outcome="refused")
    for day in range(10):
        at = NOW + day * DAY
        await store.write(
            lambda db, at=at: [db.audit(row._replace(at=at)), db.audit(refusal._replace(at=at))]
        )
    swept: list[tuple[int, int]] = []
    for _ in range(5):
        done = await sweep(store, owner="boot", clock=lambda: NOW + AHEAD, retention=RETENTION)
        assert done is not None
        swept.append((done["audit"], done["audit_refusals"]))
    assert await store.read(lambda db: db.fetch_all("SELECT seq FROM audit")) == []
    assert swept[0] == (
        8,
        4,
    )  # the first four days; and of refusals the next four, from the oldest that is left
