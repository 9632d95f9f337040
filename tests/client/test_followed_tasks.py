"""Calls that become tasks, waited for by our own client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest
import trio
from connecting import Connect
from fake_server import TOOLS, FakeServer, Response, Seen, as_json
from msgspec import Raw
from test_answering_client import DONE, WHO, Person
from trio.testing import MockClock

from server.client.client_errors import BadAnswer, CallRefused, Unreachable
from server.client.mcp_client import McpClient
from server.client.mcp_session.agreement import Agreement
from server.client.mcp_session.session_link import Link

pytestmark = pytest.mark.usefixtures("in_time")

ECHO = TOOLS[0]
REQUIRED = {**ECHO, "execution": {"taskSupport": "required"}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
EXTENSIONS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
WANTED = {"code": -32021, "message": "it is a task", "data": {"requiredCapabilities": EXTENSIONS}}
MADE = {"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 1}


class Tasks:
    """A tool that runs as a task alone; its states, one after the other, the last again and again."""

    def __init__(self, fake: FakeServer, *states: Mapping[str, Any]) -> None:
        self._fake = fake
        self._states = list(states)
        self.seen: list[tuple[str, Mapping[str, Any]]] = []
        fake.overrides["/mcp"] = self

    async def __call__(self, request: Seen) -> Response:
        method = str(request.message.get("method"))
        if method != "tools/call" and not method.startswith("tasks/"):
            return await self._fake.usual(request)
        params = request.message["params"]
        self.seen.append((method, params))
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.message["id"]}
        if self._fake.era == "modern" and "extensions" not in params["_meta"][CAPABILITIES]:
            return as_json({**answer, "error": WANTED}, status=400)
        if method == "tools/call":
            result = MADE if self._fake.era == "modern" else {"task": {"taskId": "t1"}}
        elif method == "tasks/get":
            assert request.headers.get("mcp-name") == ("t1" if self._fake.era == "modern" else None)
            result = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        else:
            result = DONE if method == "tasks/result" else {}
        return as_json({**answer, "result": result})

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.seen]


def state(status: str, **more: Any) -> Mapping[str, Any]:
    return {**MADE, "resultType": "complete", "status": status, **more}


COMPLETED = state("completed", result=DONE)


async def test_a_tool_that_runs_as_a_task_is_called_as_one_and_waited_for(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()
    tasks = Tasks(fake, state("working", statusMessage="half"), state("working"), COMPLETED)
    told: list[str] = []
    result = await mcp.call(ECHO, {"text": "hi"}, seconds=60, progress=lambda *said: told.append(said[2]))
    assert result == DONE and told == ["half"]
    assert tasks.methods == ["tools/call", "tools/call", "tasks/get", "tasks/get", "tasks/get"]


async def test_what_it_asks_is_answered_once(fake: FakeServer, connect: Connect) -> None:
    mcp = await connect()
    asks = state("input_required", inputRequests={"a": WHO})
    tasks = Tasks(fake, asks, asks, COMPLETED)
    person = Person()
    await mcp.call(ECHO, {"text": "hi"}, seconds=60, answerer=person)
    (update,) = (params for method, params in tasks.seen if method == "tasks/update")
    assert update["inputResponses"] == {"a": {"action": "accept", "content": {"name": "Ada 1"}}}
    assert len(person.asked) == 1


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (state("failed", error={"code": -32603, "message": "out of paper"}), "out of paper"),
        (state("cancelled", statusMessage="revoked"), "revoked"),
    ],
)
async def test_why_it_ended_is_said_and_nothing_is_cancelled(
    fake: FakeServer, connect: Connect, ending: Mapping[str, Any], said: str
) -> None:
    mcp = await connect()
    tasks = Tasks(fake, ending)
    with pytest.raises(CallRefused, match=said):
        await mcp.call(ECHO, {"text": "hi"}, seconds=60)
    assert tasks.methods[-1] == "tasks/get"


@pytest.mark.parametrize("stays", [state("input_required", inputRequests={"a": WHO}), state("asleep")])
async def test_a_task_that_cannot_be_waited_for_is_cancelled(
    fake: FakeServer, connect: Connect, stays: Mapping[str, Any]
) -> None:
    mcp = await connect()
    tasks = Tasks(fake, stays)
    with pytest.raises(BadAnswer):
        await mcp.call(ECHO, {"text": "hi"}, seconds=60)
    assert tasks.methods[-1] == "tasks/cancel"


async def test_a_task_that_takes_too_long_is_cancelled(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    class Slow:
        agreement = Agreement(version="2026-07-28", modern=True, capabilities={})

        async def request(self, method: str, params: Mapping[str, Any], **more: Any) -> Raw:
            await trio.lowlevel.checkpoint()
            asked.append(method)
            return Raw(msgspec.json.encode(MADE if method == "tools/call" else state("working")))

    mcp = McpClient(cast("Link", Slow()), "https://a.example/mcp")
    with pytest.raises(Unreachable, match="within 5 seconds"):
        await mcp.call(ECHO, {"text": "hi"}, seconds=5)
    assert (asked[0], asked[-1]) == ("tools/call", "tasks/cancel")
    assert set(asked[1:-1]) == {"tasks/get"}


async def test_an_older_server_is_asked_for_a_task_where_its_tool_is_always_one(
    fake: FakeServer, connect: Connect
) -> None:
    fake.era = "legacy"
    mcp = await connect()
    tasks = Tasks(fake, COMPLETED)
    assert await mcp.call(REQUIRED, {"text": "hi"}, seconds=60) == DONE
    assert [(method, params.get("task")) for method, params in tasks.seen] == [
        ("tools/call", {}),
        ("tasks/get", None),
        ("tasks/result", None),
    ]
