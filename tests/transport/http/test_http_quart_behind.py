"""Quart-Trio runs unmodified behind the connection layer: pages, forms, streams, disconnects, its own errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import trio
import trio.testing
from loopback_server import GOOD, running, time_passes
from quart import Response, request
from quart_trio import QuartTrio

from server.transport.http.connection_limits import HttpLimits


class Site:
    def __init__(self) -> None:
        self.app = QuartTrio("site", static_folder=None, template_folder=None)
        self.started = trio.Event()
        self.ended = trio.Event()
        self.app.add_url_rule("/good", "good", self.good, methods=["GET", "POST"])
        self.app.add_url_rule("/form", "form", self.form, methods=["POST"])
        self.app.add_url_rule("/unread", "unread", self.unread, methods=["POST"])
        self.app.add_url_rule("/events", "events", self.events)
        self.app.add_url_rule("/slow", "slow", self.slow)
        self.app.add_url_rule("/fails", "fails", self.fails)

    async def good(self) -> str:
        return f"{request.method} {request.path} {(await request.get_data(as_text=True))}"

    async def form(self) -> dict[str, str]:
        return {**(await request.form), "ip": request.remote_addr or ""}

    async def unread(self) -> tuple[str, int]:
        return "no", 401

    async def slow(self) -> str:
        self.started.set()
        try:
            await trio.sleep_forever()
        finally:
            self.ended.set()

    async def fails(self) -> str:
        raise ValueError("secret")

    async def events(self) -> Response:
        draining: trio.Event = request.scope["state"]["draining"]

        async def produce() -> AsyncGenerator[bytes]:
            try:
                yield b": hello\n\n"
                await draining.wait()
                yield b": bye\n\n"
            finally:
                self.ended.set()

        response = Response(produce(), content_type="text/event-stream")
        response.timeout = None
        return response


async def test_pages_forms_head_and_errors_work_over_one_connection() -> None:
    site = Site()
    async with running(site.app) as server, await server.connect() as peer:
        assert (await peer.ask(GOOD)).body == b"POST /good hi"
        answer = await peer.ask(b"HEAD /good HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (answer.status, int(answer.headers["content-length"]) > 0) == (200, True)
        form = b"a=b%20c&d=%C3%A4"
        answer = await peer.ask(
            b"POST /form HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(form), form)
        )
        assert answer.status == 200
        assert b"127.0.0.1" in answer.body
        chunked = b"POST /good HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        assert (await peer.ask(chunked)).body == b"POST /good hi"
        assert (await peer.ask(b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n")).status == 404
        assert (await peer.ask(b"DELETE /good HTTP/1.1\r\nHost: a\r\n\r\n")).status == 405
        assert (await peer.ask(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")).status == 404
        assert (await peer.ask(b"GET /good HTTP/1.0\r\n\r\n")).status == 200


async def test_pipelined_requests_are_answered_in_order_though_every_one_watches_for_the_disconnect() -> None:
    async with running(Site().app) as server, await server.connect() as peer:
        await peer.send(
            b"".join(
                b"POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n%03d" % n for n in range(30)
            )
        )
        for number in range(30):
            assert (await peer.answer()).body == b"POST /good %03d" % number


async def test_a_stream_is_sent_as_it_is_produced_and_its_generator_is_closed_when_the_client_leaves() -> (
    None
):
    site = Site()
    async with running(site.app) as server:
        async with await server.connect() as peer:
            await peer.send(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
            while b": hello\n\n" not in peer.buffer:
                assert await peer.more()
            assert not site.ended.is_set()
        with trio.fail_after(60):
            await site.ended.wait()


async def test_a_handler_is_cancelled_when_its_client_leaves() -> None:
    site = Site()
    async with running(site.app) as server:
        async with await server.connect() as peer:
            await peer.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            with trio.fail_after(60):
                await site.started.wait()
        with trio.fail_after(60):
            await site.ended.wait()


async def test_a_stream_ends_politely_when_the_drain_begins() -> None:
    site = Site()
    async with running(site.app, HttpLimits(drain_seconds=3600)) as server, await server.connect() as peer:
        await peer.send(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
        while b"hello" not in peer.buffer:
            assert await peer.more()
        server.draining.set()
        assert (await peer.to_end()).endswith(b": bye\n\n\r\n0\r\n\r\n")
        with trio.fail_after(60):
            await server.ended.wait()


async def test_a_refused_upload_a_body_over_the_cap_and_a_dripped_one_are_answered(
    mock_clock: trio.testing.MockClock,
) -> None:
    limits = HttpLimits(body_bytes=200_000, tick_seconds=0.02, body_seconds=0.2)
    async with running(Site().app, limits) as server:
        async with await server.connect() as peer:
            await peer.send(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 150000\r\n\r\n")
            await peer.send(b"x" * 150_000)
            assert (await peer.answer()).status == 401
        async with await server.connect() as peer:
            await peer.send(b"POST /good HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            await peer.send((b"2710\r\n" + b"x" * 10_000 + b"\r\n") * 40)
            assert (await peer.answer()).status == 413
        async with await server.connect() as peer:
            await peer.send(b"POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")
            async with time_passes(mock_clock):
                assert (await peer.answer()).status == 408
        assert server.events() == []


async def test_a_handler_that_raises_is_a_500_and_the_connection_goes_on() -> None:
    async with running(Site().app) as server, await server.connect() as peer:
        answer = await peer.ask(b"GET /fails HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert (await peer.ask(GOOD)).status == 200
