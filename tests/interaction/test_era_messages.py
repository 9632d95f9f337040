"""Which era a message is of, and JSON-RPC itself: the same on every wire."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ProtocolFailure, ToolCall
from server.mcp.call_outlet import Outlet
from server.mcp.errors import WIRE
from server.mcp.result_encoding import ToolResult
from tests.interaction.agents import agent, says
from tests.interaction.clients import Client
from tests.interaction.pipe_client import PipeClient
from tests.interaction.web_client import WebClient
from tests.interaction.wires import client
from tests.pair import INTRODUCTION, META, MODERN, encode, request
from tests.requirements import Cell

PREFIX = "io.modelcontextprotocol/"
SUPPORTED = {"tools", "resources", "prompts", "completions", "logging"}


async def other_era(one: Client) -> Any:
    """One request of the era that the client is not of."""
    if one.modern:
        if isinstance(one, PipeClient):
            params = {**INTRODUCTION, "protocolVersion": "2025-11-25"}
            assert (await one.raw(encode(request("initialize", params))))["result"]
        return await one.raw(encode(request("ping", request_id=2)))
    if isinstance(one, WebClient):
        return (await one.made.pair.modern("server/discover")).json
    return await one.raw(encode(request("server/discover", {"_meta": META})))


# ── which era ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("era.stands-alone")
@pytest.mark.requirement("era.side-by-side")
async def test_requests_of_both_eras_are_answered_each_by_its_own_rules(cell: Cell) -> None:
    async with client(cell) as one:
        before = await one.ask("tools/list")
        if not isinstance(one, WebClient) or not one.modern:
            assert "result" in await other_era(one)
        else:
            assert (await one.made.pair.legacy("ping")).json["result"] == {}
        after = await one.ask("tools/list")
        assert before.result == after.result
        assert ("resultType" in after.result) is one.modern


@pytest.mark.requirement("era.initialize")
@pytest.mark.requirement("legacy.result")
async def test_the_handshake_says_what_was_agreed_on(cell: Cell) -> None:
    async with client(cell) as one:
        assert one.welcome["protocolVersion"] == cell.version
        assert one.welcome["serverInfo"]["name"] == "house"
        assert one.welcome["instructions"] == "Knock first."
        assert one.welcome["capabilities"].keys() == SUPPORTED


@pytest.mark.requirement("legacy.counter")
@pytest.mark.parametrize("params", [{"protocolVersion": MODERN}, {"protocolVersion": "1999-01-01"}])
async def test_a_version_without_a_handshake_is_countered_with_our_latest_that_has(
    params: Any, cell: Cell
) -> None:
    async with client(cell, handshake=False) as one:
        reply = await one.ask("initialize", params)
        assert reply.result["protocolVersion"] == "2025-11-25" and reply.status in (200, None)


@pytest.mark.requirement("legacy.introduced")
@pytest.mark.parametrize("left_out", ["protocolVersion", "capabilities", "clientInfo"])
async def test_a_handshake_in_which_something_is_left_out_is_refused_and_may_be_made_again(
    left_out: str, cell: Cell
) -> None:
    whole = {**INTRODUCTION, "protocolVersion": cell.version}
    async with client(cell, handshake=False) as one:
        part = {name: value for name, value in whole.items() if name != left_out}
        refused = await one.raw(encode(request("initialize", part, 1)))
        assert refused["error"]["code"] == -32602 and left_out in refused["error"]["message"]
        assert refused["id"] == 1
        assert (await one.ask("initialize", whole)).result["protocolVersion"] == cell.version


@pytest.mark.requirement("legacy.nothing-said")
async def test_a_handshake_that_says_nothing_at_all_gets_our_latest(cell: Cell) -> None:
    async with client(cell, handshake=False) as one:
        answered = await one.raw(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { }}')
        assert answered["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.requirement("era.probe-first")
@pytest.mark.requirement("discover.fields")
async def test_discovery_works_before_anything_else(cell: Cell) -> None:
    async with client(cell) as one:
        found = (await one.ask("server/discover")).result
        assert found["supportedVersions"] == [MODERN]
        assert found["capabilities"].keys() == SUPPORTED
        assert found["instructions"] == "Knock first."
        assert isinstance(found["ttlMs"], int) and found["cacheScope"] == "private"
        assert found["_meta"][PREFIX + "serverInfo"]["name"] == "house"


@pytest.mark.requirement("era.initialize-with-meta")
async def test_a_modern_request_to_initialize_is_of_a_method_that_does_not_exist(cell: Cell) -> None:
    async with client(cell) as one:
        reply = await one.ask("initialize", {"protocolVersion": "2025-11-25"})
        assert reply.code == -32601
        assert reply.status in (404, None)


@pytest.mark.requirement("era.before-handshake")
async def test_whoever_forgets_the_handshake_is_told_so_at_once(cell: Cell) -> None:
    async with client(cell, handshake=False) as one:
        for method in ("tools/list", "nonsense", "subscriptions/listen"):
            reply = await one.ask(method)
            assert reply.code in (-32600, -32602) and "initialize" in reply.error["message"]


# ── JSON-RPC ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("rpc.parse-error")
@pytest.mark.requirement("safety.nesting")
@pytest.mark.parametrize("body", [b"{", b"nul", b'{"jsonrpc":"2.0","x":"\xff"}', b"[" * 10_000])
async def test_what_is_not_json_is_a_parse_error_and_the_conversation_goes_on(
    body: bytes, cell: Cell
) -> None:
    async with client(cell) as one:
        answer = await one.raw(body)
        assert answer["error"]["code"] == -32700 and "id" not in answer
        assert (await one.ask("tools/list")).result


@pytest.mark.requirement("rpc.half-characters")
async def test_half_a_character_is_taken_as_one_that_is_missing(cell: Cell) -> None:
    async def repeat(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says(call.arguments["text"])

    async with client(cell, agent(repeat=repeat)) as one:
        assert (await one.call("repeat", {"text": "cut \ud83d"})).text == "cut \ufffd"


@pytest.mark.requirement("rpc.invalid-request")
@pytest.mark.requirement("rpc.id-type")
@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None),
        ({"jsonrpc": "1.0", "id": 7, "method": "ping"}, 7),
        ({"jsonrpc": "2.0", "id": "a"}, "a"),
        (17, None),
    ],
)
async def test_json_that_is_no_message_is_an_invalid_request(
    message: Any, request_id: Any, cell: Cell
) -> None:
    async with client(cell) as one:
        answer = await one.raw(encode(message))
        assert answer["error"]["code"] == -32600
        assert answer.get("id") == request_id


@pytest.mark.requirement("rpc.id-echo")
@pytest.mark.parametrize("request_id", [0, -5, 2**60, "", "7", "é"])
async def test_an_answer_has_the_id_of_its_request_with_its_type(request_id: Any, cell: Cell) -> None:
    async with client(cell) as one:
        for method, params in (("tools/list", {}), ("nonsense", {}), ("tools/call", {"name": "steps"})):
            answer = (await one.ask(method, params, request_id=request_id)).message
            assert answer["id"] == request_id and type(answer["id"]) is type(request_id)


@pytest.mark.requirement("rpc.id-in-use")
async def test_an_id_that_is_in_use_is_not_taken_twice(cell: Cell) -> None:
    go_on = trio.Event()

    async def waits(call: ToolCall, outlet: Outlet) -> ToolResult:
        await go_on.wait()
        return says("done")

    async with client(cell, agent(waits=waits)) as one:
        assert isinstance(one, PipeClient)
        async with one.begins("tools/call", {"name": "waits"}, request_id=5) as first:
            await trio.testing.wait_all_tasks_blocked()
            async with one.begins("tools/call", {"name": "waits"}, request_id=5) as second:
                assert (await second.next())["error"]["code"] == -32600
            go_on.set()
            assert (await first.reply()).text == "done"


@pytest.mark.requirement("rpc.notification")
async def test_a_notification_is_not_answered_whatever_it_says(cell: Cell) -> None:
    async with client(cell) as one:
        for method in (
            "notifications/cancelled",
            "notifications/unheard-of",
            "tools/list",
            "notifications/progress",
        ):
            assert await one.raw(encode({"jsonrpc": "2.0", "method": method, "params": {"x": 1}})) is None
        assert (await one.ask("tools/list")).result


@pytest.mark.requirement("rpc.no-batches")
async def test_an_array_is_refused_where_there_are_none(cell: Cell) -> None:
    async with client(cell) as one:
        answer = await one.raw(encode([request("tools/list", {"_meta": META} if one.modern else {})]))
        assert answer["error"]["code"] == -32600


@pytest.mark.requirement("rpc.batches")
@pytest.mark.requirement("rpc.batch-initialize")
async def test_an_array_is_answered_where_there_are_arrays(cell: Cell) -> None:
    async with client(cell) as one:
        items = [
            request("ping", request_id="a"),
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}},
            request("tools/call", {"name": "plain"}, request_id=2),
            request("initialize", {"protocolVersion": "2025-03-26"}, request_id=3),
        ]
        answers = await one.raw(encode(items))
        assert [(one["id"], one.get("error", {}).get("code")) for one in answers] == [
            ("a", None),
            (2, None),
            (3, -32600),
        ]


@pytest.mark.requirement("rpc.batch-taken")
async def test_an_array_that_asks_nothing_is_not_answered(cell: Cell) -> None:
    async with client(cell) as one:
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
        assert await one.raw(encode([note, {"jsonrpc": "2.0", "id": "server-9", "result": {}}])) is None
        assert (await one.ask("ping")).result == {}


@pytest.mark.requirement("rpc.batch-empty")
@pytest.mark.parametrize("size", [0, 33])
async def test_an_array_of_none_or_too_many_is_refused(size: int, cell: Cell) -> None:
    async with client(cell) as one:
        answer = await one.raw(encode([request("ping", request_id=n) for n in range(size)]))
        assert answer["error"]["code"] == -32600


@pytest.mark.requirement("rpc.codes")
def test_no_code_of_the_modern_era_is_from_where_none_may_be() -> None:
    ours = {row.code for error, row in WIRE.items() if not error.__name__.startswith("Wasm")}
    assert not ours & {-32002, -32042}
    standard = {-32700, *range(-32603, -32599)}
    assert {code for code in ours if -32768 <= code <= -32000} <= standard | {-32020, -32021, -32022}


@pytest.mark.requirement("rpc.author-codes")
@pytest.mark.parametrize(
    ("code", "sent"), [(-32002, -32603), (-32042, -32603), (-31999, -31999), (4711, 4711)]
)
async def test_an_authors_code_is_sent_unless_it_is_reserved(code: int, sent: int, cell: Cell) -> None:
    async def raises(call: ToolCall, outlet: Outlet) -> ToolResult:
        raise ProtocolFailure("so there", code, {"why": "because"})

    async with client(cell, agent(raises=raises)) as one:
        reply = await one.call("raises")
        assert (reply.code, reply.error["data"]) == (sent, {"why": "because"})


@pytest.mark.requirement("rpc.unknown-meta")
@pytest.mark.requirement("safety.not-identity")
@pytest.mark.requirement("meta.client-info")
async def test_what_is_unknown_is_ignored_and_so_is_what_a_client_calls_itself(cell: Cell) -> None:
    async with client(cell) as one:
        for info in ({"name": "root", "version": "1"}, {"name": "other"}, 17):
            meta = {PREFIX + "clientInfo": info, "com.example/own": {"x": []}, "traceparent": "nonsense"}
            reply = await one.ask("tools/list", {"_meta": meta, "unheardOf": [1]})
            assert len(reply.result["tools"]) == 7


@pytest.mark.requirement("rpc.stateless")
async def test_what_one_request_declared_is_forgotten_with_it(cell: Cell) -> None:
    async with client(cell) as one:
        able = {"_meta": {PREFIX + "clientCapabilities": {"elicitation": {}}}}
        assert (await one.call("asks", **able)).result["resultType"] == "input_required"
        assert (await one.call("asks")).code == -32021
