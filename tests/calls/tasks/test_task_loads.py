"""What a large request brought to a task is held until that has ended, in this process or the next (server/calls/tasks/task_engine.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio
from task_fakes import (
    ALICE,
    OWNER,
    Caller,
    Engine,
    Tool,
    accept,
    ask_once,
    engine,
    forever,
    greet,
    order,
    text,
)
from trio.testing import MockClock

from server.calls.tasks.task_engine import Ending, TaskOrder
from server.calls.tasks.task_run import TaskRun
from server.mcp.call_outlet import Outlet
from server.mcp.errors import McpError
from server.mcp.loads import LargeAnswer, Load, Loads
from server.mcp.task_faces import Face, Snapshot
from server.store.inline_store import InlineStore

WEIGHT = 1_000_000
LARGE = {"text": "x" * WEIGHT}


async def crashes(_order: TaskOrder, _outlet: Outlet) -> Ending:
    raise ValueError("a bug")


async def slow(_order: TaskOrder, _outlet: Outlet) -> Ending:
    await trio.sleep(10)
    return text("slow")


async def by_hand(_order: TaskOrder, outlet: Outlet) -> Ending:
    await outlet.become_task()
    await trio.sleep(10)
    return text("by hand")


TOOLS: Mapping[str, Tool] = {
    "greet": greet, "crashes": crashes, "slow": slow, "forever": forever, "by hand": by_hand, "asks": ask_once,
}  # fmt: skip


def loaded(loads: Loads, weight: int = WEIGHT) -> Load:
    load = Load(loads, ALICE.key(), known=True)
    load.weigh(weight)
    return load


async def start(made: Engine, tool: str, load: Load) -> Snapshot:
    """The request ends when its task is made."""
    made_task = await made.tasks.start(order(tool), owner=OWNER, face=Face.EXTENSION, load=load)
    load.let_go()
    return made_task


async def begin(made: Engine, tool: str, load: Load, after: float | None = None) -> Snapshot | Ending:
    found = await made.tasks.attempt(
        order(tool), Caller(), owner=OWNER, face=Face.EXTENSION, after_seconds=after, load=load
    )
    load.let_go()
    return found


async def ended(made: Engine, load: Load) -> None:
    task = await start(made, "slow", load)
    await trio.sleep(1)
    assert load.weight == WEIGHT, "its request has ended, and it has not"
    assert (await made.ended(task)).ending == text("slow")


async def crashed(made: Engine, load: Load) -> None:
    assert (await made.ended(await start(made, "crashes", load))).state == "failed"


async def cancelled(made: Engine, load: Load) -> None:
    task = await start(made, "forever", load)
    await trio.sleep(1)
    assert load.weight == WEIGHT
    await made.tasks.cancel(task.id, OWNER, reason="enough")


async def out_of_time(made: Engine, load: Load) -> None:
    await made.tasks.start(order("forever"), owner=OWNER, face=Face.EXTENSION, ttl_ms=1000, load=load)
    load.let_go()
    await trio.sleep(30)


async def stayed_a_call(made: Engine, load: Load) -> None:
    assert await begin(made, "greet", load) == text("hello")


async def became_a_task(made: Engine, load: Load) -> None:
    task = await begin(made, "by hand", load)
    assert isinstance(task, Snapshot) and load.weight == WEIGHT
    await made.ended(task)


async def took_too_long(made: Engine, load: Load) -> None:
    task = await begin(made, "slow", load, 1)
    assert isinstance(task, Snapshot) and load.weight == WEIGHT
    await made.ended(task)


async def was_given_up(made: Engine, load: Load) -> None:
    with trio.move_on_after(1):
        await begin(made, "forever", load)
    load.let_go()


@pytest.mark.parametrize(
    "way",
    [ended, crashed, cancelled, out_of_time, stayed_a_call, became_a_task, took_too_long, was_given_up],
    ids=lambda way: way.__name__,
)
async def test_a_task_holds_what_it_was_given_until_it_is_over(
    autojump_clock: MockClock, store: InlineStore, way: Callable[[Engine, Load], Awaitable[None]]
) -> None:
    loads = Loads()
    async with engine(store, TOOLS, loads=loads) as made:
        await way(made, loaded(loads))
        await trio.sleep(1)
        assert loads.weight == 0


@pytest.mark.parametrize("in_session", [True, False])
async def test_answers_are_held_with_the_task_that_they_are_for(
    autojump_clock: MockClock, store: InlineStore, in_session: bool
) -> None:
    async def goes_on(what: TaskOrder, outlet: Outlet) -> Ending:
        await ask_once(what, outlet)
        await trio.sleep(10)
        return text("ok")

    loads = Loads()
    async with engine(store, {"asks": goes_on}, loads=loads) as made:
        task = await made.start("asks")
        await made.tasks.wait(task.id, OWNER)
        load = loaded(loads)
        if in_session:
            answer = LargeAnswer(accept(), load)
            load.let_go()
            await made.tasks.answer(task.id, OWNER, {"who": answer})
            del answer
        else:
            await made.tasks.answer(task.id, OWNER, {"who": accept()}, load=load)
            load.let_go()
        await trio.sleep(1)
        assert loads.weight == WEIGHT
        late = loaded(loads)
        await made.tasks.answer(task.id, OWNER, {"who": accept("too late")}, load=late)
        late.let_go()
        assert loads.weight == WEIGHT, "nothing was asked"
        await made.ended(task)
        await trio.sleep(1)
    assert loads.weight == 0


async def test_what_was_refused_as_a_task_holds_nothing(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    loads = Loads()
    async with engine(store, TOOLS, loads=loads, per_owner=1) as made:
        await made.start("forever")
        load = loaded(loads)
        with pytest.raises(McpError, match="too many tasks"):
            await made.tasks.start(order("greet"), owner=OWNER, face=Face.EXTENSION, load=load)
        load.let_go()
        assert loads.weight == 0


async def test_a_stopped_engine_holds_nothing(autojump_clock: MockClock, store: InlineStore) -> None:
    loads = Loads()
    async with engine(store, TOOLS, loads=loads) as made:
        await start(made, "forever", loaded(loads))
        await trio.sleep(1)
        for _ in range(3):  # and what it has not begun with
            load = loaded(loads)
            made.tasks._begin.send_nowait(TaskRun(order("forever"), load))
            load.let_go()
        assert loads.weight == 4 * WEIGHT
        await made.tasks.stop()
        assert loads.weight == 0


async def waits_or_ends(what: TaskOrder, outlet: Outlet) -> Ending:
    if what.resumed is None:
        await outlet.checkpoint({"step": 1})
        await trio.sleep_forever()
    await trio.sleep(10)
    return text("resumed")


async def test_after_a_restart_large_tasks_are_weighed_again_and_wait_for_room(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    tools = {"t": waits_or_ends}
    async with engine(store, tools) as before:
        large = await before.start(arguments=LARGE)
        small = await before.start()
        await trio.sleep(1)
    loads = Loads()
    others = loaded(loads, loads.limit // 2), Load(loads, "user:else", known=True)
    others[1].weigh(loads.limit // 4)
    async with engine(store, tools, boot_id="boot-2", loads=loads) as after:
        await trio.sleep(20)
        held = loads.weight
        assert {(await after.get(task)).state for task in (large, small)} == {"working"}
        assert after.tasks.count() == 0, "there is no room for a large one"
        others[0].let_go()
        others[1].let_go()
        await trio.sleep(6)
        assert after.tasks.count() == 2
        assert WEIGHT < loads.weight < WEIGHT + 1000 < held
        assert (await after.ended(large)).ending == text("resumed")
        assert (await after.ended(small)).ending == text("resumed")
        await trio.sleep(1)
        assert loads.weight == 0
