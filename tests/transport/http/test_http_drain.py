"""The drain: what is idle goes at once, what is in flight ends well, what will not end is ended."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from loopback_server import GOOD, Echo, Running, respond, running, time_passes

from server.transport.http.connection_limits import HttpLimits
from server.transport.http.handler import Cycle


async def until_refused(server: Running) -> None:
    with trio.fail_after(60):
        while True:
            try:
                peer = await server.connect()
            except OSError:
                return
            await trio.aclose_forcefully(peer.stream)


async def test_a_drain_without_work_is_over_at_once_and_closes_listeners_and_idle_connections() -> None:
    async with running(Echo(), HttpLimits(drain_seconds=3600)) as server:
        async with await server.connect() as new, await server.connect() as used:
            await used.ask(GOOD)
            server.draining.set()
            with trio.fail_after(60):
                await server.ended.wait()
            assert await new.to_end() == b""
            assert await used.to_end() == b""
        with pytest.raises(OSError, match=r"."):
            await server.connect()


async def test_a_request_in_flight_is_finished_and_its_connection_closed() -> None:
    started, go = trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await go.wait()
        return await respond(send, 200, b"done")

    async with running(app, HttpLimits(drain_seconds=3600)) as server, await server.connect() as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        with trio.fail_after(60):
            await started.wait()
        server.draining.set()
        await until_refused(server)  # the listener closes at once, while the request still runs
        assert not server.ended.is_set()
        go.set()
        answer = await peer.answer()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        with trio.fail_after(60):
            await server.ended.wait()


async def test_a_stream_sees_the_drain_and_ends_politely() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await scope["state"]["draining"].wait()
        return await send({"type": "http.response.body", "body": b"bye"})

    async with running(app, HttpLimits(drain_seconds=3600)) as server, await server.connect() as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await peer.more()
        server.draining.set()
        assert (await peer.answer()).body == b"bye"
        with trio.fail_after(60):
            await server.ended.wait()


async def test_what_will_not_end_is_cancelled_at_the_deadline_and_can_clean_up() -> None:
    cleaned = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await trio.sleep_forever()
        finally:
            cleaned.set()

    async with running(app, HttpLimits(drain_seconds=0.1)) as server, await server.connect() as peer:
        await peer.send(GOOD)
        await peer.more()
        server.draining.set()
        with trio.fail_after(60):
            await server.ended.wait()
        assert cleaned.is_set()
        assert server.events() == []


class Waiting:
    """What never has an answer, and a word in its place."""

    client = None

    def __init__(self, word: Callable[[Cycle], Awaitable[None]]) -> None:
        self.started = trio.Event()
        self.stopped = trio.Event()
        self._word = word

    async def answer(self, cycle: Cycle) -> None:
        cycle.last_word = partial(self._word, cycle)
        self.started.set()
        try:
            await trio.sleep_forever()
        finally:
            self.stopped.set()

    def done(self, cycle: Cycle, seconds: float) -> None:
        """Nobody wants to know."""


async def test_what_is_not_waited_for_any_longer_ends_with_its_last_word() -> None:
    waiting = Waiting(lambda cycle: cycle.answer(503, (), b"not now"))
    limits = HttpLimits(drain_seconds=0, last_word_seconds=3600)
    async with running(resolve=lambda _: waiting, limits=limits) as server, await server.connect() as peer:
        await peer.send(GOOD)
        with trio.fail_after(60):
            await waiting.started.wait()
            server.draining.set()
            answer = await peer.answer()
            assert (answer.status, answer.body, answer.headers["connection"]) == (503, b"not now", "close")
            assert waiting.stopped.is_set()
            await server.ended.wait()


async def test_a_last_word_that_nobody_hears_does_not_hold_the_drain() -> None:
    waiting = Waiting(lambda _: trio.sleep_forever())
    limits = HttpLimits(drain_seconds=0, last_word_seconds=0.1)
    async with running(resolve=lambda _: waiting, limits=limits) as server, await server.connect() as peer:
        await peer.send(GOOD)
        with trio.fail_after(60):
            await waiting.started.wait()
            server.draining.set()
            await server.ended.wait()


async def test_a_client_that_refuses_to_read_cannot_hold_the_drain_and_a_good_one_beside_it_is_answered(
    mock_clock: trio.testing.MockClock,
) -> None:
    writing = trio.Event()
    working = trio.Event()
    finish = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            working.set()
            await finish.wait()
            return await respond(send, 200, b"done")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        writing.set()
        while True:
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})

    async with (
        running(app, HttpLimits(drain_seconds=1)) as server,
        await server.connect(receive_buffer=4096) as peer,
        await server.connect() as good,
    ):
        await peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await good.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        with trio.fail_after(60):
            await writing.wait()
            await working.wait()
            server.draining.set()
            finish.set()
            assert (await good.answer()).body == b"done"
            async with time_passes(mock_clock):
                await server.ended.wait()


async def test_a_client_that_keeps_sending_after_its_refusal_cannot_hold_the_drain() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        return await respond(send, 401, b"no")

    async with running(app, HttpLimits(drain_seconds=0.2)) as server, await server.connect() as peer:
        assert (
            await peer.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n")
        ).status == 401
        server.draining.set()
        with trio.fail_after(60):
            await server.ended.wait()


async def test_pipelined_requests_behind_the_one_in_flight_are_left_unanswered_by_a_close_that_says_so() -> (
    None
):
    started, go = trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await go.wait()
        return await respond(send, 200, b"done")

    async with running(app) as server, await server.connect() as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        with trio.fail_after(60):
            await started.wait()
        server.draining.set()
        go.set()
        assert (await peer.answer()).headers["connection"] == "close"
        assert not await peer.more()


async def test_a_cancelled_server_ends_at_once() -> None:
    async with running(Echo(), HttpLimits(drain_seconds=3600)) as server, await server.connect() as peer:
        await peer.ask(GOOD)
        server.scope.cancel()
    with pytest.raises(OSError, match=r"."):
        await server.connect()


async def test_a_producer_that_never_waits_can_be_cancelled_all_the_same() -> None:
    started = trio.Event()
    ran_out: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        started.set()
        for _ in range(500_000):
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        ran_out.append(True)
        return

    async with running(app, HttpLimits(drain_seconds=0.05)) as server, await server.connect() as peer:
        await peer.send(GOOD)
        with trio.fail_after(60):
            await started.wait()
            server.draining.set()
            await server.ended.wait()
    assert not ran_out


# What ends a peer that owes something, soon enough for a test; without it the drain would last an hour.
SOON = HttpLimits(drain_seconds=3600, drain_owed_seconds=0.1, drain_stall_seconds=0.1, tick_seconds=0.05)


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HTTP/1.1\r\nHo",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf",
    ],
    ids=["head", "body"],
)
async def test_who_owes_the_rest_of_a_request_has_a_moment_for_it(begun: bytes) -> None:
    async with running(Echo(), SOON) as server, await server.connect() as peer:
        await peer.ask(GOOD)  # served before, so that it is no newcomer
        await peer.send(begun)
        await trio.testing.wait_all_tasks_blocked()
        server.draining.set()
        assert (await peer.answer()).status == 408
        with trio.fail_after(60):
            await server.ended.wait()


async def test_a_body_that_drips_in_does_not_hold_the_drain() -> None:
    async with running(Echo(), SOON) as server, await server.connect() as peer:
        await peer.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        server.draining.set()
        with trio.fail_after(60):
            while not server.ended.is_set():
                with contextlib.suppress(trio.BrokenResourceError):
                    await peer.stream.send_all(b"x")
                await trio.sleep(0.02)


async def test_who_has_the_rest_of_its_request_in_time_is_answered(
    mock_clock: trio.testing.MockClock,
) -> None:
    """No time passes at all."""
    async with running(Echo(), HttpLimits(drain_seconds=3600)) as server, await server.connect() as peer:
        await peer.send(GOOD[:10])
        await trio.testing.wait_all_tasks_blocked()
        server.draining.set()
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(GOOD[10:])
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        with trio.fail_after(60):
            await server.ended.wait()


async def test_a_reader_that_has_stopped_reading_does_not_hold_the_drain() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})

    async with running(app, SOON) as server, await server.connect(receive_buffer=4096) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await peer.more()
        server.draining.set()
        with trio.fail_after(60):
            await server.ended.wait()
        assert server.counters.stalled == 1
