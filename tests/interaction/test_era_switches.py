"""What a server may be told to do for old clients: on every wire, and in the modern era never."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question
from server.mcp.result_encoding import ToolResult
from tests.interaction.agents import says
from tests.interaction.everything import everything, plain, task_tool
from tests.interaction.session_house import ASKED
from tests.interaction.wires import client
from tests.pair import META, encode
from tests.requirements import Cell

TASKS = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}


def ping(request_id: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "ping"}


@pytest.mark.requirement("compat.batches")
async def test_arrays_may_be_taken_in_every_revision_with_a_handshake(cell: Cell) -> None:
    async with client(cell, batches=True) as one:
        answers = await one.raw(encode([ping(1), ping(2)]))
        assert [answer["id"] for answer in answers] == [1, 2]


@pytest.mark.requirement("compat.no-modern-batches")
async def test_the_modern_era_has_no_arrays_whatever_the_switch_says(cell: Cell) -> None:
    async with client(cell, batches=True) as one:
        item = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        assert (await one.raw(encode([item])))["error"]["code"] == -32600


@pytest.mark.requirement("compat.arguments")
async def test_wrong_arguments_may_be_refused_instead(cell: Cell) -> None:
    async with client(cell, refuses_invalid=True) as one:
        reply = await one.call("plain", {"n": "seven"})
        assert reply.code == -32602
        data = reply.error["data"]
        assert data["problems"][0]["field"] == "n"
        assert {"field": data["field"], "reason": data["reason"]} == data["problems"][0]


async def curious(call: ToolCall, outlet: Outlet) -> ToolResult:
    question = Question(method="elicitation/create", params={"message": "who?", "requestedSchema": ASKED})
    return says((await outlet.ask({"who": question}))["who"]["content"]["name"])


def server() -> Any:
    return everything(
        listed=task_tool("slow", "required") | task_tool("curious", "required"), slow=plain, curious=curious
    )


@pytest.mark.requirement("compat.tasks")
async def test_the_other_dialect_of_tasks_is_spoken_alone(cell: Cell) -> None:
    async with client(cell, server(), capabilities=TASKS, tasks=True, wasmagent=True) as one:
        declared = one.welcome["capabilities"]["tasks"]
        assert declared == {"create": {}, "cancel": {}, "respond": {}, "list": {}}
        made = (await one.ask("tasks/create", {"name": "curious", "arguments": {}})).result
        with trio.fail_after(60):
            while (task := (await one.ask("tasks/get", {"id": made["id"]})).result)[
                "state"
            ] != "awaiting-input":
                await trio.testing.wait_all_tasks_blocked()
        assert task["elicitation"]["prompt"] == "who?"
        assert "taskId" not in task and "status" not in task
        await one.ask("tasks/respond", {"id": made["id"], "response": "Ann"})
        with trio.fail_after(60):
            while (task := (await one.ask("tasks/get", {"id": made["id"]})).result)["state"] != "complete":
                await trio.testing.wait_all_tasks_blocked()
        assert task["result"] == "Ann"
        assert (await one.ask("tasks/respond", {"id": made["id"], "response": "Ann"})).code == -32012
        assert (await one.ask("tasks/get", {"id": "nothing"})).code == -32010
        assert (await one.ask("tasks/create", {"name": "nothing"})).code == -32011
        assert (await one.ask("tasks/result", {"taskId": made["id"]})).code == -32601


@pytest.mark.requirement("compat.tasks-modern")
async def test_the_modern_era_has_its_extension_all_the_same(cell: Cell) -> None:
    async with client(cell, server(), capabilities=TASKS, tasks=True, wasmagent=True) as one:
        task = (await one.call("slow")).result
        assert task["resultType"] == "task" and "taskId" in task
        for method in ("tasks/create", "tasks/respond", "tasks/list"):
            assert (await one.ask(method, {"name": "slow", "id": "x"})).code == -32601
