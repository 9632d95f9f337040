"""server/transport/http/server_connection.py and request_cycle.py over real sockets: what a well-behaved peer sees."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from loopback_server import GOOD, Echo, Peer, expect_service, respond, running, until, whole_body

from server.transport.http.connection_limits import HttpLimits


async def test_requests_on_one_connection_are_answered_one_after_the_other() -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        for number in range(3):
            answer = await peer.ask(b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx" % number)
            assert (answer.status, answer.body) == (200, b"POST /%d x" % number)
            assert "connection" not in answer.headers
            assert answer.headers["date"].endswith(" GMT")


async def test_head_and_body_of_a_short_answer_arrive_in_one_piece() -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        await peer.send(GOOD)
        await peer.more()
        assert peer.buffer.endswith(b"POST /good hi")


async def test_fifty_requests_in_one_segment_are_answered_in_order_with_their_bodies() -> None:
    app = Echo()
    async with running(app) as server, await server.connect() as peer:
        await peer.send(
            b"".join(
                b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n%04d" % (n, n) for n in range(50)
            )
        )
        for number in range(50):
            assert (await peer.answer()).body == b"POST /%d %04d" % (number, number)
        assert [body for _, _, body in app.seen] == [b"%04d" % number for number in range(50)]


async def test_pipelined_requests_of_every_framing_do_not_run_into_each_other() -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        chunked = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
        upgrade = b"GET /u HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        await peer.send(chunked + b"GET /g HTTP/1.1\r\nHost: a\r\n\r\n" + upgrade + GOOD + b"\r\n" + chunked)
        for body in (b"POST /c abcde", b"GET /g ", b"GET /u ", b"POST /good hi", b"POST /c abcde"):
            assert (await peer.answer()).body == body


async def test_a_peer_that_pipelines_far_ahead_is_read_no_further_than_the_bound_and_answered_in_order() -> (
    None
):
    go, watching = trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await whole_body(receive)
        if scope["path"] == "/0":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)  # as an application does that wants to know when its peer leaves
                watching.set()
                await go.wait()
                nursery.cancel_scope.cancel()
        return await respond(send, 200, scope["path"].encode())

    async def push(peer: Peer) -> None:
        wire = b"".join(
            b"GET /%d HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (n, b"x" * 16_000) for n in range(count)
        )
        await peer.stream.send_all(wire)  # more than the kernel keeps on both sides
        sent.set()

    count, sent = 1500, trio.Event()
    async with (
        running(app) as server,
        await server.connect() as peer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(push, peer)
        with trio.fail_after(60):
            await watching.wait()
            await trio.testing.wait_all_tasks_blocked(0.05)
        assert not sent.is_set()
        go.set()
        for number in range(count):
            assert (await peer.answer()).body == b"/%d" % number


@pytest.mark.parametrize("cut", [1, 20, 37, 56, 57, 58, 59])
async def test_a_request_in_two_segments_is_put_together(cut: int) -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        await peer.send(GOOD[:cut])
        await trio.sleep(0.01)
        assert (await peer.ask(GOOD[cut:])).body.endswith(b"/good hi")


async def test_a_request_byte_by_byte_is_put_together() -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        for at in range(len(GOOD)):
            await peer.send(GOOD[at : at + 1])
        assert (await peer.answer()).body == b"POST /good hi"


async def test_a_blank_line_between_requests_is_skipped_however_it_is_cut() -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        for piece in (GOOD + b"\r\n", GOOD, b"\r\n", GOOD, b"\r", b"\n" + GOOD, b"\r\n" + GOOD):
            await peer.send(piece)
            if GOOD in piece:
                assert (await peer.answer()).body == b"POST /good hi"
            else:
                await trio.testing.wait_all_tasks_blocked(0.02)


async def test_an_upload_can_be_read_while_the_answer_waits_for_its_reader() -> None:
    """A write that waits is no disconnect to whoever reads the request meanwhile."""
    messages: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(respond, send, 200, b"x" * 8_000_000)
            while not messages or messages[-1].get("more_body"):
                await trio.testing.wait_all_tasks_blocked(0.02)
                messages.append(await receive())
        return

    async with running(app) as server, await server.connect(receive_buffer=4096) as peer:
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")
        await trio.testing.wait_all_tasks_blocked(0.05)
        await peer.send(b"def")
        await until(lambda: len(messages) == 2)
        assert [message["type"] for message in messages] == ["http.request"] * 2
        assert len((await peer.answer()).body) == 8_000_000


async def test_head_is_answered_with_the_length_and_no_body() -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        answer = await peer.ask(b"HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (answer.status, answer.headers["content-length"]) == (200, "8")
        assert (await peer.ask(GOOD)).body == b"POST /good hi"


async def stream_app(scope: Any, receive: Any, send: Any) -> None:
    """A response of unknown length in three pieces."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"one ", b"", b"two "):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    return await send({"type": "http.response.body", "body": b"three"})


async def test_a_response_of_unknown_length_is_chunked() -> None:
    async with running(stream_app) as server, await server.connect() as peer:
        for _ in range(2):
            answer = await peer.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (answer.headers["transfer-encoding"], answer.body) == ("chunked", b"one two three")


async def test_head_of_a_stream_has_neither_body_nor_end_marker() -> None:
    async with running(stream_app) as server, await server.connect() as peer:
        for _ in range(2):
            answer = await peer.ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert answer.status == 200
            assert peer.buffer == b""


async def test_a_stream_to_an_old_client_ends_with_the_connection() -> None:
    async with running(stream_app) as server, await server.connect() as peer:
        answer = await peer.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert answer.headers["connection"] == "close"
        assert "transfer-encoding" not in answer.headers
        assert answer.body == b"one two three"


async def test_the_head_of_a_stream_does_not_wait_for_its_first_piece() -> None:
    go = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        await go.wait()
        return await send({"type": "http.response.body", "body": b"x"})

    async with running(app) as server, await server.connect() as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await peer.line() == b"HTTP/1.1 200 OK"
        go.set()


async def test_an_old_client_is_answered_and_the_connection_closed_unless_it_asks_to_keep_it() -> None:
    async with running(Echo()) as server:
        async with await server.connect() as peer:
            answer = await peer.ask(b"GET /old HTTP/1.0\r\n\r\n")
            assert (answer.body, answer.headers["connection"]) == (b"GET /old ", "close")
            assert not await peer.more()
        async with await server.connect() as peer:
            for _ in range(2):
                answer = await peer.ask(b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert (answer.body, answer.headers["connection"]) == (b"GET /old ", "keep-alive")


async def test_a_client_that_says_close_gets_its_answer_and_then_the_end() -> None:
    async with running(Echo()) as server, await server.connect() as peer:
        answer = await peer.ask(b"GET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (answer.body, answer.headers["connection"]) == (b"GET /c ", "close")
        assert not await peer.more()


async def test_a_client_that_expects_100_is_told_to_go_on_only_when_the_body_is_wanted() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/refused":
            return await respond(send, 401, b"no")
        return await respond(send, 200, await whole_body(receive))

    request = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    async with running(app) as server:
        async with await server.connect() as peer:
            assert (await peer.ask(request % b"/")).status == 100
            assert (await peer.ask(b"hello")).body == b"hello"
            assert (
                await peer.ask(request % b"/" + b"hello")
            ).body == b"hello"  # sent without waiting: no 100
        async with await server.connect() as peer:
            answer = await peer.ask(request % b"/refused")
            assert (answer.status, answer.headers["connection"]) == (401, "close")


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_that_have_no_body_have_none(status: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        return await send({"type": "http.response.body", "body": b"not for sending"})

    async with running(app) as server, await server.connect() as peer:
        for _ in range(2):
            answer = await peer.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert answer.status == status
            assert not {"content-length", "transfer-encoding"} & answer.headers.keys()
        assert peer.buffer == b""


async def refuse_unread(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/good":
        return await Echo()(scope, receive, send)
    return await respond(send, 401, b"log in first", (b"www-authenticate", b"Bearer"))


async def test_a_refusal_during_a_large_upload_can_be_read_by_a_client_that_first_writes_it_all() -> None:
    size = 2_000_000
    async with running(refuse_unread) as server, await server.connect() as peer:
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 50_000):
            await peer.send(b"x" * 50_000)
        answer = await peer.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (401, b"log in first", "close")
        assert not await peer.more()


async def test_a_refusal_during_a_large_chunked_upload_can_be_read_too() -> None:
    async with running(refuse_unread) as server, await server.connect() as peer:
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(40):
            await peer.send(b"C350\r\n" + b"x" * 50_000 + b"\r\n")
        assert (await peer.answer()).status == 401


async def test_after_a_refusal_with_little_left_to_read_the_connection_goes_on() -> None:
    async with running(refuse_unread) as server, await server.connect() as peer:
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n" + b"x" * 10_000)
        answer = await peer.answer()
        assert answer.status == 401
        assert "connection" not in answer.headers
        await peer.send(b"x" * 20_000)
        assert (await peer.ask(GOOD)).body == b"POST /good hi"


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_body_over_the_cap_is_refused_with_413_that_can_be_read(framing: str) -> None:
    limits = HttpLimits(body_bytes=100_000)
    async with running(Echo(), limits) as server:
        async with await server.connect() as peer:
            if framing == "length":
                await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n")
                body = b"x" * 400_000
            else:
                await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                body = (b"2710\r\n" + b"x" * 10_000 + b"\r\n") * 40 + b"0\r\n\r\n"
            await peer.send(body)
            answer = await peer.answer()
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            assert not await peer.more()
        async with await server.connect() as peer:
            whole = b"y" * 100_000
            answer = await peer.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + whole)
            assert answer.body == b"POST / " + whole


async def test_the_application_sees_where_the_request_came_from_and_an_id_of_its_own() -> None:
    app = Echo()
    async with running(app) as server:
        await expect_service(server)
        await expect_service(server)
        one, two = app.scopes
        assert one["client"][0] == "127.0.0.1"
        assert one["server"] == ("127.0.0.1", server.port)
        assert (one["scheme"], one["http_version"], one["type"]) == ("http", "1.1", "http")
        assert one["state"]["request_id"] != two["state"]["request_id"]
        assert one["state"]["draining"] is server.draining


async def test_what_a_request_leaves_in_its_state_is_gone_with_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        before = scope["state"].get("mine", "nothing")
        scope["state"]["mine"] = "set"
        return await respond(send, 200, before.encode())

    async with running(app) as server, await server.connect() as peer:
        for _ in range(2):
            assert (await peer.ask(GOOD)).body == b"nothing"


async def test_an_application_that_waits_for_its_peer_to_leave_is_told() -> None:
    ended = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await whole_body(receive)
        assert (await receive())["type"] == "http.disconnect"
        assert (await receive())["type"] == "http.disconnect"
        ended.set()
        return

    async with running(app) as server:
        async with await server.connect() as peer:
            await peer.send(GOOD)
        with trio.fail_after(60):
            await ended.wait()
        assert server.events() == []


async def test_an_application_that_writes_to_a_peer_that_left_gets_an_oserror_and_ends() -> None:
    errors: list[Exception] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        except OSError as error:
            errors.append(error)
            raise

    async with running(app) as server:
        async with await server.connect() as peer:
            await peer.send(GOOD)
            await peer.line()
        await until(lambda: bool(errors))
        assert server.events() == []  # a peer that leaves is no news


async def test_a_body_cut_off_by_its_peer_is_a_disconnect_not_an_end() -> None:
    messages: list[Any] = []
    done = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not messages or messages[-1]["type"] == "http.request":
            messages.append(await receive())
        done.set()
        return

    async with running(app) as server:
        async with await server.connect() as peer:
            await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        with trio.fail_after(60):
            await done.wait()
        assert messages == [
            {"type": "http.request", "body": b"abc", "more_body": True},
            {"type": "http.disconnect"},
        ]


async def collect(peer: Peer, size: int) -> int:
    got = 0
    while got < size and await peer.more():
        got += len(peer.buffer)
        peer.buffer = b""
    return got


async def test_a_large_answer_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000

    async def app(scope: Any, receive: Any, send: Any) -> None:
        return await respond(send, 200, body)

    async with running(app) as server, await server.connect() as peer:
        assert (await peer.ask(GOOD)).body == body
        assert (await peer.ask(GOOD)).body == body
