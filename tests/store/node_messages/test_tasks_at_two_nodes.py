"""A task that runs at one node and is seen to at another: asked after, answered, cancelled, waited for, listened to."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.calls.task_question_relay import PATIENCE_SECONDS
from server.calls.tasks.sealed_tasks import RESTARTED
from server.calls.tasks.task_engine import LOOK_SECONDS
from server.mcp.call_outlet import Outlet
from server.mcp.result_encoding import ToolResult
from server.store.jobs import StoreDb
from tests.interaction.agents import agent, says
from tests.interaction.everything import task_tool
from tests.interaction.session_house import Steps, asks
from tests.pair import META, modern, next_message, patience, talk
from tests.store.node_messages.neighbours import Neighbour, two

pytestmark = pytest.mark.usefixtures("autojump_clock")

CAPABILITIES: dict[str, Any] = {"elicitation": {}}
ANN = {"action": "accept", "content": {"name": "Ann"}}
EXTENSION: dict[str, Any] = {
    "_meta": {
        **META,
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    }
}


async def begin(node: Neighbour, tool: str = "asks") -> str:
    """A task of 2026-07-28, there."""
    answer = await node.pair.modern("tools/call", {"name": tool, "arguments": {}, **EXTENSION})
    return answer.json["result"]["taskId"]


async def told(node: Neighbour, method: str, task: str, **more: Any) -> Any:
    answer = await node.pair.modern(method, {"taskId": task, **more, **EXTENSION}, mcp_name=task)
    return answer.json["result"]


async def until(node: Neighbour, task: str, status: str) -> Any:
    with trio.fail_after(patience()):
        while (found := await told(node, "tasks/get", task))["status"] != status:
            await trio.sleep(0.01)
    return found


def curious() -> Any:
    return agent(asks=asks, listed=task_tool("asks", "required"))


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_a_task_is_answered_through_another_node_and_goes_on_at_once() -> None:
    async with two(curious()) as (_, a, b):
        task = await begin(a)
        found = await until(b, task, "input_required")
        (name,) = found["inputRequests"]
        began = trio.current_time()
        await told(b, "tasks/update", task, inputResponses={name: ANN})
        assert "Ann" in str(await until(b, task, "completed"))
        assert trio.current_time() - began < 1


async def test_a_task_is_cancelled_through_another_node_and_its_work_stops_at_once() -> None:
    steps = Steps()
    async with two(agent(steps=steps, listed=task_tool("steps", "required"))) as (_, a, b):
        task = await begin(a, "steps")
        with trio.fail_after(patience()):
            await steps.begun.wait()
            began = trio.current_time()
            await told(b, "tasks/cancel", task)
            await steps.ended.wait()
        assert steps.how == "cancelled" and trio.current_time() - began < 1
        assert (await told(a, "tasks/get", task))["status"] == "cancelled"


async def test_whoever_waits_at_one_node_hears_at_once_of_the_end_at_another() -> None:
    steps = Steps()
    async with two(agent(steps=steps, listed=task_tool("steps", "optional"))) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        made = (await one.ask("tools/call", {"name": "steps", "arguments": {}, "task": {"ttl": 60_000}})).json
        task = {"taskId": made["result"]["task"]["taskId"]}
        async with b.talk(one).opens("tasks/result", task) as waiting:
            await settled()
            await trio.sleep(LOOK_SECONDS / 4)
            began = trio.current_time()
            steps.finish()
            with trio.fail_after(patience()):
                answer = await waiting.answer()
            assert "0 steps" in str(answer.json) and trio.current_time() - began < 1


async def test_a_question_of_a_task_is_put_where_its_result_is_waited_for_and_answered_where_the_client_likes() -> (
    None
):
    async with two(agent(asks=asks, listed=task_tool("asks", "optional"))) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        made = (await one.ask("tools/call", {"name": "asks", "arguments": {}, "task": {"ttl": 60_000}})).json
        task = {"taskId": made["result"]["task"]["taskId"]}
        async with one.listens() as aside, b.talk(one).opens("tasks/result", task) as waiting:
            await aside.read()
            with trio.fail_after(patience()):
                question = await next_message(waiting)
                await trio.sleep(PATIENCE_SECONDS * 3)
                assert a.living.session(one).unsolicited.last == 0, "nobody is asked by two ways"
                assert (await one.reply(question, result=ANN)).status == 202
                answer = await next_message(waiting)
        assert "Ann" in str(answer["result"])


async def test_a_question_that_nobody_fetches_is_brought_to_the_node_where_the_client_listens() -> None:
    async with two(agent(asks=asks, listed=task_tool("asks", "optional"))) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        made = (await one.ask("tools/call", {"name": "asks", "arguments": {}, "task": {"ttl": 60_000}})).json
        task = {"taskId": made["result"]["task"]["taskId"]}
        theirs = b.talk(one)
        async with theirs.listens() as aside:
            with trio.fail_after(patience()):
                question = await next_message(aside)
            assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == task
            assert (await theirs.reply(question, result=ANN)).status == 202
            assert "Ann" in (await theirs.ask("tasks/result", task)).body.decode()


async def test_a_subscription_at_one_node_hears_of_a_task_at_another() -> None:
    async with two(curious()) as (_, a, b):
        task = await begin(a)
        await until(a, task, "input_required")
        params = {"notifications": {"taskIds": [task]}, **EXTENSION}
        body, headers = modern("subscriptions/listen", params)
        async with b.pair.open(body=body, headers=headers) as stream:
            with trio.fail_after(patience()):
                assert "acknowledged" in (await stream.event())["method"]
                assert (await stream.event())["params"]["status"] == "input_required"
                (name,) = (await told(a, "tasks/get", task))["inputRequests"]
                await told(a, "tasks/update", task, inputResponses={name: ANN})
                while (await stream.event())["params"]["status"] != "completed":
                    pass


async def test_a_list_that_changes_at_one_node_is_heard_by_a_subscription_at_another() -> None:
    async with two(curious()) as (_, a, b):
        body, headers = modern(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}, **EXTENSION}
        )
        async with b.pair.open(body=body, headers=headers) as stream:
            with trio.fail_after(patience()):
                await stream.event()
                a.house.endpoint._tell(frozenset({"tools"}))
                assert (await stream.event())["method"] == "notifications/tools/list_changed"


async def test_a_task_of_a_node_that_died_is_gone_on_with_at_another() -> None:
    async with two(curious()) as (of, a, b):
        task = await begin(a)
        await until(b, task, "input_required")
        a.die(of)
        assert task not in str(b.tasks.works)
        await trio.sleep(60)
        assert len(b.tasks.works) == 1
        found = await told(b, "tasks/get", task)
        (name,) = found["inputRequests"]
        await told(b, "tasks/update", task, inputResponses={name: ANN})
        assert "Ann" in str(await until(b, task, "completed"))


async def test_a_letter_that_is_lost_costs_a_look_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    async with two(agent(steps=steps, listed=task_tool("steps", "optional"))) as (_, a, b):
        one = await talk(a.pair, capabilities=CAPABILITIES)
        made = (await one.ask("tools/call", {"name": "steps", "arguments": {}, "task": {"ttl": 60_000}})).json
        task = {"taskId": made["result"]["task"]["taskId"]}
        monkeypatch.setattr(a.letters, "send", lambda *_, **__: False)
        async with b.talk(one).opens("tasks/result", task) as waiting:
            steps.finish()
            with trio.fail_after(LOOK_SECONDS * 2):
                assert "0 steps" in str((await waiting.answer()).json)


async def test_a_task_where_nobody_else_is_costs_no_letter() -> None:
    async def quick(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("done")

    async with two(agent(quick=quick, listed=task_tool("quick", "required"))) as (of, a, b):
        b.die(of)
        task = await begin(a, "quick")
        await until(a, task, "completed")
        assert a.letters.written == 0
        assert await of.store.read(lambda db: db.fetch_all("SELECT * FROM letters")) == []


@pytest.mark.parametrize("another", [True, False])
async def test_a_task_of_a_newer_version_is_left_to_other_nodes_as_long_as_there_are_any(
    another: bool,
) -> None:
    def has(kept: str, db: StoreDb) -> Any:
        return db.fetch_one("SELECT id_hash, sealed FROM task_parts WHERE name = ?", kept)

    def put(sealed: bytes, db: StoreDb) -> None:
        db.execute("UPDATE task_parts SET sealed = ? WHERE name = 'order'", sealed)

    async with two(curious()) as (of, a, b):
        if another:
            of.letters("c" * 16)
        task = await begin(a)
        (name,) = (await until(a, task, "input_required"))["inputRequests"]
        row = await of.store.read(partial(has, "order"))
        newer = a.tasks._ledger._seal(
            row["id_hash"], "order", b'{"server": "main", "tool": {"of": "tomorrow"}}'
        )
        await of.store.write(partial(put, newer))
        a.die(of)
        await trio.sleep(300)
        if another:
            assert (await told(b, "tasks/get", task))["status"] == "input_required"
            # As it is for whoever can read it.
            await of.store.write(partial(put, row["sealed"]))
            await told(b, "tasks/update", task, inputResponses={name: ANN})
            assert "Ann" in str(await until(b, task, "completed"))
        else:
            found = await told(b, "tasks/get", task)
            assert (found["status"], found["error"]["message"]) == ("failed", RESTARTED.message)
