"""What HTTP alone has, in both eras: headers that repeat the body, forms of answers, scopes."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from server.transport.http.sse_2024 import SseEndpoint
from tests.interaction.agents import USER, agent, says
from tests.interaction.clients import Client
from tests.interaction.everything import everything, plain, task_tool
from tests.interaction.web_client import WebClient
from tests.interaction.wires import client
from tests.pair import ACCEPT_BOTH, Answer, messages
from tests.requirements import Cell
from tests.served import asgi

TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
STEPS = {"name": "steps", "_meta": {"progressToken": 1}}


async def post(one: Client, method: str, params: Any = None, **headers: str | None) -> Answer:
    """A request with some headers changed; None leaves one out."""
    assert isinstance(one, WebClient)
    body, own = one._build(method, params, 1)
    all_headers: dict[str, str | None] = {**own, **one._own}
    all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in all_headers.items() if value is not None}
    return await one.made.pair.request(body=body, headers=sent)


# ── headers that repeat the body ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("headers.name")
@pytest.mark.requirement("headers.task-name")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "plain"}),
        ("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
        ("resources/read", {"uri": "test://one"}),
        ("tasks/get", {"taskId": "A" * 43}),
        ("tasks/update", {"taskId": "A" * 43, "inputResponses": {}}),
        ("tasks/cancel", {"taskId": "A" * 43}),
    ],
)
async def test_whatever_names_something_says_its_name_in_a_header(
    method: str, params: dict[str, Any], cell: Cell
) -> None:
    source = everything(listed=task_tool("slow", "optional"), slow=plain)
    async with client(cell, source, capabilities=TASKS, tasks=True) as one:
        for name in (None, "", "other"):
            answer = await post(one, method, params, mcp_name=name)
            assert (answer.status, answer.json["error"]["code"]) == (400, -32020)
        right = await post(one, method, params)
        assert right.status == 200
        assert ("result" in right.json) is not method.startswith("tasks/")  # there is no such task


@pytest.mark.requirement("headers.method")
@pytest.mark.requirement("http.version-header")
@pytest.mark.parametrize("header", ["mcp_method", "mcp_protocol_version"])
async def test_a_list_needs_its_headers_too(header: str, cell: Cell) -> None:
    async with client(cell) as one:
        for value in (None, "", "other", "TOOLS/LIST", "2025-11-25"):
            answer = await post(one, "tools/list", **{header: value})
            assert (answer.status, answer.json["error"]["code"]) == (400, -32020)


# ── forms of answers ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("http.accept")
@pytest.mark.requirement("http.json-or-stream")
@pytest.mark.requirement("http.stream-headers")
@pytest.mark.requirement("http.version-on-answers")
async def test_a_client_gets_what_it_takes(cell: Cell) -> None:
    async with client(cell) as one:
        json, stream = "application/json", "text/event-stream"
        for method, params, accept, form in (
            ("tools/list", {}, ACCEPT_BOTH, json),
            ("tools/list", {}, None, json),
            ("tools/list", {}, json, json),
            ("tools/list", {}, stream, stream),
            ("tools/call", STEPS, ACCEPT_BOTH, stream),
            ("tools/call", STEPS, json, json),
            ("tools/call", STEPS, stream, stream),
            ("tools/list", {}, "text/html", None),
        ):
            answer = await post(one, method, params, accept=accept)
            assert answer.headers["mcp-protocol-version"] == cell.version
            assert answer.status == (200 if form else 406)
            assert form is None or answer.headers["content-type"] == form
            last = messages(answer.body)[-1] if form == stream else answer.json
            assert ("result" in last) is (form is not None)
            if form == stream:
                assert answer.headers["x-accel-buffering"] == "no"
                assert answer.headers["cache-control"] == "no-cache, no-transform"


@pytest.mark.requirement("http.no-event-ids")
async def test_events_of_a_modern_stream_have_no_ids(cell: Cell) -> None:
    async with client(cell) as one:
        answer = await post(one, "tools/call", STEPS)
        assert len(messages(answer.body)) == 4
        assert b"\nid:" not in answer.body and not answer.body.startswith(b"id:")


@pytest.mark.requirement("http.content-type")
@pytest.mark.requirement("safety.body", transport="http")
async def test_what_is_no_json_or_too_much_of_it_is_refused(cell: Cell) -> None:
    async with client(cell, max_body_bytes=4096) as one:
        assert (await post(one, "tools/list", content_type="text/plain")).status == 415
        assert (await post(one, "tools/list", content_type=None)).status == 415
        squeezed = await post(one, "tools/list", content_encoding="gzip")
        assert (squeezed.status, squeezed.headers["accept-encoding"]) == (415, "identity")
        assert (await post(one, "tools/list", content_encoding="Identity")).status == 200
        assert (await post(one, "tools/list", {"x": "y" * 5000})).status == 413
        assert (await post(one, "tools/list", content_type="application/json; charset=utf-8")).status == 200


@pytest.mark.requirement("http.handler-errors")
@pytest.mark.requirement("http.error-in-stream")
async def test_what_a_request_asked_for_in_vain_is_said_with_200(cell: Cell) -> None:
    async with client(cell, everything(gives_up=gives_up)) as one:
        for method, params in (
            ("tools/call", {"name": "nothing"}),
            ("tools/call", {"name": "crashes"}),
            ("prompts/get", {"name": "nothing"}),
            ("resources/read", {"uri": "test://nothing"}),
            ("tools/list", {"cursor": "made up"}),
        ):
            answer = await post(one, method, params)
            assert answer.status == 200 and "error" in answer.json
        answer = await post(one, "tools/call", {"name": "gives_up", "_meta": {"progressToken": 1}})
        assert answer.status == 200
        assert (
            "error" in messages(answer.body)[-1]
            and messages(answer.body)[-2]["method"] == "notifications/progress"
        )


async def gives_up(call: ToolCall, outlet: Outlet) -> ToolResult:
    await outlet.emit(Progress(progress=1))
    raise RuntimeError("mid-way")


# ── who may ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("auth.every-request")
@pytest.mark.requirement("auth.challenge")
async def test_a_token_that_is_good_no_more_is_asked_for_again(cell: Cell) -> None:
    async with client(cell) as one:
        assert (await post(one, "tools/list")).status == 200
        assert one.made.tokens is not None
        one.made.tokens.clear()
        answer = await post(one, "tools/list")
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer ")


@pytest.mark.requirement("auth.hierarchy")
@pytest.mark.requirement("tools.scope")
@pytest.mark.parametrize(("scopes", "status"), [({"mcp"}, 200), ({"mcp:deploy"}, 200), ({"mcp:tools"}, 403)])
async def test_a_broader_scope_implies_a_narrower_one(scopes: set[str], status: int, cell: Cell) -> None:
    who = USER.__class__(kind=USER.kind, subject="u", client_id="c", grant_id="g", scopes=frozenset(scopes))
    source = agent(terms=CallTerms(scopes=frozenset({"mcp:deploy"})), deploy=plain)
    async with client(cell, source, tokens={"t": who}) as one:
        (tool,) = (await one.ask("tools/list")).result["tools"]
        assert tool["name"] == "deploy"
        assert (await post(one, "tools/call", {"name": "deploy"})).status == status


@pytest.mark.requirement("auth.no-passthrough")
async def test_a_back_end_sees_who_calls_and_no_token(cell: Cell) -> None:
    seen: list[ToolCall] = []

    async def look(call: ToolCall, outlet: Outlet) -> ToolResult:
        seen.append(call)
        return says("seen")

    async with client(cell, agent(look=look), tokens={"t": USER, "Bearer t": USER}) as one:
        await one.call("look")
        assert seen[0].subject == "user-1" and "Bearer" not in repr(seen[0])


@pytest.mark.requirement("auth.cors")
async def test_a_page_may_read_what_it_is_told(cell: Cell) -> None:
    async with client(cell) as one:
        answer = await post(one, "tools/list", origin="http://127.0.0.1:8420")
        assert answer.headers["access-control-allow-origin"] == "http://127.0.0.1:8420"
        exposed = answer.headers["access-control-expose-headers"].lower()
        assert {"www-authenticate", "mcp-session-id", "mcp-protocol-version"} <= set(exposed.split(", "))
        assert (await post(one, "tools/list", origin="http://evil.example")).status == 403


@pytest.mark.requirement("http.keep-alive")
async def test_a_silent_call_shows_signs_of_life(cell: Cell, autojump_clock: trio.testing.MockClock) -> None:
    async def silent(call: ToolCall, outlet: Outlet) -> ToolResult:
        await trio.sleep(80)
        return says("at last")

    async with client(cell, agent(silent=silent)) as one:
        assert isinstance(one, WebClient)
        body, headers = one._build("tools/call", {"name": "silent"}, 1)
        answer = await one.made.pair.request(body=body, headers=headers | one._own, seconds=100)
        assert answer.body.count(b": keep-alive\n\n") == 3


@pytest.mark.requirement("sse2024.origin")
@pytest.mark.parametrize(("verb", "path"), [("GET", "/mcp/sse"), ("POST", "/mcp/messages")])
async def test_the_old_transport_has_the_same_threshold(verb: str, path: str, cell: Cell) -> None:
    async with client(cell, handshake=False) as one:
        mcp, sessions = one.made.mcp, one.made.endpoint.sessions
        assert sessions is not None
        old = SseEndpoint(one.made.endpoint, mcp.threshold, mcp.crew, sessions=sessions)
        one.made.pair.app = asgi(old.listening if verb == "GET" else old.posting)
        for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"host": "evil.example"}):
            with trio.fail_after(60):
                async with one.made.pair.open(verb, path=path, headers=headers) as exchange:
                    assert (await exchange.answer()).status == 403


@pytest.mark.requirement("http.fault")
async def test_a_fault_of_our_own_is_500_and_tells_nothing_of_itself(cell: Cell) -> None:
    async def broken(shown: object) -> object:
        raise OSError("disk on fire")

    async with client(cell) as one:
        one.made.mcp.threshold.doorkeeper.authenticate = broken  # type: ignore[attr-defined]
        answer = await post(one, "tools/list")
        assert (answer.status, answer.json["error"]["code"]) == (500, -32603)
        assert b"disk" not in answer.body and b"request-" in answer.body
