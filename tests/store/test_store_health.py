"""What the store knows of itself, and how it is asked (server/store/store_health.py, store_probe.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from damage import accept_writes, fill_disk, free_disk, refuse_writes
from store_engines import NOW
from trio.testing import MockClock, wait_all_tasks_blocked

from server.cluster.postgres.postgres import open_postgres_store
from server.store import store_health, store_probe
from server.store.jobs import DiskFull, StoreBusy, StoreDb, StoreFull, StoreUnavailable, StoreUnreachable
from server.store.sqlite import open_store
from server.store.store_health import REASONS, StoreHealth, StoreReport
from server.store.store_probe import StoreProbe
from server.store.threaded_store import StoreLimits, ThreadedStore


def put_much(db: StoreDb) -> None:
    db.execute("INSERT INTO meta (key, value) VALUES ('much', ?)", "x" * 100_000)


@pytest.fixture
def engine() -> str:
    return "threads"


async def test_a_write_that_failed_is_the_problem_until_one_succeeds(store: ThreadedStore) -> None:
    assert store.report() == StoreReport()
    fill_disk(store)
    with pytest.raises(DiskFull):
        await store.write(put_much)
    report = store.report()
    assert (report.problem, report.hint) == ("the disk is full", DiskFull.hint)
    assert report.refused == {"disk_full": 1}
    free_disk(store)
    await store.write(put_much)
    report = store.report()
    assert (report.problem, report.refused) == ("", {"disk_full": 1})
    assert report.wrote_seconds_ago is not None
    assert store.health.commits >= 1
    assert store.health.commit_seconds > 0
    assert store.health.confirm_seconds > 0


async def test_a_job_that_refuses_says_nothing_about_the_store(store: ThreadedStore) -> None:
    def refuse(_: StoreDb) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(refuse)
    assert store.report().problem == ""
    assert store.report().refused == {}


async def test_what_a_full_queue_refuses_is_counted(directory: Path) -> None:
    async with open_store(
        directory / "ostiary.db",
        clock=lambda: NOW,
        backups=directory / "backups",
        limits=StoreLimits(waiting=0),
    ) as store:
        with pytest.raises(StoreFull):
            await store.write(put_much)
        assert store.report().refused == {"queue_full": 1}


def test_every_way_of_being_unavailable_is_a_reason_of_its_own() -> None:
    assert {*StoreUnavailable.__subclasses__(), *StoreBusy.__subclasses__()} == set(REASONS)
    assert len(set(REASONS.values())) == len(REASONS)


def test_a_write_that_waits_too_long_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_health.time, "monotonic", lambda: 1000.0)
    state = StoreHealth()
    assert state.report(waiting=1, oldest_asked_at=995.1).problem == ""
    stuck = state.report(waiting=3, oldest_asked_at=993.0)
    assert stuck.problem == "a write has been waiting for 7 s"
    assert (stuck.waiting, stuck.oldest_waits_seconds) == (3, 7.0)
    assert stuck.hint == store_health.STUCK_DISK


def test_a_disk_that_confirms_late_time_after_time_is_said_to_be_slow() -> None:
    state = StoreHealth()

    def warning() -> str:
        found = state.report(waiting=0, oldest_asked_at=None)
        assert found.problem == ""
        return found.warning

    state.note_commit(5.0, confirmed=2.0)
    assert warning() == ""
    for _ in range(500):
        state.note_commit(0.3, confirmed=0.2)
    assert " 200 ms: " in warning()
    assert store_health.SLOW_DISK in warning()
    state.warning = "it is not durable"
    assert warning().startswith("it is not durable; ")
    state.warning = ""
    for _ in range(500):
        state.note_commit(9.0, confirmed=0.01)
    assert warning() == ""


def test_what_others_changed_not_being_confirmed_for_five_seconds_is_a_problem() -> None:
    state = StoreHealth()
    for seconds in (None, 0.0, 4.9):
        found = state.report(waiting=0, oldest_asked_at=None, confirmed_seconds_ago=seconds)
        assert (found.problem, found.is_unconfirmed) == ("", False)
    for seconds in (5.0, 60.0):
        found = state.report(waiting=0, oldest_asked_at=None, confirmed_seconds_ago=seconds)
        assert found.problem.endswith(f"heard of for {seconds:.0f} s")
        assert "every request" in found.hint
        assert found.is_unconfirmed
    state.note_refused(StoreUnreachable("the database does not answer"))
    found = state.report(waiting=0, oldest_asked_at=None, confirmed_seconds_ago=5.0)
    assert (found.problem, found.is_unconfirmed) == ("the database does not answer", True)


async def test_of_a_database_server_no_disk_of_this_machine_is_suspected(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_postgres_store(postgres_database, clock=lambda: NOW) as store:
        monkeypatch.setattr(store_health.time, "monotonic", lambda: 1000.0)
        stuck = store.health.report(waiting=1, oldest_asked_at=990.0)
        store.health.note_commit(60.0, confirmed=60.0)
        slow = store.health.slowness
    assert slow
    assert "disk" not in slow
    assert stuck.problem == "a write has been waiting for 10 s"
    assert "pg_stat_activity" in stuck.hint
    assert "disk" not in stuck.hint


async def test_asking_writes_so_that_a_disk_that_takes_nothing_is_noticed_and_so_is_its_recovery(
    store: ThreadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_probe, "FRESH_SECONDS", -1.0)
    asked = StoreProbe(store, clock=lambda: NOW)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked.run)
            assert (await asked.look()).problem == ""
            refuse_writes(store)
            assert (await asked.look()).problem.endswith("cannot be written to")
            accept_writes(store)
            assert (await asked.look()).problem == ""
            nursery.cancel_scope.cancel()


async def test_a_glance_waits_for_nothing_and_has_a_write_tried_only_while_there_is_trouble(
    store: ThreadedStore,
) -> None:
    asked = StoreProbe(store, clock=lambda: NOW)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked.run)
            assert asked.glance().problem == ""
            await wait_all_tasks_blocked()
            assert store.health.commits == 0  # strangers may ask: nothing is written for them
            refuse_writes(store)
            with pytest.raises(StoreUnavailable):
                await store.write(put_much)
            assert asked.glance().problem.endswith("cannot be written to")
            accept_writes(store)
            while asked.glance().problem:
                await trio.sleep(0)
            nursery.cancel_scope.cancel()


async def test_what_was_written_just_now_needs_no_proof(
    store: ThreadedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_probe, "FRESH_SECONDS", 3600.0)
    await store.write(put_much)
    commits = store.health.commits
    asked = StoreProbe(store, clock=lambda: NOW)
    assert (await asked.look()).problem == ""  # nobody runs it, so it would wait for a write in vain
    assert store.health.commits == commits


async def test_a_stuck_write_is_told_after_seconds_and_does_not_hold_up_whoever_asks(
    autojump_clock: MockClock,
) -> None:
    class Stuck:
        health = StoreHealth()

        async def write(self, job: Callable[[StoreDb], object]) -> None:
            await trio.sleep_forever()

        def report(self) -> StoreReport:
            return StoreReport(problem="stuck" if trio.current_time() >= 5 else "")

    asked = StoreProbe(Stuck(), clock=lambda: NOW)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked.run)
        assert (await asked.look()).problem == "stuck"
        assert trio.current_time() == 5
        nursery.cancel_scope.cancel()
