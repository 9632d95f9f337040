"""A task whose agent is replaced by a newer version while it runs: the newer one goes on with it, where that loses nothing."""

from __future__ import annotations

import trio
from task_fakes import OWNER, accept, engine, form, text
from trio.testing import MockClock

from server.calls.tasks.task_order import TaskOrder
from server.mcp.call_outlet import Outlet
from server.mcp.errors import AgentReplaced
from server.mcp.task_faces import Ending
from server.store.inline_store import InlineStore

REPLACED = "replaced by a newer version"


async def test_one_with_a_checkpoint_goes_on_from_there(
    store: InlineStore, autojump_clock: MockClock
) -> None:
    seen: list[object] = []

    async def work(what: TaskOrder, outlet: Outlet) -> Ending:
        seen.append(what.resumed)
        if what.resumed is None:
            await outlet.checkpoint({"step": 1})
            raise AgentReplaced(REPLACED)
        return text(f"from {what.resumed}")

    async with engine(store, {"t": work}) as run:
        over = await run.ended(await run.start())
    assert over.state == "completed" and seen == [None, {"step": 1}]


async def test_one_that_waits_for_answers_waits_on(store: InlineStore, autojump_clock: MockClock) -> None:
    runs = 0

    async def work(what: TaskOrder, outlet: Outlet) -> Ending:
        nonlocal runs
        runs += 1
        async with trio.open_nursery() as nursery:
            if runs == 1:
                nursery.start_soon(_replace, nursery)
            answers = await outlet.ask({"name": form()})
            return text(answers["name"]["content"]["name"])
        raise AgentReplaced(REPLACED)

    async with engine(store, {"t": work}) as run:
        task = await run.start()
        with trio.fail_after(600):
            while runs < 2:
                await trio.sleep(1)
            await run.tasks.wait(task.id, OWNER)
        await run.tasks.answer(task.id, OWNER, {"name": accept("Bo")})
        over = await run.ended(task)
    assert over.state == "completed" and runs == 2


async def test_any_other_has_failed_and_says_why(store: InlineStore, autojump_clock: MockClock) -> None:
    async def work(what: TaskOrder, outlet: Outlet) -> Ending:
        raise AgentReplaced(REPLACED)

    async with engine(store, {"t": work}) as run:
        over = await run.ended(await run.start())
    assert over.state == "failed" and over.ending is not None
    assert REPLACED in str(over.ending)


async def _replace(nursery: trio.Nursery) -> None:
    await trio.sleep(5)
    nursery.cancel_scope.cancel()
