"""Nothing that a peer sends, and nothing that an application does, ends the server (reference table of process-killing inputs)."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback_server import GOOD, Echo, expect_service, read_to_clean_end, respond, running
from test_http_head import REFUSED

from server.transport.http.connection_limits import HttpLimits

H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
H2_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


# :method GET, :scheme http, :path "/\xff" as a literal, :authority "a"
H2_BAD_PATH = h2_frame(1, 5, 1, b"\x82\x86\x04\x02/\xff\x01\x01a")
H2_CONNECT = h2_frame(1, 4, 1, b"\x02\x07CONNECT\x01\x01a")
H2_POST = h2_frame(1, 4, 1, b"\x83\x86\x84\x01\x01a")

KILLERS: dict[str, tuple[bytes, int]] = {
    "an h2c upgrade with bad base64": (
        b"GET /k HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: !!!!\r\n\r\n",
        200,
    ),
    "an h2c upgrade with good base64": (
        b"GET /k HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        200,
    ),
    "a websocket upgrade with a non-ASCII header": (
        b"GET /k HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: \xff\xfe\r\n\r\n",
        200,
    ),
    "a websocket upgrade with a byte behind it": (
        b"GET /k HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81",
        200,
    ),
    "a host that is not ASCII": (b"GET /k HTTP/1.1\r\nHost: \xff\r\n\r\n", 400),
    "h2 by prior knowledge with a path that is not UTF-8": (H2_PREFACE + H2_SETTINGS + H2_BAD_PATH, 400),
    "h2 by prior knowledge with CONNECT": (H2_PREFACE + H2_SETTINGS + H2_CONNECT, 400),
    "h2 by prior knowledge with data": (H2_PREFACE + H2_SETTINGS + H2_POST + h2_frame(0, 1, 1, b"x"), 400),
    "a bad h2 preface": (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 400),
    "CONNECT": (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 400),
    "a TLS hello": (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + b"\x00" * 200, 400),
    "garbage": (b"\x00\xff\x00\xff" * 100 + b"\r\n\r\n", 400),
    "a line break": (b"\n\n\n", 400),
    "a path that is not UTF-8": (b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a head without end": (b"GET /k HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000, 431),
    "1500 headers": (b"GET /k HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 1500 + b"\r\n", 431),
    "a target without end": (b"GET /" + b"a" * 70_000, 414),
    "a huge length": (b"POST /k HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
    "a large length": (b"POST /k HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n", 413),
    "a bad chunk size": (b"POST /k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    "a chunk extension": (
        b"POST /k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\n\r\n",
        200,
    ),
    "a chunk extension with a bare LF": (
        b"POST /k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nx\r\n0\r\n\r\n",
        400,
    ),
    "trailers without end": (
        b"POST /k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 70_000,
        431,
    ),
    "a chunk ending in LF": (
        b"POST /k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\n0\r\n\r\n",
        400,
    ),
}


@pytest.mark.parametrize(("sent", "status"), KILLERS.values(), ids=list(KILLERS))
async def test_an_input_that_killed_other_servers_is_answered_and_the_server_lives(
    sent: bytes, status: int
) -> None:
    async with running(Echo()) as server:
        await expect_service(server)
        async with await server.connect() as peer:
            assert (await peer.ask(sent)).status == status
            await expect_service(server)
            if status >= 400:
                assert not await peer.more()
        await expect_service(server)
        assert server.events() == []


async def test_every_ambiguous_head_is_answered_with_400_and_nothing_behind_it_is_taken_for_a_request() -> (
    None
):
    app = Echo()
    async with running(app) as server:
        for name, raw in REFUSED.items():
            async with await server.connect() as peer:
                answer = await peer.ask(
                    raw + b"3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
                )
                assert (answer.status, answer.headers["connection"]) == (400, "close"), name
                assert await peer.to_end() == b"", name
        assert app.seen == []
        await expect_service(server)


async def test_data_after_an_early_401_is_borne() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/good":
            return await Echo()(scope, receive, send)
        return await respond(send, 401, b"no")

    async with running(app) as server:
        async with await server.connect() as peer:
            answer = await peer.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
            assert answer.status == 401
            for _ in range(20):
                await peer.send(b"x" * 50_000)
            await expect_service(server)
            assert not await peer.more()
        await expect_service(server)
        assert server.events() == []


async def test_two_hundred_resets_within_a_body_leave_the_server_unharmed() -> None:
    async with running(Echo()) as server:
        await expect_service(server)
        for _ in range(200):
            sock = socket.create_connection(("127.0.0.1", server.port))
            sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        await expect_service(server)


async def raise_plain(_: Any) -> None:
    raise ValueError("secret-in-the-message")


async def raise_grouped(_: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raise_plain, None)
        nursery.start_soon(raise_plain, None)


async def recurse(_: Any) -> None:
    def down() -> None:
        down()

    down()


async def return_silently(_: Any) -> None:
    return None


async def start_only(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})


async def bad_status(send: Any) -> None:
    await respond(send, 1000, b"")


async def interim_status(send: Any) -> None:
    await respond(send, 101, b"")


async def split_headers(send: Any) -> None:
    await respond(send, 200, b"", (b"location", b"/\r\nset-cookie: a=b"))


async def text_headers(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [("a", "b")]})


async def too_long(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
    await send({"type": "http.response.body", "body": b"too long"})


async def body_first(send: Any) -> None:
    await send({"type": "http.response.body", "body": b"x"})


async def two_starts(send: Any) -> None:
    await start_only(send)
    await start_only(send)


async def unknown_message(send: Any) -> None:
    await send({"type": "websocket.accept"})


@pytest.mark.parametrize(
    "fail",
    [
        raise_plain,
        raise_grouped,
        recurse,
        return_silently,
        start_only,
        bad_status,
        interim_status,
        split_headers,
        text_headers,
        too_long,
        body_first,
        two_starts,
        unknown_message,
    ],
)
async def test_an_application_that_fails_before_anything_was_sent_is_a_500_and_one_log_entry(
    fail: Any,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/good":
            return await Echo()(scope, receive, send)
        return await fail(send)

    async with running(app) as server:
        async with await server.connect() as peer:
            answer = await peer.ask(b"GET /bad HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (answer.status, answer.headers["connection"]) == (500, "close")
            assert b"secret" not in answer.body
            assert not await peer.more()
        assert len(server.events()) == 1
        assert server.events()[0] in ("http.app_failed", "http.no_response")
        await expect_service(server)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_an_application_that_fails_midway_leaves_a_response_that_nobody_takes_for_whole(
    version: bytes,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError

    async with running(app) as server, await server.connect() as peer:
        await peer.send(b"GET / HTTP/" + version + b"\r\nHost: a\r\n\r\n")
        if version == b"1.1":
            assert not (await peer.to_end()).endswith(b"0\r\n\r\n")
        else:  # only a reset tells this reader
            with pytest.raises(trio.BrokenResourceError):
                await read_to_clean_end(peer)
        assert server.events() == ["http.app_failed"]


async def test_an_application_that_raises_while_it_is_cancelled_neither_ends_the_server_nor_the_drain() -> (
    None
):
    started = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:

        async def clean_up_badly() -> None:
            try:
                started.set()
                await trio.sleep_forever()
            finally:
                raise ValueError("while cancelled")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean_up_badly)
            nursery.start_soon(trio.sleep_forever)
        return

    async with running(app, HttpLimits(drain_seconds=0.05)) as server, await server.connect() as peer:
        await peer.send(GOOD)
        with trio.fail_after(60):
            await started.wait()
            server.draining.set()
            await server.ended.wait()
        assert server.events() == ["http.connection_failed"]


MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(("cut", "put", "flip")), st.integers(0, 200), st.binary(min_size=1, max_size=6)
    ),
    max_size=6,
)


def mutate(raw: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    for kind, at, piece in changes:
        at %= len(raw) + 1
        if kind == "cut":
            raw = raw[:at] + raw[at + len(piece) :]
        elif kind == "put":
            raw = raw[:at] + piece + raw[at:]
        else:
            raw = (
                raw[:at]
                + bytes(a ^ b for a, b in zip(raw[at:], piece, strict=False))
                + raw[at + len(piece) :]
            )
    return raw


TEMPLATES = st.sampled_from([sent for sent, _ in KILLERS.values() if len(sent) < 1000] + [GOOD * 3])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300) | st.builds(mutate, TEMPLATES, MUTATIONS), min_size=1, max_size=8))
def test_no_bytes_whatsoever_end_the_server(segments: list[bytes]) -> None:
    async def main() -> None:
        async with running(Echo()) as server:
            for segment in segments:
                async with await server.connect() as peer:
                    await peer.send(segment)
            async with await server.connect() as peer:
                try:
                    for segment in segments:
                        await peer.stream.send_all(segment)
                except trio.BrokenResourceError:
                    pass
            await expect_service(server)
            assert server.counters.crashed == 0
            assert server.events() == []

    trio.run(main)
