"""Tasks of which the store does not say whether they were written: looked for while their caller waits, and never made twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from task_fakes import OWNER, Caller, DyingStore, engine, greet, order, text
from trio.testing import MockClock

from server.calls.tasks.task_engine import TaskOrder
from server.mcp.call_outlet import Outlet
from server.mcp.task_faces import Ending, Face, Snapshot, TaskCompleted
from server.store.inline_store import InlineStore
from server.store.jobs import StoreBroken, StoreDb, StoreUnreachable

GONE = StoreUnreachable("the database cannot be reached")


class LosingStore(DyingStore):
    """Loses its connection during a commit, which was done or not, and is there again after so many seconds."""

    def __init__(self, store: InlineStore, *, written: bool, away: float) -> None:
        super().__init__(store)
        self._written = written
        self._away = away
        self._until: float | None = None

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        if self._until is None and getattr(getattr(job, "func", job), "__name__", "") == "insert":
            self._until = trio.current_time() + self._away
            if self._written:
                await super().write(job)
            raise StoreBroken("lost during a commit")
        if self._until is not None and trio.current_time() < self._until:
            raise GONE
        return await super().write(job)


async def _tasks(store: InlineStore) -> int:
    rows = await store.read(lambda db: db.fetch_all("SELECT id_hash FROM tasks"))
    return len(rows)


@pytest.mark.parametrize("written", [False, True])
async def test_one_that_is_started_is_one_task(
    autojump_clock: MockClock, store: InlineStore, written: bool
) -> None:
    losing: Any = LosingStore(store, written=written, away=2)
    async with engine(losing, {"t": greet}) as made:
        ended = await made.ended(await made.start())
        assert (ended.state, await _tasks(store)) == ("completed", 1)


@pytest.mark.parametrize("written", [False, True])
async def test_a_call_that_becomes_one_is_one_task(
    autojump_clock: MockClock, store: InlineStore, written: bool
) -> None:
    losing: Any = LosingStore(store, written=written, away=2)

    async def long(_asked: TaskOrder, _outlet: Outlet) -> Ending:
        await trio.sleep(60)
        return text("done")

    async with engine(losing, {"t": long}) as made:
        found = await made.tasks.attempt(
            order("t"), Caller(), owner=OWNER, face=Face.EXTENSION, after_seconds=2
        )
        assert isinstance(found, Snapshot)
        assert (await made.ended(found)).state == "completed"
        assert await _tasks(store) == 1


@pytest.mark.parametrize("written", [False, True])
async def test_whoever_starts_one_is_told_where_it_cannot_be_found_out(
    autojump_clock: MockClock, store: InlineStore, written: bool
) -> None:
    losing: Any = LosingStore(store, written=written, away=60)
    runs: list[Any] = []

    async def counted(asked: TaskOrder, _outlet: Outlet) -> Ending:
        runs.append(asked)
        return text("done")

    async with engine(losing, {"t": counted}) as made:
        with pytest.raises(StoreBroken):
            await made.start()
        assert (runs, await _tasks(store)) == ([], int(written))
        await trio.sleep(90)  # the store is there again, and the lease would be over
        assert (runs, await _tasks(store)) == ([], 0)


@pytest.mark.parametrize("written", [False, True])
async def test_a_call_stays_one_where_it_cannot_be_found_out(
    autojump_clock: MockClock, store: InlineStore, written: bool
) -> None:
    losing: Any = LosingStore(store, written=written, away=60)

    async def long(_asked: TaskOrder, _outlet: Outlet) -> Ending:
        await trio.sleep(60)
        return text("done")

    async with engine(losing, {"t": long}) as made:
        found = await made.tasks.attempt(
            order("t"), Caller(), owner=OWNER, face=Face.EXTENSION, after_seconds=2
        )
        assert isinstance(found, TaskCompleted)
        await trio.sleep(60)
        assert await _tasks(store) == 0
