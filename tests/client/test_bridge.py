"""What both eras share on the bridge: lines that are no messages, answers whatever happens, bounds, and the end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from bridge_pair import (
    MODERN_META,
    Answer,
    Host,
    Stream,
    StreamingServer,
    always,
    as_result,
    bridged,
    streaming,
)
from fake_server import Response, Seen

from server.client.bridge import MAX_RUNNING, MAX_WAITING
from server.client.bridge_relay import Patience
from server.client.token_file import TokenFile


@pytest.fixture
async def server() -> AsyncIterator[StreamingServer]:
    async with streaming(StreamingServer(offers_get=False)) as opened:
        yield opened


@pytest.fixture
async def host(server: StreamingServer, file: TokenFile) -> AsyncIterator[Host]:
    async with bridged(server.url, file, max_line=2000) as opened:
        yield opened


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", -32700),
        (b'{"jsonrpc":"2.0",', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
        (b"[" * 1500, -32700),
        (b"x" * 3000, -32700),
        (b"7", -32600),
        (b"[]", -32600),
        (b"[7]", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":""}', -32600),
    ],
)
async def test_a_line_that_is_no_message_is_answered_without_an_id_and_the_next_one_works(
    server: StreamingServer, host: Host, line: bytes, code: int
) -> None:
    host.put(line + b"\n\n  \n")
    assert (await host.error())[:2] == (None, code)
    host.request(1, "ping")
    assert (await host.hear())["id"] == 1
    assert len(server.seen) == 1
    assert host.nothing_more()


@pytest.mark.parametrize("modern", [True, False])
async def test_half_a_character_is_carried_as_it_came_and_so_is_the_answer(
    server: StreamingServer, host: Host, modern: bool
) -> None:
    answer = rb'{"jsonrpc":"2.0","id":1,"result":{"text":"cut \ude00"}}'
    server.methods["tools/call"] = always(Response(200, answer))
    cut = {"name": "x", "arguments": {"text": "cut \ud83d"}}
    (host.modern if modern else host.request)(1, "tools/call", cut)
    assert (await host.hear())["result"]["text"] == "cut \ude00"
    assert rb"cut \ud83d" in server.seen[-1].body


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize(
    ("response", "said"),
    [
        (Response(500), "status 500; its log says more"),
        (Response(503, headers={"retry-after": "7"}), "busy; try again in 7 seconds"),
        (Response(429), "busy; try again in a moment"),
        (Response(302, headers={"location": "https://a.example"}), "redirects; use the address"),
        (Response(402), "price"),
        (Response(403, b"<html>"), "refuses this client (status 403); `ostiary doctor "),
        (Response(404), "no MCP endpoint at"),
        (Response(405), "no MCP endpoint at"),
        (Response(413), "larger than the server takes"),
        (Response(200, b"<html>"), "status 200 and no result; is this an MCP server?"),
        (Response(200, b'{"jsonrpc":"2.0","id":99,"result":{}}'), "no result"),
        (Response(202), "status 202 and no result"),
        (Response(break_off=True), "broke off; what was asked may have been carried out"),
        (
            Response(200, b"{}", {"content-encoding": "gzip"}),
            "compressed answer",
        ),
        (
            Response(
                403,
                b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"scope"}}',
                {
                    "WWW-Authenticate": 'Bearer error="insufficient_scope", scope="mcp admin", error_description="the login lacks admin"'
                },
            ),
            "the login lacks admin; run ostiary login",
        ),
    ],
)
async def test_a_request_is_always_answered_and_the_answer_says_what_to_do(
    server: StreamingServer, host: Host, response: Response, said: str, modern: bool
) -> None:
    server.methods["tools/call"] = always(response)
    (host.modern if modern else host.request)(1, "tools/call", {"name": "x"})
    while "error" not in (answer := await host.hear()):
        assert answer["id"] == 99  # relayed as it is, and not taken for the answer
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert said in answer["error"]["message"]
    assert host.said == []


async def test_a_server_that_is_away_is_an_error_and_a_notification_to_it_one_line(file: TokenFile) -> None:
    async with bridged("http://127.0.0.1:9/mcp", file) as host:
        host.notify("notifications/x")
        host.notify("notifications/x")
        host.modern(1, "ping")
        host.request(2, "ping")
        for request_id, code, text in sorted([await host.error() for _ in range(2)]):
            assert request_id in (1, 2)
            assert (code, text.partition(";")[0]) == (-32603, "nothing answers at 127.0.0.1:9")
    assert host.said == [
        "notifications/x did not reach the server: nothing answers at 127.0.0.1:9; is it running? "
        "`ostiary serve` starts it"
    ]


async def test_an_answer_of_many_lines_becomes_one(server: StreamingServer, host: Host) -> None:
    async def pretty(request: Seen) -> Answer:
        response = as_result(request, {"text": "a\nb"})
        response.body = json.dumps(json.loads(response.body), indent=2).replace("\n", "\r\n").encode()
        return response

    server.methods["ping"] = pretty
    host.request(1, "ping")
    assert (await host.hear())["result"] == {"text": "a\nb"}


async def test_noise_on_a_stream_is_dropped(server: StreamingServer, host: Host) -> None:
    async def noisy(request: Seen) -> Answer:
        stream = Stream()
        for noise in (None, 7, "text"):
            await stream.event(noise)
        await stream.event({"jsonrpc": "2.0", "id": 1, "result": {}})
        return stream

    server.methods["ping"] = noisy
    host.request(1, "ping")
    assert (await host.hear())["id"] == 1


async def test_requests_beyond_the_cap_wait_and_far_beyond_it_are_refused(
    server: StreamingServer, host: Host
) -> None:
    release = trio.Event()
    running = 0
    most = 0

    async def slow(request: Seen) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1
        return as_result(request, {})

    server.methods["tools/call"] = slow
    total = MAX_RUNNING + MAX_WAITING
    for number in range(total + 3):
        host.modern(number, "tools/call", {"name": "x"})
    refused = [await host.error() for _ in range(3)]
    assert [request_id for request_id, _, _ in refused] == [total, total + 1, total + 2]
    assert {code for _, code, _ in refused} == {-32600}
    assert all("too many requests at once" in text for _, _, text in refused)
    await server.until(lambda: running == MAX_RUNNING)
    host.send({"jsonrpc": "2.0", "id": "q", "result": {}})  # an answer to the server still gets through
    await server.until(lambda: bool(server.requests("response")))
    release.set()
    assert {(await host.hear())["id"] for _ in range(total)} == set(range(total))
    assert most == MAX_RUNNING


async def test_an_id_that_is_still_running_is_refused(server: StreamingServer, host: Host) -> None:
    server.methods["tools/call"] = always(stream := Stream())
    host.modern(1, "tools/call", {"name": "x"})
    host.modern(1, "tools/list")
    _, code, text = await host.error()
    assert code == -32600 and "this id is still running" in text
    await stream.event({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (await host.hear())["result"] == {}


async def test_a_client_that_does_not_read_holds_the_server_up(server: StreamingServer, host: Host) -> None:
    size = 64 * 1024
    sent = 0
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * size}}

    class Counted(Stream):
        async def pour(self) -> None:
            nonlocal sent
            for _ in range(1000):
                await self.event(note)
                sent += 1
            await self.event({"jsonrpc": "2.0", "id": 1, "result": {}})

    stream = Counted()
    server.methods["tools/call"] = always(stream)
    async with trio.open_nursery() as nursery:
        host.attention = trio.Event()
        host.modern(1, "tools/call", {"name": "x"})
        nursery.start_soon(stream.pour)
        await server.until(lambda: bool(server.seen))
        await trio.testing.wait_all_tasks_blocked(0.3)
        assert sent < 1000  # what two sockets hold, and the queue of this test
        host.attention.set()
        with trio.fail_after(60):
            for _ in range(1000):
                assert (await host.hear())["method"] == "notifications/message"
            assert (await host.hear())["id"] == 1


async def test_what_runs_at_the_end_of_stdin_may_finish(server: StreamingServer, file: TokenFile) -> None:
    server.methods["tools/call"] = always(stream := Stream())
    async with bridged(server.url, file) as host:
        host.modern(1, "tools/call", {"name": "x"})
        host.notify("notifications/x")
        await server.until(lambda: len(server.seen) == 2)
        host.hang_up()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not host.ended.is_set()
        await stream.event({"jsonrpc": "2.0", "id": 1, "result": {}})
        assert (await host.hear())["id"] == 1


async def test_what_does_not_finish_is_answered_with_an_error(
    server: StreamingServer, file: TokenFile
) -> None:
    server.methods["tools/call"] = always(stream := Stream())
    async with bridged(server.url, file, patience=Patience(drain_seconds=0.2)) as host:
        host.modern(1, "tools/call", {"name": "x"})
        await server.until(lambda: bool(server.seen))
    request_id, code, text = await host.error()
    assert (request_id, code) == (1, -32603)
    assert "ended before the answer came" in text
    await stream.left.wait()


async def test_a_client_that_closed_its_end_ends_the_bridge(server: StreamingServer, file: TokenFile) -> None:
    with pytest.RaisesGroup(BrokenPipeError, flatten_subgroups=True):
        async with bridged(server.url, file) as host:
            await host.open_session()
            host.gone = True
            host.request(1, "ping")
            await trio.sleep_forever()
    assert len(server.requests("DELETE")) == 1


async def test_modern_meta_decides_whatever_its_value(server: StreamingServer, host: Host) -> None:
    for value in (7, "2099-01-01", "no header\ncan carry this"):
        meta = {**MODERN_META, "io.modelcontextprotocol/protocolVersion": value}
        host.request(1, "tools/list", {"_meta": meta})
        await host.hear()
    versions: list[Any] = [seen.headers.get("mcp-protocol-version") for seen in server.seen]
    assert versions == [None, "2099-01-01", None]
    assert all(seen.headers["mcp-method"] == "tools/list" for seen in server.seen)
