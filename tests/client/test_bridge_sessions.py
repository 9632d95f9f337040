"""The handshake era over the bridge, against a server with sessions, streams and resumption."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from bridge_pair import (
    INITIALIZE,
    Answer,
    Host,
    Stream,
    StreamingServer,
    always,
    as_error,
    as_result,
    bridged,
    result,
    streams,
)
from fake_server import Response, Seen, as_json

from server.client.bridge_relay import Patience
from server.client.token_file import TokenFile

pytestmark = pytest.mark.usefixtures("in_time")

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


async def test_everything_after_the_handshake_carries_session_and_version(
    server: StreamingServer, host: Host
) -> None:
    server.version = "2025-06-18"
    await host.open_session()
    host.request(1, "tools/list")
    assert (await host.hear())["result"] == {"did": "tools/list"}
    opening, *rest = server.seen
    assert opening.message["params"] == INITIALIZE
    assert {"mcp-session-id", "mcp-protocol-version", "mcp-method"}.isdisjoint(opening.headers)
    assert {seen.headers["mcp-session-id"] for seen in rest} == {"s-1"}
    assert {seen.headers["mcp-protocol-version"] for seen in rest} == {"2025-06-18"}
    assert all("mcp-method" not in seen.headers for seen in rest)


async def test_a_server_without_sessions_is_sent_the_version_alone(
    server: StreamingServer, host: Host
) -> None:
    server.keeps_sessions = False
    await host.open_session()
    host.request(1, "ping")
    await host.hear()
    assert "mcp-session-id" not in server.requests("ping")[0].headers
    assert server.requests("ping")[0].headers["mcp-protocol-version"] == "2025-11-25"


async def test_what_follows_at_once_does_not_overtake_the_handshake(
    server: StreamingServer, host: Host
) -> None:
    release = trio.Event()

    async def slowly(request: Seen) -> Answer:
        await release.wait()
        return server.usual(request)

    server.offers_get = False
    server.methods["initialize"] = server.methods["notifications/initialized"] = slowly
    host.request(0, "initialize", INITIALIZE)
    host.notify("notifications/initialized")
    host.request(1, "tools/list")
    await server.until(lambda: len(server.seen) == 1)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(server.seen) == 1
    release.set()
    assert [(await host.hear())["id"] for _ in range(2)] == [0, 1]
    kinds = [seen.message["method"] for seen in server.seen if seen.method == "POST"]
    assert kinds == ["initialize", "notifications/initialized", "tools/list"]


async def test_the_get_stream_is_relayed_and_kept_open_where_it_was_left(
    server: StreamingServer, host: Host
) -> None:
    await host.open_session()
    await server.until(lambda: len(server.unasked) == 1)
    await server.unasked[0].event(event_id="e-1", retry=700)
    await server.unasked[0].event({**NOTE, "n": 1}, event_id="e-2")
    assert (await host.hear())["n"] == 1
    server.unasked[0].end()
    await server.until(lambda: len(server.unasked) == 2)
    assert server.requests("GET")[1].headers["last-event-id"] == "e-2"
    assert host.slept == [0.7]
    server.unasked[1].cut()
    await server.until(lambda: len(server.unasked) == 3)
    assert server.requests("GET")[2].headers["last-event-id"] == "e-2"
    assert host.slept[1] > 0.7  # nothing came: the pause grows
    await server.unasked[2].event({**NOTE, "n": 2}, event_id="e-3")
    assert (await host.hear())["n"] == 2


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_that_offers_no_get_stream_is_not_asked_again(
    server: StreamingServer, host: Host, status: int
) -> None:
    server.methods["GET"] = always(Response(status))
    await host.open_session()
    await server.until(lambda: len(server.requests("GET")) == 1)
    host.request(1, "ping")
    await host.hear()
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(server.requests("GET")) == 1
    assert server.count["sessions"] == 1


async def test_a_server_asks_on_a_stream_and_gets_its_answer(server: StreamingServer, host: Host) -> None:
    opened = streams(server, "tools/call")
    await host.open_session()
    host.request(5, "tools/call", {"name": "ask"})
    await server.until(lambda: bool(server.requests("tools/call")))
    question = {"jsonrpc": "2.0", "id": "q-1", "method": "roots/list"}
    await opened[0].event(question)
    assert await host.hear() == question
    host.send({"jsonrpc": "2.0", "id": "q-1", "result": {"roots": []}})
    await server.until(lambda: bool(server.requests("response")))
    (reply,) = server.requests("response")
    assert reply.message == {"jsonrpc": "2.0", "id": "q-1", "result": {"roots": []}}
    assert reply.headers["mcp-session-id"] == "s-1"
    await opened[0].event({"jsonrpc": "2.0", "id": 5, "result": {"content": []}})
    assert (await host.hear())["id"] == 5


async def test_messages_of_a_stream_keep_their_order(server: StreamingServer, host: Host) -> None:
    opened = streams(server, "tools/call")
    await host.open_session()
    host.request(5, "tools/call", {"name": "many"})
    await server.until(lambda: bool(server.requests("tools/call")))
    for number in range(50):
        await opened[0].event({**NOTE, "n": number})
    await opened[0].event({"jsonrpc": "2.0", "id": 5, "result": {}})
    heard = [await host.hear() for _ in range(51)]
    assert [message.get("n") for message in heard] == [*range(50), None]


@pytest.mark.parametrize("how", ["end", "cut"])
async def test_a_broken_answer_is_resumed_until_the_result_comes(
    server: StreamingServer, host: Host, how: str
) -> None:
    server.offers_get = False
    opened = streams(server, "tools/call")
    await host.open_session()
    await server.until(lambda: bool(server.requests("GET")))
    resumed: list[Stream] = []

    async def resume(request: Seen) -> Answer:
        resumed.append(Stream())
        return resumed[-1] if len(resumed) > 1 else Response(503)

    server.methods["GET"] = resume
    host.request(5, "tools/call", {"name": "long"})
    await server.until(lambda: bool(server.requests("tools/call")))
    await opened[0].event(event_id="a-1", retry=3)
    await opened[0].event({**NOTE, "n": 1}, event_id="a-2")
    assert (await host.hear())["n"] == 1
    getattr(opened[0], how)()
    await server.until(lambda: len(resumed) == 2)  # the first try met a busy server
    assert {seen.headers["last-event-id"] for seen in server.requests("GET")[1:]} == {"a-2"}
    await resumed[1].event({**NOTE, "n": 2}, event_id="a-3")
    assert (await host.hear())["n"] == 2
    resumed[1].end()
    await server.until(lambda: len(resumed) == 3)
    assert server.requests("GET")[-1].headers["last-event-id"] == "a-3"
    assert server.requests("GET")[-1].headers["mcp-session-id"] == "s-1"
    await resumed[2].event({"jsonrpc": "2.0", "id": 5, "result": {"content": []}})
    assert await host.hear() == {"jsonrpc": "2.0", "id": 5, "result": {"content": []}}
    assert len(server.requests("tools/call")) == 1


async def test_a_stream_that_cannot_be_resumed_is_an_error_that_says_what_may_have_happened(
    server: StreamingServer, host: Host
) -> None:
    server.offers_get = False
    opened = streams(server, "tools/call")
    await host.open_session()
    for number, event_id in enumerate((None, "a-1")):
        host.request(number, "tools/call", {"name": "long"})
        await server.until(lambda number=number: len(server.requests("tools/call")) == number + 1)
        await opened[number].event({**NOTE}, event_id=event_id)
        assert (await host.hear())["method"] == "notifications/message"
        opened[number].cut()
        request_id, code, text = await host.error()
        assert (request_id, code) == (number, -32603)
        assert "may have been carried out" in text
    assert len(server.requests("tools/call")) == 2


async def test_cancelling_tells_the_server_and_nothing_more_is_written(
    server: StreamingServer, host: Host
) -> None:
    opened = streams(server, "tools/call")
    await host.open_session()
    host.request(5, "tools/call", {"name": "long"})
    await server.until(lambda: bool(server.requests("tools/call")))
    await opened[0].event(NOTE)
    await host.hear()
    host.cancel(5)
    await server.until(lambda: bool(server.requests("notifications/cancelled")))
    (cancelled,) = server.requests("notifications/cancelled")
    assert cancelled.message["params"] == {"requestId": 5}
    assert cancelled.headers["mcp-session-id"] == "s-1"
    await opened[0].left.wait()
    host.request(6, "ping")
    assert (await host.hear())["id"] == 6
    assert host.nothing_more()


async def test_a_lost_session_is_begun_again_once_and_the_message_repeated(
    server: StreamingServer, host: Host
) -> None:
    await host.open_session()
    await server.until(lambda: len(server.unasked) == 1)
    server.forget()
    for number in range(3):
        host.request(number, "tools/list")
    assert sorted([(await host.hear())["id"] for _ in range(3)]) == [0, 1, 2]
    assert server.count["sessions"] == 2
    first, again = server.requests("initialize")
    assert again.message["params"] == first.message["params"]
    assert again.message["id"] != first.message["id"]
    assert len(server.requests("notifications/initialized")) == 2
    await server.until(lambda: len(server.unasked) == 2)
    assert server.requests("GET")[1].headers["mcp-session-id"] == "s-2"
    assert "last-event-id" not in server.requests("GET")[1].headers
    await server.unasked[0].left.wait()
    assert host.nothing_more()
    assert len(host.said) == 1
    assert "forgot this session" in host.said[0]


async def test_a_notification_into_a_lost_session_is_repeated_too(
    server: StreamingServer, host: Host
) -> None:
    await host.open_session()
    await server.until(lambda: len(server.unasked) == 1)
    server.forget()
    host.notify("notifications/roots/list_changed")
    await server.until(lambda: len(server.requests("notifications/roots/list_changed")) == 2)
    assert server.requests("notifications/roots/list_changed")[1].headers["mcp-session-id"] == "s-2"


async def test_a_get_stream_that_finds_its_session_gone_begins_a_new_one(
    server: StreamingServer, host: Host
) -> None:
    await host.open_session()
    await server.until(lambda: len(server.unasked) == 1)
    server.forget()
    server.unasked[0].end()
    await server.until(lambda: len(server.unasked) == 2)
    await server.unasked[1].event(NOTE)
    assert await host.hear() == NOTE
    assert server.count["sessions"] == 2


async def test_a_session_that_is_lost_again_and_again_ends_in_an_error(
    server: StreamingServer, host: Host
) -> None:
    server.offers_get = False
    await host.open_session()
    server.methods["tools/list"] = always(Response(404))
    host.request(1, "tools/list")
    request_id, code, text = await host.error()
    assert (request_id, code) == (1, -32603)
    assert "does not know this session" in text
    assert server.count["sessions"] == 2
    assert len(server.requests("tools/list")) == 2


async def test_a_server_that_lets_nobody_back_in_is_an_error(server: StreamingServer, host: Host) -> None:
    server.offers_get = False
    await host.open_session()
    server.forget()

    async def refuse(request: Seen) -> Answer:
        return as_error(request, -32000)

    server.methods["initialize"] = refuse
    host.request(1, "tools/list")
    request_id, code, text = await host.error()
    assert (request_id, code) == (1, -32603)
    assert "begins no new one" in text


async def test_a_missing_method_is_no_lost_session(server: StreamingServer, host: Host) -> None:
    server.offers_get = False
    await host.open_session()

    async def missing(request: Seen) -> Answer:
        return as_error(request, -32601, 404)

    server.methods["tasks/list"] = missing
    host.request(1, "tasks/list")
    assert (await host.error())[:2] == (1, -32601)
    assert server.count["sessions"] == 1


async def test_a_batch_goes_and_comes_as_it_is(server: StreamingServer, host: Host) -> None:
    server.version = "2025-03-26"

    async def batch(request: Seen) -> Answer:
        items: Any = request.message
        answers = [{"jsonrpc": "2.0", "id": item["id"], "result": {}} for item in items if "id" in item]
        return as_json(answers[::-1]) if len(answers) == 2 else Response(202)

    server.methods["batch"] = batch
    await host.open_session()
    ping = {"jsonrpc": "2.0", "method": "ping"}
    host.send([{**ping, "id": 1}, {**ping, "id": "1"}, {"jsonrpc": "2.0", "method": "notifications/x"}])
    assert [answer["id"] for answer in await host.hear()] == ["1", 1]
    host.send([{"jsonrpc": "2.0", "method": "notifications/x"}])
    await server.until(lambda: len(server.requests("batch")) == 2)
    assert host.said == []


async def test_every_request_of_a_batch_that_fails_is_answered(server: StreamingServer, host: Host) -> None:
    await host.open_session()
    batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2)]
    server.methods["batch"] = always(Response(500))
    host.send(batch)
    answers = await host.hear()
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32603), (2, -32603)]
    server.methods["batch"] = always(
        as_json({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}, 400)
    )
    host.send(batch)
    answers = await host.hear()
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32600), (2, -32600)]
    opened = streams(server, "batch")
    host.send(batch)
    await server.until(lambda: len(opened) == 1)
    await opened[0].event({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert (await host.hear())["result"] == {}
    opened[0].end()
    (answer,) = await host.hear()  # 2 is answered already
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)


async def test_the_session_is_ended_with_stdin(server: StreamingServer, file: TokenFile) -> None:
    async with bridged(server.url, file) as host:
        await host.open_session()
        await server.until(lambda: len(server.unasked) == 1)
    (ended,) = server.requests("DELETE")
    assert ended.headers["mcp-session-id"] == "s-1"
    assert server.sessions == set()
    await server.unasked[0].left.wait()


async def test_a_second_handshake_replaces_the_session(server: StreamingServer, host: Host) -> None:
    await host.open_session()
    await server.until(lambda: len(server.unasked) == 1)
    await host.open_session()
    host.request(1, "ping")
    await host.hear()
    assert server.requests("ping")[0].headers["mcp-session-id"] == "s-2"
    assert [seen.headers["mcp-session-id"] for seen in server.requests("DELETE")] == ["s-1"]
    await server.unasked[0].left.wait()
    await server.until(lambda: len(server.unasked) == 2)


@pytest.mark.parametrize("named", ["with space", "x" * 2000])
async def test_a_session_id_that_cannot_be_sent_back_is_refused(
    server: StreamingServer, host: Host, named: str
) -> None:
    async def opening(request: Seen) -> Answer:
        return as_result(request, {"protocolVersion": "2025-11-25"}, mcp_session_id=named)

    server.methods["initialize"] = opening
    host.request(1, "initialize", INITIALIZE)
    request_id, code, text = await host.error()
    assert (request_id, code) == (1, -32603)
    assert "unusable session id" in text


async def test_a_handshake_on_a_stream_works_like_any(server: StreamingServer, host: Host) -> None:
    async def opening(request: Seen) -> Answer:
        server.sessions.add("s-9")
        stream = Stream()
        await stream.event(event_id="p", retry=1)
        await stream.event(result(request, {"protocolVersion": "2025-11-25", "serverInfo": {}}))
        return stream

    server.methods["initialize"] = opening
    server.keeps_sessions = False
    await host.open_session()
    host.request(1, "ping")
    assert (await host.hear())["id"] == 1
    assert server.requests("ping")[0].headers["mcp-protocol-version"] == "2025-11-25"


async def test_silence_without_end_is_an_error(
    server: StreamingServer, file: TokenFile, mock_clock: trio.testing.MockClock
) -> None:
    server.offers_get = False
    streams(server, "tools/call")
    async with bridged(server.url, file, patience=Patience(answer_seconds=0.2)) as host:
        await host.open_session()
        host.request(1, "tools/call", {"name": "dead"})
        await server.until(lambda: bool(server.requests("tools/call")))
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.2)
        request_id, code, text = await host.error()
        assert (request_id, code) == (1, -32603)
        assert "did not answer in time" in text


async def test_a_request_cancelled_while_its_session_is_begun_again_leaves_none_half_open(
    server: StreamingServer, host: Host
) -> None:
    server.offers_get = False
    await host.open_session()
    host.request(0, "ping")
    await host.hear()
    server.forget()
    never = trio.Event()

    async def hang(request: Seen) -> Answer:
        await never.wait()
        return Response(202)

    server.methods["notifications/initialized"] = hang
    host.request(1, "ping")
    await server.until(lambda: len(server.requests("notifications/initialized")) == 2)
    del server.methods["notifications/initialized"]
    host.cancel(1)
    host.request(2, "ping")
    assert (await host.hear())["id"] == 2
    opened = server.requests("notifications/initialized")
    assert [seen.headers["mcp-session-id"] for seen in opened] == ["s-1", "s-2", "s-3"]
    assert server.requests("ping")[-1].headers["mcp-session-id"] == "s-3"
