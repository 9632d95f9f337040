"""Questions that would reach nobody, and answers of clients that are none: said at once, and no bug of ours."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from auth.model import Principal
from server.backends.catalog import Source
from server.feeds import KEEP_ALIVE_SECONDS, OpenFeed
from server.subscriptions import Subscription
from tests.interaction.agents import USER, Agent
from tests.interaction.everything import task_tool
from tests.interaction.session_house import asks, living
from tests.interaction.wires import client
from tests.pair import next_message, talk
from tests.requirements import Cell

JSON_ALONE: Any = {"accept": "application/json"}
ANN = {"action": "accept", "content": {"name": "Ann"}}
CURIOUS = {"name": "curious", "arguments": {}}


def curious() -> Source:
    return Source(name="agent", backend=Agent({"curious": asks}))


async def test_a_client_that_takes_no_stream_and_has_none_open_is_not_waited_for() -> None:
    async with living(curious()) as made:
        one = await talk(made.pair, capabilities={"elicitation": {}})
        answer = await one.ask("tools/call", CURIOUS, **JSON_ALONE)
        assert "cannot be asked" in str(answer.json)


async def test_a_client_that_takes_no_stream_is_asked_on_the_one_that_it_has_open() -> None:
    async with living(curious()) as made:
        one = await talk(made.pair, capabilities={"elicitation": {}})
        with trio.fail_after(5):
            async with one.listens() as stream:
                await trio.testing.wait_all_tasks_blocked()
                async with one.opens("tools/call", CURIOUS, **JSON_ALONE) as call:
                    question = await next_message(stream)
                    await one.reply(question, result={"action": "decline"})
                    assert (await call.answer()).json["result"]["content"][0]["text"] == "decline: None"


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(
    "answered", [{"error": {"code": -1, "message": "no"}}, {"result": 5}], ids=["refused", "no object"]
)
async def test_whoever_refuses_a_tasks_question_is_told_so_and_may_ask_for_the_result_again(
    answered: Any, transport: str
) -> None:
    agent = Agent({"curious": asks}, task_tool("curious", "optional"))
    source = Source(name="agent", backend=agent)
    cell = Cell("legacy", transport)
    async with client(cell, source, capabilities={"elicitation": {}}, tasks=True) as one:
        made = (await one.call("curious", task={"ttl": 60_000})).result["task"]
        task = {"taskId": made["taskId"]}
        async with one.begins("tasks/result", task) as waiting:
            await one.answer(await waiting.next(), **answered)
            reply = await waiting.reply()
            assert "internal error" not in reply.error["message"]
            assert "client" in reply.error["message"] or "user" in reply.error["message"]
        async with one.begins("tasks/result", task) as waiting:
            await one.answer(await waiting.next(), result=ANN)
            assert "Ann" in (await waiting.reply()).text
        assert not [line for line in one.made.lines if line["level"] == "error"]


async def test_whoever_is_told_of_something_all_the_time_is_asked_after_all_the_same(
    mock_clock: trio.testing.MockClock,
) -> None:
    subscription = Subscription(frozenset({"tools"}))

    async def not_any_more() -> bool:
        return False

    async def nothing(*_: Any) -> None:
        return None

    feed = OpenFeed(subscription, {}, still_allowed=not_any_more, ping=nothing, tell_task=nothing)
    subscription.offer("tools")
    assert await feed.next_change() == ("notifications/tools/list_changed", {})
    mock_clock.jump(KEEP_ALIVE_SECONDS + 1)
    subscription.offer("tools")
    assert await feed.next_change() is None


async def test_a_stream_that_always_has_more_to_read_ends_when_its_caller_is_not_let_in_any_more(
    mock_clock: trio.testing.MockClock,
) -> None:
    tokens: dict[str, Principal] = {"t": USER}
    async with living(tokens=tokens) as made:
        one = await talk(made.pair, authorization="Bearer t")
        with trio.fail_after(3600):
            async with one.listens() as stream:
                await trio.testing.wait_all_tasks_blocked()
                session = made.session(one)
                tokens.clear()
                mock_clock.jump(KEEP_ALIVE_SECONDS - 1)
                for _ in range(3):
                    session.changed("kind", b"{}")
                    mock_clock.jump(1)
                await stream.ended.wait()
                assert stream.raw.count(b"{}") < 3
