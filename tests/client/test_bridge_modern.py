"""The stateless era over the bridge: headers, streams that close, subscriptions."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import trio
from bridge_pair import (
    INITIALIZE,
    MODERN_META,
    Answer,
    Host,
    StreamingServer,
    always,
    as_error,
    as_result,
    bridged,
    streams,
)
from fake_server import Response, Seen, as_json

from server.client.bridge_relay import Patience
from server.client.token_file import TokenFile


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("server/discover", {}, None),
        ("tools/list", {}, None),
        ("tools/call", {"name": "echo"}, "echo"),
        ("prompts/get", {"name": "hello"}, "hello"),
        ("resources/read", {"uri": "test://a/1"}, "test://a/1"),
        ("tasks/get", {"taskId": "t-1"}, "t-1"),
        ("tasks/update", {"taskId": "t-1"}, "t-1"),
        ("tasks/cancel", {"taskId": "t-1"}, "t-1"),
        ("tools/call", {"name": "grüße"}, "=?base64?Z3LDvMOfZQ==?="),
        ("tools/call", {"name": " padded"}, "=?base64?IHBhZGRlZA==?="),
        ("tools/call", {"name": 7}, None),
    ],
)
async def test_headers_repeat_what_the_body_says(
    server: StreamingServer, host: Host, method: str, params: dict[str, Any], name: str | None
) -> None:
    host.modern("x", method, params)
    assert (await host.hear()) == {"jsonrpc": "2.0", "id": "x", "result": {"did": method}}
    (seen,) = server.seen
    assert seen.headers["mcp-protocol-version"] == "2026-07-28"
    assert seen.headers["mcp-method"] == method
    assert seen.headers.get("mcp-name") == name
    assert "mcp-session-id" not in seen.headers
    assert seen.headers["accept"] == "application/json, text/event-stream"
    assert seen.message["params"] == {**params, "_meta": MODERN_META}


async def test_the_message_is_sent_byte_by_byte_as_it_came(server: StreamingServer, host: Host) -> None:
    line = b'{ "jsonrpc":"2.0", "id" : 1,"method":"tools/call","params":{"x":1.0e2,"big":123456789012345678901,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}'
    host.put(line + b"\r\n")
    await host.hear()
    assert server.seen[0].body.strip() == line


async def test_both_eras_go_side_by_side(server: StreamingServer, host: Host) -> None:
    host.modern(1, "server/discover")
    await host.hear()
    await host.open_session()
    host.modern(2, "tools/list")
    host.request(3, "tools/list")
    assert sorted([(await host.hear())["id"] for _ in range(2)]) == [2, 3]
    sessions = {
        seen.message["id"]: seen.headers.get("mcp-session-id") for seen in server.requests("tools/list")
    }
    assert sessions == {2: None, 3: "s-1"}


async def test_an_initialize_with_modern_meta_is_no_handshake(server: StreamingServer, host: Host) -> None:
    host.modern(1, "initialize", INITIALIZE)
    await host.hear()
    host.request(2, "ping")
    await host.hear()
    assert server.requests("initialize")[0].headers["mcp-method"] == "initialize"
    assert "mcp-session-id" not in server.requests("ping")[0].headers


@pytest.mark.parametrize("status", [200, 400, 404])
async def test_a_refusal_with_a_json_rpc_body_is_relayed_with_the_id_that_waits(
    server: StreamingServer, host: Host, status: int
) -> None:
    refusal = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "x"}}
    server.methods["tools/list"] = always(as_json({"jsonrpc": "2.0", "id": None, "error": refusal}, status))
    host.modern(1, "tools/list")
    assert await host.hear() == {"jsonrpc": "2.0", "id": 1, "error": refusal}


async def test_progress_comes_before_the_result_and_in_order(server: StreamingServer, host: Host) -> None:
    opened = streams(server, "tools/call")
    host.modern(1, "tools/call", {"name": "slow"})
    await server.until(lambda: bool(server.seen))
    for number in range(3):
        progress = {"progressToken": 1, "progress": number}
        await opened[0].event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        assert (await host.hear())["params"] == progress
    await opened[0].event({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (await host.hear())["id"] == 1
    await opened[0].left.wait()  # the answer is the end, whether the server closes or not


async def test_cancelling_closes_the_stream_and_nothing_more_is_written(
    server: StreamingServer, host: Host
) -> None:
    opened = streams(server, "tools/call")
    host.modern(1, "tools/call", {"name": "slow"})
    host.modern("1", "tools/call", {"name": "slow"})  # another id altogether
    await server.until(lambda: len(server.seen) == 2)
    which = {seen.message["id"]: stream for seen, stream in zip(server.seen, opened, strict=True)}
    host.cancel(1)
    with trio.fail_after(60):
        await which[1].left.wait()
    assert not which["1"].left.is_set()
    await which["1"].event({"jsonrpc": "2.0", "id": "1", "result": {}})
    assert (await host.hear())["id"] == "1"
    host.cancel("1")  # too late, and nobody's business
    host.cancel("unheard of")
    host.notify("notifications/cancelled")
    host.modern(1, "tools/list")  # the id is free again
    assert (await host.hear())["result"] == {"did": "tools/list"}
    assert server.requests("notifications/cancelled") == []
    assert host.nothing_more()
    assert host.said == []


async def test_a_request_cancelled_before_it_was_sent_never_is(server: StreamingServer, host: Host) -> None:
    host.send(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "_meta": MODERN_META}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": MODERN_META}},
    )
    assert (await host.hear())["id"] == 2
    assert server.requests("tools/call") == []


async def test_a_subscription_stays_open_and_its_end_is_told_as_stdio_wants(
    server: StreamingServer, host: Host
) -> None:
    opened = streams(server, "subscriptions/listen")
    host.modern(0, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await server.until(lambda: bool(server.seen))
    meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": 0}}
    for method in ("subscriptions/acknowledged", "tools/list_changed"):
        note = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": meta}
        await opened[0].event(note)
        assert await host.hear() == note
    await opened[0].event({"jsonrpc": "2.0", "id": 0, "result": {"resultType": "complete", **meta}})
    assert (await host.hear())["result"]["resultType"] == "complete"
    ended = await host.hear()
    assert (ended["method"], ended["params"]["requestId"]) == ("notifications/cancelled", 0)


async def test_a_subscription_that_breaks_off_is_an_error(server: StreamingServer, host: Host) -> None:
    opened = streams(server, "subscriptions/listen")
    host.modern(0, "subscriptions/listen", {"notifications": {}})
    await server.until(lambda: bool(server.seen))
    opened[0].cut()
    assert (await host.error())[:2] == (0, -32603)


async def test_a_subscription_does_not_hold_up_the_end(server: StreamingServer, file: TokenFile) -> None:
    opened = streams(server, "subscriptions/listen")
    async with bridged(server.url, file, patience=Patience(drain_seconds=3600)) as host:
        host.modern(0, "subscriptions/listen", {"notifications": {}})
        await server.until(lambda: bool(server.seen))
    await opened[0].left.wait()
    assert host.nothing_more()


class Tools:
    """A server that wants the argument in a header, and lists its tools on two pages."""

    def __init__(self, server: StreamingServer) -> None:
        self.header = "Region"
        self.lists = 0
        server.methods["tools/list"] = self.list
        server.methods["tools/call"] = self.call

    async def list(self, request: Seen) -> Answer:
        self.lists += 1
        assert request.headers["mcp-protocol-version"] == "2026-07-28"
        assert "progressToken" not in request.message["params"]["_meta"]
        if "cursor" not in request.message["params"]:
            return as_result(request, {"tools": [{"name": "other", "inputSchema": {}}], "nextCursor": ""})
        where = {"type": "string", "x-mcp-header": self.header}
        schema = {"type": "object", "properties": {"where": where}}
        return as_result(request, {"tools": [{"name": "region", "inputSchema": schema}]})

    async def call(self, request: Seen) -> Answer:
        given = request.headers.get(f"mcp-param-{self.header.lower()}", "")
        if given.startswith("=?base64?"):
            given = base64.b64decode(given.removeprefix("=?base64?").removesuffix("?=")).decode()
        if given != request.message["params"]["arguments"]["where"]:
            return as_error(request, -32020, 400)
        return as_result(request, {"content": []})


@pytest.mark.parametrize("where", ["eu", "zürich"])
async def test_an_argument_goes_into_a_header_once_its_schema_passed_by(
    server: StreamingServer, host: Host, where: str
) -> None:
    tools = Tools(server)
    for number, params in enumerate(({}, {"cursor": ""})):
        host.modern(number, "tools/list", params)
        assert "result" in await host.hear()
    host.modern(2, "tools/call", {"name": "region", "arguments": {"where": where}})
    assert "result" in await host.hear()
    assert len(server.requests("tools/call")) == 1
    assert tools.lists == 2


async def test_an_unknown_schema_is_fetched_when_the_server_misses_a_header_and_the_call_tried_once_more(
    server: StreamingServer, host: Host
) -> None:
    tools = Tools(server)
    meta = {**MODERN_META, "progressToken": 4}
    host.request(2, "tools/call", {"name": "region", "arguments": {"where": "eu"}, "_meta": meta})
    assert "result" in await host.hear()
    assert len(server.requests("tools/call")) == 2
    assert tools.lists == 2
    tools.header = "Area"  # the tool changed since
    host.modern(3, "tools/call", {"name": "region", "arguments": {"where": "eu"}})
    assert "result" in await host.hear()
    assert len(server.requests("tools/call")) == 4
    assert host.nothing_more()


async def test_a_refusal_that_no_schema_explains_is_relayed(server: StreamingServer, host: Host) -> None:
    tools = Tools(server)

    async def refuse(request: Seen) -> Answer:
        return as_error(request, -32020, 400)

    server.methods["tools/call"] = refuse
    host.modern(2, "tools/call", {"name": "other", "arguments": {}})
    assert (await host.error())[:2] == (2, -32020)
    assert len(server.requests("tools/call")) == 1
    assert tools.lists == 2
    server.methods["tools/list"] = always(Response(500))
    host.modern(3, "tools/call", {"name": "other", "arguments": {}})
    assert (await host.error())[:2] == (3, -32020)
    assert host.nothing_more()


async def test_a_modern_notification_is_passed_on_without_an_answer(
    server: StreamingServer, host: Host
) -> None:
    host.notify("notifications/x", {"_meta": MODERN_META})
    await server.until(lambda: bool(server.seen))
    assert server.seen[0].headers["mcp-method"] == "notifications/x"
    host.modern(1, "tools/list")
    await host.hear()
    assert host.said == []
