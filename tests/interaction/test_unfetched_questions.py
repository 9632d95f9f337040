"""What a task of 2025-11-25 asks a client that does not call tasks/result: it is put to it in its session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.calls.servers.endpoint import TaskRules
from server.calls.sessions.session import MAX_ERRANDS
from server.calls.task_question_relay import PATIENCE_SECONDS
from server.mcp.call_outlet import Outlet
from server.mcp.result_encoding import ToolResult
from tests.interaction.agents import Agent
from tests.interaction.clients import Client, Next
from tests.interaction.everything import task_tool
from tests.interaction.session_house import asks
from tests.interaction.wires import client
from tests.pair import talk
from tests.requirements import Cell

RELATED = "io.modelcontextprotocol/related-task"
CANCELLED = "notifications/cancelled"
LATEST = "2025-11-25"
ANN = {"action": "accept", "content": {"name": "Ann"}}
LONG = 4 * PATIENCE_SECONDS


async def asks_again(call: ToolCall, outlet: Outlet) -> ToolResult:
    await asks(call, outlet)
    return await asks(call, outlet)


def curious(transport: str = "http") -> AbstractAsyncContextManager[Client]:
    agent = Agent(
        {"curious": asks, "twice": asks_again},
        {**task_tool("curious", "optional"), **task_tool("twice", "optional")},
    )
    source = Source(name="agent", backend=agent)
    cell = Cell(LATEST, transport)
    return client(cell, source, capabilities={"elicitation": {}}, tasks=True)


async def begin(one: Client, tool: str = "curious") -> Any:
    made = (await one.call(tool, task={"ttl": 60_000})).result["task"]
    return {"taskId": made["taskId"]}


async def status(one: Client, task: Any) -> str:
    await trio.testing.wait_all_tasks_blocked()
    return (await one.ask("tasks/get", task)).result["status"]


async def silent(aside: Next) -> bool:
    """Whether nothing comes for a while."""
    with trio.move_on_after(LONG):
        raise AssertionError(await aside())
    return True


def rules(one: Client) -> TaskRules:
    found = one.made.endpoint.tasks
    assert found is not None
    return found


def couriers(one: Client) -> int:
    """How many tasks somebody still keeps an eye on."""
    return rules(one).couriers.count()


@asynccontextmanager
async def asked_aside(tool: str = "curious") -> AsyncGenerator[tuple[Client, Next, Any, Any]]:
    """A client that was put its task's question on the stream of its session."""
    async with curious() as one, one.aside() as aside:
        task = await begin(one, tool)
        question = await aside()
        assert question["method"] == "elicitation/create"
        assert question["params"]["_meta"][RELATED] == task
        yield one, aside, task, question


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_question_that_nobody_fetches_is_put_in_the_session_once(
    transport: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with curious(transport) as one, one.aside() as aside:
        began = trio.current_time()
        task = await begin(one)
        question = await aside()
        assert trio.current_time() - began >= PATIENCE_SECONDS
        assert question["method"] == "elicitation/create" and question["params"]["_meta"][RELATED] == task
        assert await silent(aside)
        assert await status(one, task) == "input_required"
        await one.answer(question, result=ANN)
        assert await status(one, task) == "completed"
        assert "Ann" in (await one.ask("tasks/result", task)).text
        assert couriers(one) == 0


async def test_each_question_of_a_task_is_put(autojump_clock: trio.testing.MockClock) -> None:
    async with asked_aside("twice") as (one, aside, task, question):
        await one.answer(question, result=ANN)
        again = await aside()
        assert again["id"] != question["id"]
        await one.answer(again, result={"action": "decline"})
        assert await status(one, task) == "completed"
        assert "decline" in (await one.ask("tasks/result", task)).text


async def test_a_question_that_is_fetched_in_time_is_not_put_elsewhere(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with curious() as one, one.aside() as aside:
        task = await begin(one)
        async with one.begins("tasks/result", task) as waiting:
            question = await waiting.next()
            assert await silent(aside)
            await one.answer(question, result=ANN)
            assert "Ann" in (await waiting.reply()).text
        assert await silent(aside)


async def test_a_question_waits_for_the_stream(autojump_clock: trio.testing.MockClock) -> None:
    async with curious() as one:
        task = await begin(one)
        await trio.sleep(LONG)
        assert await status(one, task) == "input_required"
        async with one.aside() as aside:
            await one.answer(await aside(), result=ANN)
            assert await status(one, task) == "completed"


async def test_whoever_fetches_afterwards_takes_the_question_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asked_aside() as (one, aside, task, question):
        async with one.begins("tasks/result", task) as waiting:
            taken = await waiting.next()
            withdrawn = await aside()
            assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (CANCELLED, question["id"])
            await one.answer(question, result={"action": "decline"})  # too late
            await one.answer(taken, result=ANN)
            assert "Ann" in (await waiting.reply()).text
        assert await silent(aside)


async def test_a_question_is_put_again_when_whoever_took_it_over_has_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with asked_aside() as (one, aside, task, _):
        async with one.begins("tasks/result", task) as waiting:
            await waiting.next()
            assert (await aside())["method"] == CANCELLED
            await one.note(CANCELLED, {"requestId": waiting.id})
            again = await aside()
            assert again["method"] == "elicitation/create"
        await one.answer(again, result=ANN)
        assert await status(one, task) == "completed"


async def test_whoever_fetches_after_the_answer_is_not_asked(autojump_clock: trio.testing.MockClock) -> None:
    async with asked_aside() as (one, _, task, question):
        await one.answer(question, result=ANN)
        reply = await one.ask("tasks/result", task)
        assert reply.before == [] and "Ann" in reply.text


async def test_of_two_who_fetch_the_first_answer_counts_and_the_other_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with curious() as one:
        task = await begin(one)
        async with one.begins("tasks/result", task) as first, one.begins("tasks/result", task) as second:
            asked, other = await first.next(), await second.next()
            await one.answer(asked, result=ANN)
            assert "Ann" in (await first.reply()).text
            reply = await second.reply()
            assert [told["params"]["requestId"] for told in reply.before] == [other["id"]]
            assert "Ann" in reply.text


@pytest.mark.parametrize(
    "answered", [{"error": {"code": -1, "message": "no"}}, {"result": 5}], ids=["refused", "no object"]
)
async def test_whoever_refuses_is_not_asked_there_again_and_may_still_fetch(
    answered: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with asked_aside() as (one, aside, task, question):
        await one.answer(question, **answered)
        assert await silent(aside)
        assert await status(one, task) == "input_required"
        async with one.begins("tasks/result", task) as waiting:
            await one.answer(await waiting.next(), result=ANN)
            assert "Ann" in (await waiting.reply()).text


async def test_an_answer_that_is_declined_is_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    async with asked_aside() as (one, _, task, question):
        await one.answer(question, result={"action": "decline"})
        assert "decline" in (await one.ask("tasks/result", task)).text


@pytest.mark.parametrize("fetched", [False, True])
async def test_the_question_of_a_task_that_is_cancelled_is_withdrawn(
    fetched: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with asked_aside() as (one, aside, task, question):
        if fetched:
            async with one.begins("tasks/result", task) as waiting:
                question = await waiting.next()
                await one.ask("tasks/cancel", task)
                reply = await waiting.reply()
                assert reply.before[0]["params"]["requestId"] == question["id"] and reply.error
        else:
            await one.ask("tasks/cancel", task)
            withdrawn = await aside()
            assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (CANCELLED, question["id"])
        await trio.testing.wait_all_tasks_blocked()
        assert couriers(one) == 0


async def test_other_sessions_of_the_caller_are_not_asked(autojump_clock: trio.testing.MockClock) -> None:
    async with curious() as one:
        other = await talk(one.made.pair, capabilities={"elicitation": {}})
        async with other.listens() as stream:
            task = await begin(one)
            await trio.sleep(LONG)
            assert b"elicitation" not in stream.raw
            async with one.aside() as aside:
                await one.answer(await aside(), result=ANN)
                assert await status(one, task) == "completed"
            assert b"elicitation" not in stream.raw


@pytest.mark.parametrize("when", ["before anybody listens", "while it is asked"])
async def test_nothing_is_left_when_the_session_ends(
    when: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with curious() as one:
        task = await begin(one)
        assert couriers(one) == 1
        if when == "while it is asked":
            async with one.aside() as aside:
                await aside()
        else:
            await trio.sleep(LONG)
        web: Any = one
        assert (await web.talk.end()).status == 204
        await trio.testing.wait_all_tasks_blocked()
        assert couriers(one) == 0
        web.talk = await talk(one.made.pair, capabilities={"elicitation": {}})
        assert await status(one, task) == "input_required", "and whoever fetches is asked"
        async with one.begins("tasks/result", task) as waiting:
            await one.answer(await waiting.next(), result=ANN)
            assert "Ann" in (await waiting.reply()).text


async def test_nothing_is_left_of_a_task_that_ends_before_anybody_listens(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with curious() as one:
        task = await begin(one)
        await trio.sleep(LONG)
        assert couriers(one) == 1
        await one.ask("tasks/cancel", task)
        await trio.testing.wait_all_tasks_blocked()
        assert couriers(one) == 0


async def test_nothing_is_left_when_the_server_is_about_to_stop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with curious() as one:
        await begin(one)
        await trio.sleep(LONG)
        assert couriers(one) == 1
        rules(one).engine.begin_draining()
        await trio.testing.wait_all_tasks_blocked()
        assert couriers(one) == 0


async def test_of_one_session_no_more_are_kept_an_eye_on_than_could_be_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with curious() as one:
        *_, last = [await begin(one) for _ in range(MAX_ERRANDS + 3)]
        await trio.testing.wait_all_tasks_blocked()
        assert couriers(one) == MAX_ERRANDS
        async with one.begins("tasks/result", last) as waiting:
            await one.answer(await waiting.next(), result=ANN)
            assert "Ann" in (await waiting.reply()).text


async def test_a_client_that_cannot_be_asked_has_nobody_who_would(
    autojump_clock: trio.testing.MockClock,
) -> None:
    agent = Agent({"curious": asks}, task_tool("curious", "optional"))
    async with client(Cell(LATEST, "http"), Source(name="agent", backend=agent), tasks=True) as one:
        await begin(one)
        assert couriers(one) == 0
