"""Tasks and the end of the process that runs them (server/calls/tasks/task_engine.py): stopped, killed, asleep, without a disk, beside another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from task_fakes import (
    OWNER,
    Caller,
    DyingStore,
    Engine,
    Tool,
    accept,
    ask_once,
    attempt,
    engine,
    forever,
    form,
    greet,
    text,
)
from trio.testing import MockClock

from server.calls.tasks.sealed_tasks import RESTARTED
from server.calls.tasks.task_engine import Ending, TaskOrder
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.errors import BackendFailed
from server.mcp.task_faces import Snapshot
from server.store import task_leases
from server.store.inline_store import InlineStore
from server.store.jobs import DiskFull, StoreDb


async def checkpointing(what: TaskOrder, outlet: Outlet) -> Ending:
    if what.resumed is None:
        await outlet.checkpoint({"step": 1})
        await trio.sleep_forever()
    return text(f"resumed at {what.resumed['step']}")


async def checkpoints_and_works(what: TaskOrder, outlet: Outlet) -> Ending:
    if what.resumed is None:
        await outlet.checkpoint({"step": 1})
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.requirement("tasks.durable")
@pytest.mark.parametrize("stop", [True, False])
async def test_after_a_restart_each_task_is_what_the_rules_say(
    autojump_clock: MockClock, store: InlineStore, stop: bool
) -> None:
    runs: list[str] = []

    async def asking(_order: TaskOrder, outlet: Outlet) -> Ending:
        runs.append("asking")
        first = await outlet.ask({"a": form()})
        second = await outlet.ask({"a": form()})
        return text(f"{first['a']['content']['name']} {second['a']['content']['name']}")

    async def answered_then_busy(_order: TaskOrder, outlet: Outlet) -> Ending:
        await outlet.ask({"a": form()})
        await trio.sleep_forever()
        raise AssertionError

    tools: Mapping[str, Tool] = {
        "forever": forever, "checkpointing": checkpointing, "asking": asking, "greet": greet, "busy": answered_then_busy,
    }  # fmt: skip
    async with engine(store, tools, stop=stop) as before:
        tasks = {name: await before.start(name) for name in tools}
        for name in ("asking", "busy"):
            await before.ended(tasks[name])
            await before.tasks.answer(tasks[name].id, OWNER, {"a": accept("before")})
        await trio.sleep(1)

    async with engine(store, tools, boot_id="boot-2") as after:
        if not stop:
            await trio.sleep(1)
            assert (await after.get(tasks["forever"])).state == "working", "its lease has not run out"
            # An answer that comes while nobody runs it is not lost.
            await after.tasks.answer(tasks["asking"].id, OWNER, {"a-2": accept("after")})
        await trio.sleep(30)
        found = {name: await after.get(task) for name, task in tasks.items()}
        assert found["greet"].ending == text("hello")
        assert found["checkpointing"].ending == text("resumed at 1")
        for name in ("forever", "busy"):
            assert found[name].state == "failed"
            assert found[name].message == RESTARTED.message
            assert found[name].ending == RESTARTED
        if stop:
            assert (found["asking"].state, set(found["asking"].questions)) == ("input_required", {"a-2"})
            await after.tasks.answer(tasks["asking"].id, OWNER, {"a-2": accept("after")})
            await trio.sleep(1)
        assert (await after.get(tasks["asking"])).ending == text("before after")
    assert runs == ["asking", "asking"]


async def test_an_answer_that_the_killed_process_had_not_taken_up_is_not_lost(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": ask_once}, stop=False) as before:
        task = await before.start()
        await before.ended(task)
    async with engine(store, {"t": ask_once}, boot_id="boot-2") as after:
        await after.tasks.answer(task.id, OWNER, {"who": accept("Cy")})
        assert (await after.ended(task)).ending == text("hello Cy")


async def test_what_was_answered_before_it_became_a_task_is_not_asked_again_after_a_restart(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    async def by_hand(_order: TaskOrder, outlet: Outlet) -> Ending:
        first = await outlet.ask({"who": form()})
        await outlet.become_task()
        second = await outlet.ask({"who": form()})
        return text(f"{first['who']['content']['name']} {second['who']['content']['name']}")

    async with engine(store, {"t": by_hand}, stop=False) as before:
        task = await attempt(before, Caller())
        assert isinstance(task, Snapshot)
        await before.ended(task)
    async with engine(store, {"t": by_hand}, boot_id="boot-2") as after:
        await trio.sleep(30)
        assert set((await after.get(task)).questions) == {"who-2"}
        await after.tasks.answer(task.id, OWNER, {"who-2": accept("me")})
        assert (await after.ended(task)).ending == text("caller me")


async def test_a_checkpoint_of_an_earlier_round_counts_when_it_becomes_a_task(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def by_hand(what: TaskOrder, outlet: Outlet) -> Ending:
        await outlet.become_task()
        if what.call_id == "c1" and what.resumed == {"step": 7} and first:
            first.clear()
            await trio.sleep_forever()
        return text(f"resumed at {what.resumed['step']}")

    first = [True]
    async with engine(store, {"t": by_hand}, stop=False) as before:
        task = await attempt(before, Caller(), resumed={"step": 7})
        assert isinstance(task, Snapshot)
    async with engine(store, {"t": by_hand}, boot_id="boot-2") as after:
        assert (await after.ended(task)).ending == text("resumed at 7")


async def test_a_task_that_brings_the_server_down_each_time_is_given_up(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def deadly(what: TaskOrder, outlet: Outlet) -> Ending:
        if what.resumed is None:
            await outlet.checkpoint(1)
        runs.append(what)
        await trio.sleep_forever()
        raise AssertionError

    runs: list[TaskOrder] = []
    async with engine(store, {"t": deadly}, stop=False) as made:
        task = await made.start()
        await trio.sleep(1)
    state = ""
    for life in range(8):
        async with engine(store, {"t": deadly}, boot_id=f"life-{life}", stop=False) as made:
            await trio.sleep(30)
            state = (await made.get(task)).state
    assert state == "failed"
    assert len(runs) == 1 + 5


@pytest.mark.parametrize("stop", [True, False])
async def test_a_task_that_only_waits_outlives_any_number_of_restarts(
    autojump_clock: MockClock, store: InlineStore, stop: bool
) -> None:
    async with engine(store, {"t": ask_once}, stop=stop) as made:
        task = await made.start()
        await made.ended(task)
    for life in range(12):
        async with engine(store, {"t": ask_once}, boot_id=f"life-{life}", stop=stop) as made:
            await trio.sleep(30)
            assert (await made.get(task)).state == "input_required"
    async with engine(store, {"t": ask_once}, boot_id="last") as made:
        await made.tasks.answer(task.id, OWNER, {"who": accept("Di")})
        assert (await made.ended(task)).ending == text("hello Di")


async def test_a_task_at_work_outlives_any_number_of_clean_stops(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": checkpoints_and_works}) as made:
        task = await made.start()
        await trio.sleep(1)
    for life in range(12):
        async with engine(store, {"t": checkpoints_and_works}, boot_id=f"life-{life}") as made:
            await trio.sleep(30)
            assert (await made.get(task)).state == "working"


async def test_what_a_killed_process_left_is_taken_over_at_once_when_the_leases_are_ended(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": checkpointing, "forever": forever}, stop=False) as before:
        task, lost = await before.start(), await before.start("forever")
        await trio.sleep(1)
    await store.write(task_leases.end_left)
    began = trio.current_time()
    async with engine(store, {"t": checkpointing}, boot_id="boot-2") as after:
        assert (await after.ended(task)).ending == text("resumed at 1")
        assert (await after.ended(lost)).state == "failed"
        assert trio.current_time() - began < 2


async def test_a_living_process_is_never_robbed_and_a_dead_one_is_within_seconds(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    runs: list[str] = []

    def tool(boot: str) -> Tool:
        async def work(what: TaskOrder, outlet: Outlet) -> Ending:
            runs.append(boot)
            if what.resumed is None:
                await outlet.checkpoint(1)
            await trio.sleep(600)
            return text(f"by {boot}")

        return work

    async with engine(store, {"t": tool("b"), "ask": ask_once}, boot_id="b") as second:
        async with engine(store, {"t": tool("a"), "ask": ask_once}, boot_id="a", stop=False) as first:
            task, asking = await first.start(), await first.start("ask")
            await trio.sleep(300)
            assert runs == ["a"]
            # Answered through the other process, and taken up by the one that runs it.
            await second.tasks.answer(asking.id, OWNER, {"who": accept("far")})
            assert (await second.ended(asking)).ending == text("hello far")
            far = await first.start("t")
            await second.tasks.cancel(far.id, OWNER, reason="from afar")
            await trio.sleep(10)
            assert first.tasks.count() == 1
        await trio.sleep(30)
        assert runs == ["a", "a", "b"]
        assert (await second.ended(task)).ending == text("by b")


async def test_a_machine_that_slept_goes_on_with_what_it_was_doing(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def nap(_order: TaskOrder, _outlet: Outlet) -> Ending:
        await trio.sleep(2000)
        return text("rested")

    async with engine(store, {"t": nap}) as made:
        task = await made.start()
        await trio.sleep(7)
        autojump_clock.jump(1800)  # no lease was renewed all that time
        assert (await made.ended(task)).ending == text("rested")


class Flaky(DyingStore):
    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        if self.full:
            raise DiskFull("no room")
        return await super().write(job)


async def test_a_result_waits_for_a_full_disk_to_have_room_again(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    flaky = Flaky(store)

    async def slow(_order: TaskOrder, outlet: Outlet) -> Ending:
        await trio.sleep(5)
        for step in range(7):
            await outlet.emit(Progress(progress=step))
        return text("worth keeping")

    async with engine(flaky, {"t": slow}) as made:
        task = await made.start()
        flaky.full = True
        await trio.sleep(120)
        assert (await made.get(task)).state == "working"
        flaky.full = False
        ended = await made.ended(task)
    assert (ended.ending, len(ended.events)) == (text("worth keeping"), 7)


async def test_a_server_that_stops_gives_back_what_it_ran_and_begins_nothing_more(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    errors: list[Exception] = []

    async def call(made: Engine) -> None:
        try:
            await attempt(made, Caller(), tool="forever")
        except BackendFailed as error:
            errors.append(error)

    async with engine(store, {"t": checkpointing, "forever": forever}) as made:
        task = await made.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, made)
            await trio.sleep(1)
            await made.tasks.stop()
        assert len(errors) == 1
        assert (await made.get(task)).state == "working"
        with pytest.raises(BackendFailed):
            await made.start()
        with pytest.raises(BackendFailed):
            await attempt(made, Caller())
        async with engine(store, {"t": checkpointing}, boot_id="boot-2") as after:
            assert (await after.ended(task)).ending == text("resumed at 1")
            assert trio.current_time() < 2


async def test_a_fault_of_whoever_is_told_or_of_one_row_does_not_stop_the_others(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    def fault(_server: str, _task_id: str) -> None:
        raise KeyError("no such server")

    def spoil(db: StoreDb) -> None:
        db.execute("UPDATE task_parts SET sealed = ? WHERE name = 'order'", b"x" * 100)

    async with engine(store, {"t": checkpointing}, stop=False) as made:
        spoilt = await made.start()
        await trio.sleep(1)
    await store.write(spoil)
    async with engine(store, {"t": checkpointing, "greet": greet}, boot_id="boot-2") as after:
        after.tasks._tell = fault
        assert (await after.ended(await after.start("greet"))).state == "completed"
        await trio.sleep(60)
        assert (await after.ended(await after.start("greet"))).state == "completed"
        assert (await after.get(spoilt)).state == "working"
