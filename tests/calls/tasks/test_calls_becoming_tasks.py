"""Calls that become tasks, by hand or because they take long (server/calls/tasks/task_engine.py): what each side gets, and what is asked where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from task_fakes import (
    OWNER,
    Caller,
    DyingStore,
    accept,
    ask_once,
    attempt,
    engine,
    forever,
    form,
    order,
    text,
)
from trio.testing import MockClock

from server.calls.tasks.task_engine import Ending, TaskOrder
from server.mcp.call_failures import CannotAsk, Paused
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.errors import UnknownTool
from server.mcp.task_faces import Face, Snapshot
from server.store.inline_store import InlineStore
from server.store.jobs import StoreDb


async def test_a_call_that_never_becomes_a_task_is_a_call(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def plain(_order: TaskOrder, outlet: Outlet) -> Ending:
        await outlet.emit(Progress(progress=1))
        await outlet.close_stream()
        await outlet.checkpoint({"at": 1})
        answers = await outlet.ask({"who": form()})
        return text(answers["who"]["content"]["name"])

    line = Caller()
    async with engine(store, {"t": plain}) as made:
        assert await attempt(made, line) == text("caller")
        assert await made.tasks.list(OWNER) == []
        assert made.tasks.count() == 0
    assert line.heard == [Progress(progress=1), {"who"}]
    assert (line.saved, line.closed) == ({"at": 1}, True)


async def test_a_tool_says_itself_when_its_call_becomes_a_task(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def by_hand(_order: TaskOrder, outlet: Outlet) -> Ending:
        first = await outlet.ask({"who": form()})
        assert await outlet.become_task()
        assert await outlet.become_task()
        await outlet.emit(Progress(progress=1, message="on my own"))
        second = await outlet.ask({"who": form()})
        return text(f"{first['who']['content']['name']} {second['who']['content']['name']}")

    line = Caller()
    async with engine(store, {"t": by_hand}) as made:
        task = await attempt(made, line)
        assert isinstance(task, Snapshot)
        assert task.state == "working"
        assert set((await made.ended(task)).questions) == {"who-2"}
        await made.tasks.answer(task.id, OWNER, {"who-2": accept("task")})
        ended = await made.ended(task)
    assert (ended.ending, ended.message) == (text("caller task"), "on my own")
    assert line.heard == [{"who"}]


async def test_a_call_that_takes_too_long_becomes_a_task_and_what_it_was_asking_is_asked_there(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    class Patient(Caller):
        async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
            await trio.sleep_forever()
            raise AssertionError

    async with engine(store, {"t": ask_once}) as made:
        task = await attempt(made, Patient(), 25)
        assert isinstance(task, Snapshot)
        assert trio.current_time() == 25
        assert set((await made.ended(task)).questions) == {"who"}
        await made.tasks.answer(task.id, OWNER, {"who": accept()})
        assert (await made.ended(task)).ending == text("hello Ann")


async def test_a_call_that_is_quick_enough_stays_one(autojump_clock: MockClock, store: InlineStore) -> None:
    async def quick(_order: TaskOrder, _outlet: Outlet) -> Ending:
        await trio.sleep(24)
        return text("in time")

    async with engine(store, {"t": quick}) as made:
        assert await attempt(made, Caller(), 25) == text("in time")


class Slow(DyingStore):
    """Each write takes a second to be durable."""

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        done = await super().write(job)
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return done


async def test_a_call_that_ends_while_it_is_being_made_a_task_is_one_with_its_result(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def almost(_order: TaskOrder, _outlet: Outlet) -> Ending:
        await trio.sleep(25.5)
        return text("just too late")

    async with engine(Slow(store), {"t": almost}) as made:
        task = await attempt(made, Caller(), 25)
        assert isinstance(task, Snapshot)
        assert (await made.ended(task)).ending == text("just too late")


@pytest.mark.requirement("tasks.not-by-notification")
async def test_cancelling_the_request_of_a_call_stops_it_but_not_the_task_that_it_became(
    autojump_clock: MockClock,
    store: InlineStore,
) -> None:
    stopped: list[str] = []

    async def slow(what: TaskOrder, outlet: Outlet) -> Ending:
        try:
            if what.arguments.get("become"):
                await outlet.become_task()
            await trio.sleep(60)
        except trio.Cancelled:
            stopped.append(what.call_id)
            raise
        return text("done")

    async with engine(store, {"t": slow}) as made:
        with trio.move_on_after(5):
            await attempt(made, Caller(), call_id="call")
        await trio.sleep(1)
        assert stopped == ["call"]
        task: Ending | Snapshot | None = None
        with trio.CancelScope() as scope:
            task = await attempt(made, Caller(), call_id="task", arguments={"become": True})
            scope.cancel()
            await trio.lowlevel.checkpoint()
        assert isinstance(task, Snapshot)
        assert (await made.ended(task)).ending == text("done")
    assert stopped == ["call"]


async def test_a_pause_and_a_refusal_pass_through_to_the_request(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async def pause(_order: TaskOrder, _outlet: Outlet) -> Ending:
        raise Paused

    async def refuse(_order: TaskOrder, _outlet: Outlet) -> Ending:
        raise UnknownTool("t")

    async def crash(_order: TaskOrder, _outlet: Outlet) -> Ending:
        raise ZeroDivisionError

    async with engine(store, {"pause": pause, "refuse": refuse, "crash": crash}) as made:
        for tool, kind in (("pause", Paused), ("refuse", UnknownTool), ("crash", ZeroDivisionError)):
            with pytest.raises(kind):
                await attempt(made, Caller(), tool=tool)


async def test_without_room_for_a_task_it_stays_a_call(autojump_clock: MockClock, store: InlineStore) -> None:
    async def by_hand(_order: TaskOrder, outlet: Outlet) -> Ending:
        became = await outlet.become_task()
        await trio.sleep(60)
        return text(f"became {became}")

    async with engine(store, {"t": by_hand, "forever": forever}, per_owner=1) as made:
        await made.start("forever")
        assert await attempt(made, Caller(), 5) == text("became False")


class Mute(Caller):
    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise CannotAsk("not on this line", {"elicitation": {}})


async def test_where_only_a_task_can_be_answered_asking_makes_the_call_one(
    autojump_clock: MockClock, store: InlineStore
) -> None:
    async with engine(store, {"t": ask_once}) as made:
        nothing = order(can=frozenset())
        task = await made.tasks.attempt(nothing, Mute(), owner=OWNER, face=Face.WASMAGENT, after_seconds=25)
        assert isinstance(task, Snapshot)
        assert trio.current_time() < 25
        assert set((await made.ended(task)).questions) == {"who"}
        await made.tasks.answer(task.id, OWNER, {"who": accept()})
        assert (await made.ended(task)).ending == text("hello Ann")
        with pytest.raises(CannotAsk):
            await made.tasks.attempt(nothing, Mute(), owner=OWNER, face=Face.EXTENSION, after_seconds=25)
