"""Tasks and a store that takes too long: what it could not write in time ends nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from task_fakes import OWNER, Caller, DyingStore, engine, forever, form, greet, order, text
from trio.testing import MockClock

from server.calls.tasks.task_engine import TaskOrder
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.errors import AgentReplaced
from server.mcp.task_faces import Ending, Face, TaskCompleted
from server.store.inline_store import InlineStore
from server.store.jobs import MOST_SLOW, JobTooSlow, StoreDb, StoreError

SLOW = JobTooSlow("took too long")


class FailingStore(DyingStore):
    """One of whose jobs, by its name, comes to nothing so many times."""

    def __init__(self, store: InlineStore, job: str, problem: StoreError, *, times: int = 1) -> None:
        super().__init__(store)
        self.left = times
        self._job = job
        self._problem = problem

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        name: str = getattr(getattr(job, "func", job), "__name__", "")
        if name != self._job or not self.left:
            return await super().write(job)
        self.left -= 1
        await trio.lowlevel.checkpoint()
        raise self._problem


async def replaced(_order: TaskOrder, outlet: Outlet) -> Ending:
    await outlet.checkpoint({"step": 1})
    raise AgentReplaced("there is a newer version of it")


async def test_a_lease_that_cannot_be_given_back_in_time_ends_no_other_task(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    slow: Any = FailingStore(store, "release", SLOW, times=1000)
    async with engine(slow, {"t": replaced, "greet": greet, "forever": forever}) as made:
        other = await made.start("forever")
        await made.start("t")
        await trio.sleep(2)
        assert (await made.get(other)).state == "working"
        assert (await made.ended(await made.start("greet"))).state == "completed"


async def test_a_call_that_cannot_become_a_task_in_time_stays_a_call(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    slow: Any = FailingStore(store, "insert", SLOW)
    runs: list[Any] = []

    async def long(asked: TaskOrder, outlet: Outlet) -> Ending:
        runs.append(asked.resumed)
        await trio.sleep(60)
        return text("done")

    async with engine(slow, {"t": long}) as made:
        found = await made.tasks.attempt(
            order("t"), Caller(), owner=OWNER, face=Face.EXTENSION, after_seconds=2
        )
        assert isinstance(found, TaskCompleted)
        assert (runs, slow.left) == ([None], 0)


@pytest.mark.parametrize("times", [1, MOST_SLOW - 1])
@pytest.mark.parametrize("checkpoint", [False, True])
async def test_an_end_that_cannot_be_kept_in_time_is_kept_with_the_next_try(
    autojump_clock: MockClock, store: InlineStore, checkpoint: bool, times: int
) -> None:
    slow: Any = FailingStore(store, "finish", SLOW, times=times)
    runs: list[Any] = []

    async def tool(asked: TaskOrder, outlet: Outlet) -> Ending:
        runs.append(asked.resumed)
        if checkpoint:
            await outlet.checkpoint({"step": 1})
        return text("done")

    async with engine(slow, {"t": tool}) as made:
        ended = await made.ended(await made.start())
        assert (ended.state, runs, slow.left) == ("completed", [None], 0)


@pytest.mark.parametrize("job", ["note", "ask"])
async def test_what_a_tool_waits_for_is_kept_with_the_next_try(
    autojump_clock: MockClock, store: InlineStore, job: str
) -> None:
    slow: Any = FailingStore(store, job, SLOW)

    async def tool(asked: TaskOrder, outlet: Outlet) -> Ending:
        await outlet.checkpoint({"step": 1})
        await outlet.ask({"who": form()})
        return text("done")

    async with engine(slow, {"t": tool}) as made:
        task = await made.start()
        await trio.sleep(5)
        assert ((await made.get(task)).state, slow.left) == ("input_required", 0)


async def test_progress_that_cannot_be_kept_in_time_comes_with_the_next(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    slow: Any = FailingStore(store, "note", SLOW)

    async def steps(_order: TaskOrder, outlet: Outlet) -> Ending:
        for number in range(200):
            await outlet.emit(Progress(progress=number, message=f"step {number}"))
        return text("done")

    async with engine(slow, {"t": steps}) as made:
        ended = await made.ended(await made.start())
        assert (ended.state, ended.message, slow.left) == ("completed", "step 199", 0)
