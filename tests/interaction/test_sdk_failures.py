"""Where the servers of the official SDKs fall short, and this one does not: each was seen on the wire of Python's 2.3, of
TypeScript's 2.4, or of the conformance suite's own server, all of which pass the suite.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from server.agents.base.backend import Completing, NoSuchResource, PromptGet, ResourceRead, ToolCall
from server.agents.base.catalog import Source
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.sessions import Sessions
from server.calls.tasks.task_engine import Tasks
from server.mcp.call_outlet import Outlet
from server.mcp.messages import (
    Prompt,
    PromptMessage,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextContent,
    Tool,
    ToolExecution,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from tests.interaction.agents import ANYTHING, Agent, Work, agent, house, says
from tests.interaction.session_house import asks, living
from tests.interaction.task_engine import engine
from tests.pair import ACCEPT_BOTH, META, MODERN, Answer, Pair, encode, modern, talk

LEGACY = "2025-11-25"
JSON = {"content-type": "application/json", "accept": ACCEPT_BOTH}
TASKS = "io.modelcontextprotocol/tasks"
NOW = 1_800_000_000_000


class Shelf(Agent):
    """A back-end that has a little of everything besides tools."""

    def resources(self) -> Sequence[Resource]:
        return [Resource(uri="test://one", name="one")]

    def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [ResourceTemplate(uri_template="test://numbers/{n}", name="numbers")]

    def prompts(self) -> Sequence[Prompt]:
        return [Prompt(name="hello")]

    def completes(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    async def read(self, read: ResourceRead, outlet: Outlet) -> Sequence[ResourceContents]:
        if read.template is not None:
            raise NoSuchResource("there is no such number")
        return [ResourceContents(uri=read.uri, text="one")]

    async def get_prompt(self, get: PromptGet, outlet: Outlet) -> PromptResult:
        return PromptResult(messages=[PromptMessage(role="user", content=TextContent(text="hello"))])

    async def complete(self, asked: Completing) -> CompletionResult:
        return CompletionResult(values=[])


async def answers(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says("done")


def shelf(**work: Work) -> Source:
    return Source(name="shelf", backend=Shelf(work or {"one": answers, "two": answers}))


def error(answer: Answer) -> tuple[int, int]:
    return answer.status, answer.json["error"]["code"]


async def ask(pair: Pair, era: str, method: str, params: dict[str, Any]) -> Answer:
    """The same request, outside of any session, in either era."""
    if era == MODERN:
        return await pair.modern(method, params)
    return await pair.legacy(method, params, version=era)


ERAS = pytest.mark.parametrize("era", [MODERN, LEGACY])


# Python answers with a result that has isError, in both eras.
@ERAS
async def test_an_unknown_tool_is_an_error_of_the_protocol(era: str) -> None:
    answer = await ask(house(shelf()).pair, era, "tools/call", {"name": "nothing", "arguments": {}})
    assert answer.json["error"]["code"] == -32602
    assert "result" not in answer.json


# Python: -32603, as if it were the server's fault.
@ERAS
async def test_an_unknown_prompt_is_the_callers_mistake(era: str) -> None:
    answer = await ask(house(shelf()).pair, era, "prompts/get", {"name": "nothing"})
    assert answer.json["error"]["code"] == -32602


# Both: -32602 in the era whose specification says -32002.
@pytest.mark.parametrize(("era", "code"), [(MODERN, -32602), (LEGACY, -32002), ("2024-11-05", -32002)])
@pytest.mark.parametrize("uri", ["test://nothing", "test://numbers/7"])
async def test_a_resource_that_is_not_there_has_the_code_of_its_era(era: str, code: int, uri: str) -> None:
    answer = await ask(house(shelf()).pair, era, "resources/read", {"uri": uri})
    assert answer.json["error"]["code"] == code
    assert answer.json["error"]["data"]["uri"] == uri


# Both: any cursor is taken for the beginning.
@ERAS
@pytest.mark.parametrize(
    "method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
)
async def test_a_cursor_that_was_never_given_out_is_refused(era: str, method: str) -> None:
    answer = await ask(house(shelf()).pair, era, method, {"cursor": "made up"})
    assert answer.json["error"]["code"] == -32602


async def test_a_cursor_of_one_list_is_none_of_another() -> None:
    pair = house(shelf(), page_size=1).pair
    cursor = (await pair.modern("tools/list")).json["result"]["nextCursor"]
    assert (await pair.modern("tools/list", {"cursor": cursor})).json["result"]["tools"][0]["name"] == "two"
    assert (await pair.modern("prompts/list", {"cursor": cursor})).json["error"]["code"] == -32602


# Python sends elicitation/create to whoever calls.
async def test_a_client_that_cannot_be_asked_is_not_asked() -> None:
    async with living(agent(asks=asks)) as made:
        silent = await talk(made.pair, capabilities={"sampling": {}})
        answer = await silent.ask("tools/call", {"name": "asks", "arguments": {}})
        assert b"elicitation/create" not in answer.body
        assert "error" in answer.json or answer.json["result"]["isError"] is True

    answer = await house(agent(asks=asks)).pair.modern("tools/call", {"name": "asks", "arguments": {}})
    assert error(answer) == (400, -32021)
    assert answer.json["error"]["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


# Python refuses it.
async def test_an_array_is_answered_in_the_revision_that_has_arrays() -> None:
    pings = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (1, 2)]
    async with living(shelf()) as made:
        old = await talk(made.pair, version="2025-03-26")
        answer = await old.say(pings)
        assert sorted(one["id"] for one in answer.json) == [1, 2]


# TypeScript takes it.
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", LEGACY])
async def test_an_array_is_refused_in_a_session_of_a_revision_without(version: str) -> None:
    async with living(shelf()) as made:
        session = await talk(made.pair, version=version)
        answer = await session.say([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        assert error(answer) == (400, -32600)


async def test_an_array_is_refused_in_the_stateless_era() -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = JSON | {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    assert error(await house(shelf()).pair.request(body=encode([listing]), headers=headers)) == (400, -32600)


# Python: -32600 "Missing session ID", which a client of both eras takes for a server of the old one.
@pytest.mark.requirement("http.version-header")
async def test_a_stateless_request_without_its_version_header_is_a_mismatch() -> None:
    body, headers = modern("tools/list")
    del headers["mcp-protocol-version"]
    for made in (house(shelf()), house(shelf(), sessions=Sessions())):
        assert error(await made.pair.request(body=body, headers=headers)) == (400, -32020)


# Python makes a session for it.
@pytest.mark.requirement("legacy.no-idle-stream")
@pytest.mark.requirement("session.only-initialize")
@pytest.mark.parametrize("headers", [{}, {"mcp-protocol-version": LEGACY}])
async def test_a_bare_get_begins_no_session(headers: dict[str, str]) -> None:
    async with living(shelf()) as made:
        answer = await made.pair.request("GET", headers={"accept": "text/event-stream"} | headers)
        assert answer.status == 405
        assert "mcp-session-id" not in answer.headers
        assert made.sessions.count() == 0


# Others leave sessions behind that were never agreed on.
@pytest.mark.requirement("session.only-initialize")
@pytest.mark.parametrize("method", ["tools/list", "ping", "nonsense"])
async def test_a_request_without_a_handshake_begins_no_session(method: str) -> None:
    async with living(shelf()) as made:
        answer = await made.pair.legacy(method, version=LEGACY)
        assert "mcp-session-id" not in answer.headers
        assert made.sessions.count() == 0


# TypeScript: 400.
@pytest.mark.requirement("http.no-other-verbs")
async def test_a_get_of_the_stateless_era_is_the_wrong_verb() -> None:
    async with living(shelf()) as made:
        headers = {"accept": "text/event-stream", "mcp-protocol-version": MODERN}
        answer = await made.pair.request("GET", headers=headers)
        assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")


# Python: 409, so that a client whose connection was cut waits for the old stream to die.
@pytest.mark.requirement("legacy.two-streams")
async def test_a_second_stream_of_a_session_is_opened() -> None:
    async with living(shelf()) as made:
        session = await talk(made.pair)
        with trio.fail_after(60):
            async with session.listens() as first:
                await first.started.wait()
                async with session.listens() as second:
                    await second.started.wait()
                    assert (first.status, second.status) == (200, 200)


# Python: 421. TypeScript looks at one of the two.
@pytest.mark.requirement("http.origin", era="modern")
@pytest.mark.requirement("http.host", era="modern")
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example.com"},
        {"origin": "http://evil.example.com"},
        {"host": "127.0.0.1:8420", "origin": "http://evil.example.com"},
        {"host": "evil.example.com", "origin": "http://127.0.0.1:8420"},
    ],
)
async def test_a_foreign_host_or_origin_is_forbidden(headers: dict[str, str]) -> None:
    body, own = modern("tools/list")
    answer = await house(shelf()).pair.request(body=body, headers=own | headers)
    assert answer.status == 403


# TypeScript: a page of HTML.
@pytest.mark.parametrize("body", [b"{", b"", b"not json", b'{"jsonrpc": "2.0", "id": 1,}', b"\xff\xfe"])
@pytest.mark.parametrize("version", [None, LEGACY, MODERN])
async def test_what_is_no_json_is_refused_in_json(body: bytes, version: str | None) -> None:
    headers = JSON | ({} if version is None else {"mcp-protocol-version": version})
    answer = await house(shelf()).pair.request(body=body, headers=headers)
    assert error(answer) == (400, -32700)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["jsonrpc"] == "2.0"


# Neither has tasks of either kind.
async def test_tasks_of_2025_are_offered_kept_and_answered() -> None:
    async with with_tasks() as pair:
        session = await talk(pair)
        declared = session.welcome.json["result"]["capabilities"]["tasks"]
        assert declared["requests"] == {"tools": {"call": {}}}
        slow = {"name": "slow", "arguments": {}, "task": {"ttl": 60_000}}
        created = (await session.ask("tools/call", slow)).json["result"]["task"]
        assert created["status"] == "working"
        task = {"taskId": created["taskId"]}
        result = await session.ask("tasks/result", task)
        assert last(result)["result"]["content"][0]["text"] == "done"
        assert (await session.ask("tasks/get", task)).json["result"]["status"] == "completed"


async def test_tasks_of_2026_are_an_extension_that_the_client_has_to_name() -> None:
    async with with_tasks() as pair:
        capabilities = (await pair.modern("server/discover")).json["result"]["capabilities"]
        assert TASKS in capabilities["extensions"]
        assert "tasks" not in capabilities

        slow = {"name": "slow", "arguments": {}}
        refused = await pair.modern("tasks/get", {"taskId": "any"}, mcp_name="any")
        assert error(refused) == (400, -32021)
        assert refused.json["error"]["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}

        able = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}}
        created = (await pair.modern("tools/call", slow | able)).json["result"]
        assert created["resultType"] == "task"
        task_id = created["taskId"]
        with trio.fail_after(60):
            while True:
                state = (await pair.modern("tasks/get", able | {"taskId": task_id}, mcp_name=task_id)).json
                if state["result"]["status"] == "completed":
                    break
        assert state["result"]["result"]["content"][0]["text"] == "done"


def last(answer: Answer) -> Any:
    """The answer itself, be it a document or the last event of a stream."""
    return answer.events[-1] if "event-stream" in answer.headers["content-type"] else answer.json


@asynccontextmanager
async def with_tasks() -> AsyncGenerator[Pair]:
    """A house with one tool that may be a task, and an engine that keeps its tasks in memory."""
    tool = Tool(name="slow", input_schema=ANYTHING, execution=ToolExecution(task_support="optional"))
    engines: list[Tasks] = []
    endpoints: dict[str, Endpoint] = {}
    async with engine(engines, [], endpoints, wasmagent=False) as tasks:
        source = agent(listed={"slow": tool}, slow=answers)
        async with living(source, tasks=tasks) as made, trio.open_nursery() as nursery:
            endpoints["main"] = made.house.endpoint
            await nursery.start(engines[0].run)
            yield made.pair
            nursery.cancel_scope.cancel()
