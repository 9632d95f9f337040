"""Arrays, in the one revision that has them (2025-03-26), and how many they may hold."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from server.agents.base.backend import ToolCall
from server.mcp.call_outlet import Outlet
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import USER, agent, house, says
from tests.pair import ACCEPT_BOTH, META, Answer, Pair, encode

HEADERS = {"content-type": "application/json", "accept": ACCEPT_BOTH}


def ping(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "ping"}


async def send(pair: Pair, items: list[Any], **headers: str) -> Answer:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return await pair.request(body=encode(items), headers=HEADERS | more)


@pytest.mark.requirement("rpc.batches", era="2025-03-26", transport="http")
@pytest.mark.requirement("rpc.batch-initialize", era="2025-03-26", transport="http")
async def test_a_batch_is_answered_in_order_with_one_answer_for_each_request() -> None:
    echo = {
        "jsonrpc": "2.0",
        "id": "e",
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "hi"}},
    }
    items = [
        ping(0),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        echo,
        {"jsonrpc": "2.0", "id": 9, "result": {}},
        {"jsonrpc": "2.0", "id": 4, "method": "nonsense"},
        {"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {}},
        {"id": 6},
        17,
        [ping(1)],
        {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": META}},
    ]
    for headers in ({}, {"mcp_protocol_version": "2025-03-26"}):
        answer = await send(house().pair, items, **headers)
        assert answer.status == 200 and answer.headers["content-type"] == "application/json"
        short = [(one.get("id"), one.get("error", {}).get("code", "ok")) for one in answer.json]
        assert short == [
            (0, "ok"),
            ("e", "ok"),
            (4, -32601),
            (5, -32600),
            (6, -32600),
            (None, -32600),
            (None, -32600),
            (7, -32600),
        ]


@pytest.mark.requirement("rpc.batch-taken", era="2025-03-26", transport="http")
async def test_a_batch_that_asks_nothing_is_taken_without_a_word() -> None:
    notes = [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ]
    answer = await send(house().pair, notes)
    assert (answer.status, answer.body) == (202, b"")


@pytest.mark.requirement("rpc.batch-empty", era="2025-03-26", transport="http")
async def test_a_batch_holds_one_to_thirty_two_messages() -> None:
    pair = house().pair
    assert len((await send(pair, [ping(n) for n in range(32)])).json) == 32
    for items in ([], [ping(n) for n in range(33)]):
        answer = await send(pair, items)
        assert (answer.status, answer.json["error"]["code"]) == (400, -32600)


@pytest.mark.requirement("rpc.batch-gone")
async def test_a_batch_in_a_session_that_is_gone_is_not_found() -> None:
    assert (await send(house().pair, [ping(1)], mcp_session_id="gone")).status == 404


async def test_a_client_that_takes_only_event_streams_gets_the_whole_array_as_one_event() -> None:
    answer = await send(house().pair, [ping(1), ping(2)], accept="text/event-stream")
    assert [one["id"] for one in answer.events[0]] == [1, 2]


async def test_the_calls_of_a_batch_run_side_by_side() -> None:
    met = [trio.Event(), trio.Event()]

    async def left(call: ToolCall, outlet: Outlet) -> ToolResult:
        met[0].set()
        await met[1].wait()
        return says("left")

    async def right(call: ToolCall, outlet: Outlet) -> ToolResult:
        met[1].set()
        await met[0].wait()
        return says(call.call_id)

    calls = [
        {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": {"name": name}}
        for name in ("left", "right")
    ]
    answer = await send(house(agent(left=left, right=right)).pair, calls)
    assert [one["result"]["content"][0]["text"] for one in answer.json] == ["left", "request-1.1"]


async def test_a_call_beyond_the_scopes_fails_alone() -> None:
    async def deploy(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says("deployed")

    pair = house(
        agent(terms=CallTerms(scopes=frozenset({"mcp:deploy"})), deploy=deploy), tokens={"t": USER}
    ).pair
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "deploy"}}
    answer = await send(pair, [call, ping(2)], authorization="Bearer t")
    assert answer.json[0]["error"]["code"] == 1403 and "mcp:deploy" in answer.json[0]["error"]["message"]
    assert answer.json[1]["result"] == {}
