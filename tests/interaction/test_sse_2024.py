"""The transport with two endpoints: a stream that says where to POST, and answers that come on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.catalog import Source
from server.calls.sessions.sessions import Sessions
from server.transport.http.handler import Handler
from server.transport.http.sse_2024 import MAX_PER_CALLER, SseEndpoint
from tests.interaction.agents import USER, agent
from tests.interaction.session_house import PROGRESS, Living, Steps, asks, living
from tests.pair import (
    ACCEPT_BOTH,
    MODERN,
    Answer,
    Exchange,
    Frame,
    Pair,
    encode,
    modern,
    next_frame,
    next_message,
    request,
)
from tests.served import asgi

OTHER = Principal(kind=PrincipalKind.USER, subject="user-2", client_id="client-1")
TOKENS = {"a": USER, "b": OTHER}
SENT = {"content-type": "application/json", "accept": ACCEPT_BOTH}
HELLO = {"protocolVersion": "2024-11-05", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "old"}}


@dataclass
class Old:
    """The endpoint and its two addresses."""

    living: Living
    endpoint: SseEndpoint
    pair: Pair

    def stream(self, **headers: str) -> Any:
        own = {"accept": "text/event-stream"} | headers
        return self.pair.open("GET", path="/mcp/sse", headers=own)

    async def post(self, address: str, message: Any, **headers: str) -> Answer:
        path, _, query = address.partition("?")
        body = message if isinstance(message, bytes) else encode(message)
        with trio.fail_after(60):
            async with self.pair.open(body=body, path=path, query=query, headers=SENT | headers) as exchange:
                return await exchange.answer()


@asynccontextmanager
async def old(*sources: Source, **how: Any) -> AsyncGenerator[Old]:
    async with living(*sources, **how) as made:
        mcp = made.house.mcp
        endpoint = SseEndpoint(made.house.endpoint, mcp.threshold, mcp.crew, sessions=made.sessions)

        def route(scope: Any) -> Handler:
            return (endpoint.listening if scope["path"].endswith("/sse") else endpoint.posting)(scope)

        yield Old(made, endpoint, Pair(app=asgi(route)))


async def address_of(stream: Exchange) -> str:
    first = await next_frame(stream)
    assert first.event == "endpoint" and first.data is not None
    return first.data


async def hello(made: Old, stream: Exchange, **headers: str) -> str:
    address = await address_of(stream)
    assert (await made.post(address, request("initialize", HELLO), **headers)).status == 202
    assert (await next_message(stream))["result"]["protocolVersion"] == "2024-11-05"
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await made.post(address, note, **headers)).status == 202
    return address


@pytest.mark.requirement("sse2024.endpoint")
@pytest.mark.requirement("sse2024.messages")
async def test_a_client_is_told_where_to_post_and_answered_on_its_stream() -> None:
    async with old() as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await hello(made, stream)
                assert address.startswith("/mcp/messages?session=") and len(address) > 50
                assert stream.headers["content-type"] == "text/event-stream"
                call = request("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, "e")
                taken = await made.post(address, call)
                assert (taken.status, taken.body) == (202, b"")
                frame: Frame = await next_frame(stream)
                assert frame.event == "message" and frame.id is None
                assert frame.json["id"] == "e" and frame.json["result"]["content"][0]["text"] == "hi"


async def test_progress_and_questions_and_changes_come_on_the_stream_too() -> None:
    steps = Steps()
    async with old(agent(work=steps, asks=asks)) as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await address_of(stream)
                # The handshake of a newer revision, as newer clients send it here, too.
                params = HELLO | {"protocolVersion": "2025-06-18"}
                await made.post(address, request("initialize", params))
                assert (await next_message(stream))["result"]["protocolVersion"] == "2025-06-18"
                await made.post(address, {"jsonrpc": "2.0", "method": "notifications/initialized"})
                await made.post(address, request("tools/call", {"name": "work", **PROGRESS}, 2))
                steps.report()
                assert (await next_message(stream))["params"]["progress"] == 1
                steps.finish()
                assert (await next_message(stream))["id"] == 2
                await made.post(address, request("tools/call", {"name": "asks"}, 3))
                question = await next_message(stream)
                reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
                assert (await made.post(address, reply)).status == 202
                assert "decline" in str(await next_message(stream))
                made.living.sessions.publish("tools")
                assert (await next_message(stream))["method"] == "notifications/tools/list_changed"


async def test_a_request_can_be_cancelled() -> None:
    steps = Steps()
    async with old(agent(work=steps)) as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await hello(made, stream)
                await made.post(address, request("tools/call", {"name": "work"}, 2))
                await steps.begun.wait()
                note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
                await made.post(address, note)
                await steps.ended.wait()
                await made.post(address, request("ping", None, 3))
                assert (await next_message(stream))["id"] == 3, "nothing is answered for the other"
    assert steps.how == "cancelled"


async def test_the_end_of_the_stream_is_the_end_of_the_session() -> None:
    steps = Steps()
    async with old(agent(work=steps)) as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await hello(made, stream)
                await made.post(address, request("tools/call", {"name": "work"}, 2))
                await steps.begun.wait()
                stream.hang_up()
                await stream.ended.wait()
            await steps.ended.wait()
            assert steps.how == "cancelled"
            assert (await made.post(address, request("ping"))).status == 404
        assert made.living.sessions.count() == 0 and made.endpoint.count() == 0


async def test_the_end_of_the_session_is_the_end_of_nothing_else_when_the_server_goes_away() -> None:
    async with old() as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                await hello(made, stream)
                made.pair.draining.set()
                await stream.answer()
        assert made.living.sessions.count() == 0


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_stream_stays_for_the_answers_that_are_owed_while_the_server_waits_for_calls(
    in_time: bool,
) -> None:
    steps = Steps()
    async with old(agent(work=steps)) as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await hello(made, stream)
                await made.post(address, request("tools/call", {"name": "work"}, 2))
                await steps.begun.wait()
                made.pair.draining.set()
                await trio.testing.wait_all_tasks_blocked()
                if in_time:
                    steps.finish()
                else:
                    made.living.sessions.cut_off()
                last = await next_message(stream)
                assert last["id"] == 2
                assert ("result" in last) == in_time
                assert await stream.read() == b"", "and ends with the last of them"


@pytest.mark.requirement("sse2024.bound")
async def test_an_address_is_of_use_to_its_caller_only() -> None:
    async with old(tokens=TOKENS) as made:
        for verb in ("GET", "POST"):
            assert (await made.pair.request(verb)).status == 401
        mine = {"authorization": "Bearer a"}
        with trio.fail_after(60):
            async with made.stream(**mine) as stream:
                address = await hello(made, stream, **mine)
                assert (await made.post(address, request("ping"))).status == 401
                assert (await made.post(address, request("ping"), authorization="Bearer b")).status == 404
                for guess in ("", "?session=", "?session=guessed", "?x=" + "&a" * 999, "?session"):
                    assert (await made.post(f"/mcp/messages{guess}", request("ping"), **mine)).status == 404
                for path in (address, "/mcp/sse"):
                    refused = await made.post(path, request("ping"), origin="http://evil.example", **mine)
                    assert refused.status == 403


async def test_a_caller_has_only_so_many_streams() -> None:
    async with old(tokens=TOKENS) as made:
        mine = {"authorization": "Bearer a"}
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def hold() -> None:
                    async with made.stream(**mine):
                        await trio.sleep_forever()

                for _ in range(MAX_PER_CALLER):
                    nursery.start_soon(hold)
                await trio.testing.wait_all_tasks_blocked()
                async with made.stream(**mine) as stream:
                    assert (await stream.answer()).status == 429
                async with made.stream(authorization="Bearer b") as stream:
                    await address_of(stream)
                nursery.cancel_scope.cancel()
        assert made.endpoint.count() == 0


async def test_what_is_no_message_is_refused_and_what_is_out_of_place_is_told_so() -> None:
    async with old() as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await address_of(stream)
                for junk in (b"{", b"[]", b"17"):
                    assert (await made.post(address, junk)).status == 400
                assert (await made.post(address, request("tools/list"))).status == 202
                assert "initialize" in (await next_message(stream))["error"]["message"]
                body, _ = modern("tools/list")
                assert (await made.post(address, body, **{"mcp-protocol-version": MODERN})).status == 202
                assert (await next_message(stream))["error"]["code"] == -32600
                assert made.living.sessions.count() == 0
                assert (await made.post(address, request("initialize", HELLO))).status == 202
                assert "result" in await next_message(stream)
                assert (await made.post(address, request("initialize", HELLO))).status == 202
                assert (await next_message(stream))["error"]["code"] == -32600
                assert (await made.post(address, request("nonsense"))).status == 202
                assert (await next_message(stream))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("verb", "path"), [("POST", "/mcp/sse"), ("GET", "/mcp/messages"), ("PUT", "/mcp/sse")]
)
async def test_each_address_has_one_verb(verb: str, path: str) -> None:
    async with old() as made:
        async with made.pair.open(verb, path=path) as exchange:
            answer = await exchange.answer()
        assert answer.status == 405 and answer.headers["allow"]


async def test_a_caller_with_no_session_to_spare_is_told_so() -> None:
    async with old(sessions=Sessions(per_caller=1)) as made:
        with trio.fail_after(60):
            async with made.stream() as first:
                await hello(made, first)
                async with made.stream() as second:
                    address = await address_of(second)
                    assert (await made.post(address, request("initialize", HELLO))).status == 202
                    assert (await next_message(second))["error"]["code"] == 1430
                    first.hang_up()
                    await first.ended.wait()
                    assert (await made.post(address, request("initialize", HELLO))).status == 202
                    assert "result" in await next_message(second)


async def test_a_message_whose_stream_ends_while_it_comes_begins_nothing() -> None:
    async with old() as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await address_of(stream)
                path, _, query = address.partition("?")
                inner, more = made.pair.app, trio.Event()

                async def slowly(scope: Any, receive: Any, send: Any) -> None:
                    async def slow_receive() -> Any:
                        await more.wait()
                        return await receive()

                    await inner(scope, slow_receive, send)

                body = encode(request("initialize", HELLO))
                async with Pair(app=slowly).open(body=body, path=path, query=query, headers=SENT) as post:
                    await trio.testing.wait_all_tasks_blocked()
                    stream.hang_up()
                    await stream.ended.wait()
                    more.set()
                    assert (await post.answer()).status == 404
        assert made.living.sessions.count() == 0


async def test_a_fault_of_the_server_itself_is_500_with_the_requests_id() -> None:
    async with old() as made:
        mcp: Any = made.living.house.mcp

        async def broken(shown: object) -> object:
            raise OSError("disk on fire")

        mcp.threshold.doorkeeper.authenticate = broken
        async with made.stream() as stream:
            answer = await stream.answer()
        assert answer.status == 500 and "disk" not in answer.body.decode()


async def test_the_stream_is_an_event_stream_or_nothing() -> None:
    async with old() as made, made.stream(accept="application/json") as stream:
        assert (await stream.answer()).status == 406


async def test_a_silent_stream_shows_signs_of_life(autojump_clock: trio.testing.MockClock) -> None:
    tokens: dict[str, Principal] = {"a": USER}
    async with old(tokens=tokens) as made, made.stream(authorization="Bearer a") as stream:
        await trio.sleep(60)
        assert stream.raw.count(b": keep-alive\n\n") == 3
        tokens.clear()
        with trio.fail_after(30):
            await stream.ended.wait()
