"""The engine with threads: queues, waking, cancellation, closing (server/store/threaded_store.py)."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from store_engines import NOW, keys, put

from server.store.jobs import Change, StoreBroken, StoreClosed, StoreDb, StoreFull
from server.store.sqlite import open_store
from server.store.threaded_store import StoreLimits, ThreadedStore

# So that only the queue and the size end a batch, however slow the machine.
PATIENT = StoreLimits(batch_seconds=60)


class Gate:
    """Holds the store's thread inside a job until the test has arranged what waits behind it. (No real job may do this.)"""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def job(self, _: StoreDb) -> str:
        self.entered.set()
        assert self.open.wait(60)
        return "gate"

    async def wait_entered(self) -> None:
        with trio.fail_after(60):
            assert await trio.to_thread.run_sync(self.entered.wait, 60)


def opened(directory: Path, limits: StoreLimits = PATIENT):  # noqa: ANN201  the context manager's type is long and inferred
    return open_store(
        directory / "ostiary.db", clock=lambda: NOW, backups=directory / "backups", limits=limits
    )


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():
            await trio.lowlevel.checkpoint()


async def behind_gate(store: ThreadedStore, nursery: trio.Nursery) -> Gate:
    """The nursery is the test's own: the gate's writer lives in it until the gate is opened."""
    gate = Gate()
    nursery.start_soon(store.write, gate.job)
    await gate.wait_entered()
    return gate


def trace(store: ThreadedStore) -> list[str]:
    said: list[str] = []
    connection = store._writer._transactions._connection
    assert isinstance(connection, sqlite3.Connection)
    connection.set_trace_callback(said.append)
    return said


async def test_jobs_that_wait_together_share_one_commit(directory: Path) -> None:
    async with opened(directory) as store:
        said = trace(store)
        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            for number in range(20):
                nursery.start_soon(store.write, partial(put, key=f"k{number}"))
            await until(lambda: store._writes.pending == 21)
            gate.open.set()
        assert said.count("COMMIT") == 1
        assert len(await store.read(keys)) == 20


async def test_a_batch_has_a_largest_size(directory: Path) -> None:
    async with opened(directory, StoreLimits(batch=5, batch_seconds=60)) as store:
        said = trace(store)
        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            for number in range(9):
                nursery.start_soon(store.write, partial(put, key=f"k{number}"))
            await until(lambda: store._writes.pending == 10)
            gate.open.set()
        assert said.count("COMMIT") == 2


async def test_a_slow_job_ends_its_batch_so_that_it_is_answered(directory: Path) -> None:
    async with opened(directory, StoreLimits(batch_seconds=0, longest_batch_seconds=0)) as store:
        said = trace(store)
        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            for number in range(3):
                nursery.start_soon(store.write, partial(put, key=f"k{number}"))
            await until(lambda: store._writes.pending == 4)
            gate.open.set()
        assert said.count("COMMIT") == 4


class SlowClock:
    """Half a minute later each time somebody looks."""

    sleep = staticmethod(time.sleep)

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 30
        return self.now


async def test_where_a_turn_of_the_writer_takes_long_by_itself_those_who_wait_share_the_next(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.store.transactions.time", SlowClock())
    limits = StoreLimits(batch_seconds=0, longest_batch_seconds=60, job_seconds=10**9)
    async with opened(directory, limits) as store:
        await store.write(partial(put, key="a"))  # whose turn is known to have taken a minute
        said = trace(store)
        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            for number in range(3):
                nursery.start_soon(store.write, partial(put, key=f"k{number}"))
            await until(lambda: store._writes.pending == 4)
            gate.open.set()
        assert said.count("COMMIT") == 1


async def test_a_full_queue_refuses_at_once_and_serves_again_when_it_has_drained(directory: Path) -> None:
    async with opened(directory, StoreLimits(waiting=3)) as store:
        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            nursery.start_soon(store.write, partial(put, key="a"))
            nursery.start_soon(store.write, partial(put, key="b"))
            await until(lambda: store._writes.pending == 3)
            with pytest.raises(StoreFull):
                await store.write(partial(put, key="c"))
            assert await store.read(keys) == []  # reads have a queue of their own
            gate.open.set()
        await store.write(partial(put, key="d"))
        assert await store.read(keys) == ["a", "b", "d"]


async def test_reads_do_not_wait_for_the_writer_and_see_only_what_is_committed(directory: Path) -> None:
    async with opened(directory) as store:
        await store.write(partial(put, key="before"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.write, partial(put, key="during"))
            gate = await behind_gate(store, nursery)
            with trio.fail_after(60):
                assert set(await store.read(keys)) <= {"before", "during"}
            gate.open.set()
        assert await store.read(keys) == ["before", "during"]


async def test_a_read_sees_one_moment_however_long_it_takes(directory: Path) -> None:
    async with opened(directory) as store:
        gate = Gate()
        seen: list[list[str]] = []

        def job(db: StoreDb) -> None:
            seen.append(keys(db))
            gate.job(db)
            seen.append(keys(db))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.read, job)
            await gate.wait_entered()
            await store.write(partial(put, key="a"))
            gate.open.set()
        assert seen == [[], []]
        assert await store.read(keys) == ["a"]


async def test_a_cancelled_caller_still_learns_that_its_write_was_committed(directory: Path) -> None:
    async with opened(directory) as store:
        learned: list[str] = []
        cancelled: list[str] = []

        async def caller(scope: trio.CancelScope) -> None:
            with scope:
                learned.append(await store.write(partial(put, key="paid")))
                await trio.lowlevel.checkpoint()
                learned.append("not reached")
            cancelled.append("at the next checkpoint" if scope.cancelled_caught else "never")

        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            scope = trio.CancelScope()
            nursery.start_soon(caller, scope)
            await until(lambda: store._writes.pending == 2)
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert learned == []  # neither woken nor cancelled while the outcome is open
            gate.open.set()
        assert learned == ["paid"]
        assert cancelled == ["at the next checkpoint"]
        assert await store.read(keys) == ["paid"]


async def test_a_cancelled_caller_learns_its_jobs_error_too(directory: Path) -> None:
    async with opened(directory) as store:
        learned: list[BaseException] = []

        def job(_: StoreDb) -> None:
            raise LookupError("mine")

        async def caller(scope: trio.CancelScope) -> None:
            with scope:
                try:
                    await store.write(job)
                except LookupError as error:
                    learned.append(error)

        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            scope = trio.CancelScope()
            nursery.start_soon(caller, scope)
            await until(lambda: store._writes.pending == 2)
            scope.cancel()
            gate.open.set()
        assert [str(error) for error in learned] == ["mine"]


async def test_a_cancelled_read_returns_at_once_and_harms_nobody(directory: Path) -> None:
    async with opened(directory, StoreLimits(readers=1)) as store:
        gate = Gate()
        ran: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.read, gate.job)
            await gate.wait_entered()
            with trio.fail_after(60):
                async with trio.open_nursery() as doomed:
                    doomed.start_soon(store.read, lambda _: ran.append("abandoned"))
                    await until(lambda: store._reads.pending == 2)
                    doomed.cancel_scope.cancel()
            assert not gate.open.is_set()
            gate.open.set()
        assert await store.read(keys) == []
        assert ran == []
        await until(lambda: store._reads.pending == 0)


async def test_changes_of_a_batch_are_told_once_before_any_of_its_writers_goes_on(directory: Path) -> None:
    async with opened(directory) as store:
        order: list[object] = []

        def listen(changes: object) -> None:
            assert trio.lowlevel.in_trio_run()
            order.append(changes)

        async def revoke(name: str) -> None:
            await store.write(lambda db: db.changed("grant", name))
            order.append(name)

        store.on_changes(listen)
        async with trio.open_nursery() as nursery:
            gate = await behind_gate(store, nursery)
            nursery.start_soon(revoke, "a")
            await until(lambda: store._writes.pending == 2)
            nursery.start_soon(revoke, "b")
            await until(lambda: store._writes.pending == 3)
            gate.open.set()
        assert order[0] == [Change(1, "grant", "a"), Change(2, "grant", "b")]
        assert sorted(map(str, order[1:])) == ["a", "b"]


async def test_closing_finishes_what_was_accepted_and_refuses_what_comes_later(directory: Path) -> None:
    written: list[str] = []

    async with trio.open_nursery() as outer:

        async def caller(store: ThreadedStore, key: str) -> None:
            written.append(await store.write(partial(put, key=key)))

        async with opened(directory) as store:
            gate = await behind_gate(store, outer)
            for key in ("a", "b", "c"):
                outer.start_soon(caller, store, key)
            await until(lambda: store._writes.pending == 4)

            async def open_gate_once_closing() -> None:
                await until(lambda: store._closed)
                with pytest.raises(StoreClosed):
                    await store.write(partial(put, key="late"))
                gate.open.set()

            outer.start_soon(open_gate_once_closing)
    assert sorted(written) == ["a", "b", "c"]
    async with opened(directory) as store:
        assert await store.read(keys) == ["a", "b", "c"]


async def test_closing_joins_the_threads_and_folds_the_log_into_the_file(directory: Path) -> None:
    async with opened(directory) as store:
        await store.write(partial(put, key="a"))
        names = {thread.name for thread in threading.enumerate()}
        assert {"store-writer", "store-reader-1", "store-reader-2"} <= names
    assert not any(thread.name.startswith("store-") for thread in threading.enumerate())
    assert not (directory / "ostiary.db-wal").exists()


async def test_closing_does_not_wait_for_a_dead_disk_for_ever(directory: Path) -> None:
    gate = Gate()
    async with trio.open_nursery() as outer:
        with pytest.raises(StoreBroken) as caught:  # noqa: PT012
            async with opened(directory, StoreLimits(close_seconds=0.05)) as store:
                outer.start_soon(store.write, gate.job)
                await gate.wait_entered()
        assert str(caught.value) == "the store did not finish in time; the disk may be stuck"
        gate.open.set()
        await until(lambda: not any(thread.name.startswith("store-") for thread in threading.enumerate()))


@pytest.fixture
def stands_still(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> trio.testing.MockClock:
    """The store's clock, until the test sets it forward: no write is given up because its thread had to wait for a processor."""
    monkeypatch.setattr(
        "server.store.threaded_store.time", SimpleNamespace(monotonic=mock_clock.current_time)
    )
    return mock_clock


async def test_a_write_that_a_dead_disk_never_answers_is_given_up_as_unknown_and_later_ones_are_served(
    directory: Path, stands_still: trio.testing.MockClock
) -> None:
    async def unknown(job: Callable[[StoreDb], str]) -> None:
        with pytest.raises(StoreBroken, match="may or may not"):
            await store.write(job)

    async with opened(directory, StoreLimits(write_seconds=40)) as store:
        gate = Gate()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(unknown, gate.job)
            await gate.wait_entered()
            stands_still.jump(40)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(unknown, partial(put, key="given up before its turn"))
            await until(lambda: store._writes.pending == 2)
            stands_still.jump(40)
        gate.open.set()
        await until(lambda: store._writes.pending == 0)
        assert await store.read(keys) == []


async def test_each_write_is_given_up_in_its_own_time_and_those_that_are_answered_are_not(
    directory: Path, stands_still: trio.testing.MockClock
) -> None:
    ended: dict[str, str] = {}

    async def caller(store: ThreadedStore, key: str) -> None:
        try:
            ended[key] = await store.write(partial(put, key=key))
        except StoreBroken:
            ended[key] = "given up"

    async with opened(directory, StoreLimits(write_seconds=40)) as store:
        await store.write(partial(put, key="before"))
        gate = Gate()
        async with trio.open_nursery() as nursery:

            async def stuck() -> None:
                with pytest.raises(StoreBroken, match="may or may not"):
                    await store.write(gate.job)
                ended["gate"] = "given up"

            nursery.start_soon(stuck)
            await gate.wait_entered()
            stands_still.jump(10)
            nursery.start_soon(caller, store, "second")
            await until(lambda: store._writes.pending == 2)
            stands_still.jump(30)
            await until(lambda: "gate" in ended)
            stands_still.jump(5)
            nursery.start_soon(caller, store, "third")
            await until(lambda: store._writes.pending == 3)
            assert "second" not in ended
            stands_still.jump(5)
            await until(lambda: "second" in ended)
            assert "third" not in ended
            gate.open.set()
        assert ended == {"gate": "given up", "second": "given up", "third": "third"}
        assert await store.read(keys) == ["before", "third"]


async def test_once_the_server_stops_a_dead_disk_is_not_waited_for_as_long(directory: Path) -> None:
    async with opened(directory, StoreLimits(write_seconds=3600, hurried_write_seconds=0.05)) as store:
        gate = Gate()
        async with trio.open_nursery() as nursery:

            async def stuck() -> None:
                with pytest.raises(StoreBroken, match="may or may not"):
                    await store.write(gate.job)

            nursery.start_soon(stuck)
            await gate.wait_entered()
            with trio.fail_after(60):
                store.hurry()
        with trio.fail_after(60), pytest.raises(StoreBroken):
            await store.write(partial(put, key="given up as soon"))
        gate.open.set()
        await until(lambda: store._writes.pending == 0)


async def test_a_closed_store_leaves_no_watch_behind(directory: Path) -> None:
    system = trio.lowlevel.current_root_task()
    assert system is not None

    def names() -> list[str]:
        return [task.name for nursery in system.child_nurseries for task in nursery.child_tasks]

    async with opened(directory):
        await trio.testing.wait_all_tasks_blocked()
        assert "store-watch" in names()
    await trio.testing.wait_all_tasks_blocked()
    assert "store-watch" not in names()


def test_ctrl_c_during_a_write_strikes_when_its_outcome_is_known(directory: Path) -> None:
    learned: list[str] = []

    async def main() -> None:
        async with opened(directory) as store:
            gate = Gate()

            def interrupt() -> None:
                assert gate.entered.wait(60)
                signal.raise_signal(signal.SIGINT)
                gate.open.set()

            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                learned.append(await store.write(gate.job))
                await trio.lowlevel.checkpoint()
                learned.append("not reached")
            finally:
                thread.join()

    # Whoever runs the tests in the background may have had Ctrl-C ignored.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trio.run(main)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert learned == ["gate"]


async def test_a_fault_of_the_writer_itself_stops_the_store_and_strands_nobody(directory: Path) -> None:
    def broken_clock() -> int:
        if threading.current_thread().name == "store-writer":
            raise LookupError("clock")
        return NOW

    stranded: list[str] = []
    with trio.fail_after(60), pytest.raises(StoreBroken) as caught:  # noqa: PT012
        async with open_store(
            directory / "ostiary.db", clock=broken_clock, backups=directory / "backups"
        ) as store:
            with pytest.raises(StoreBroken):
                await store.write(partial(put, key="a"))
            await trio.sleep_forever()
            stranded.append("body")
    assert isinstance(caught.value.__cause__, LookupError)
    assert str(caught.value) == "it met with an error of ours: LookupError"
    assert stranded == []


async def test_the_body_of_a_broken_store_is_left_even_while_it_waits_elsewhere(directory: Path) -> None:
    def fail(_: object) -> None:
        raise LookupError("cache")

    with trio.fail_after(60), pytest.raises(StoreBroken):  # noqa: PT012
        async with opened(directory) as store:
            store.on_changes(fail)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.write, lambda db: db.changed("grant", "g"))
                await trio.sleep_forever()
