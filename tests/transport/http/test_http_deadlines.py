"""Deadlines, the write rule and the connection caps, on real sockets with small limits. Where a limit could be missed by who is not to
miss it, time stands still until the test lets it pass."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import trio
import trio.testing
from loopback_server import (
    GOOD,
    Echo,
    expect_service,
    read_to_clean_end,
    respond,
    running,
    time_passes,
    until,
)

from server.transport.http.connection_limits import HttpLimits

SHORT = HttpLimits(
    tick_seconds=0.02, head_seconds=0.15, body_seconds=0.15, idle_seconds=0.15, handshake_seconds=0.15
)


async def test_a_silent_connection_is_closed_without_a_word() -> None:
    async with running(Echo(), SHORT) as server, await server.connect() as peer:
        assert await peer.to_end() == b""
        assert server.counters.late == 1


async def test_a_dripped_head_gets_408_however_steadily_it_drips(mock_clock: trio.testing.MockClock) -> None:
    async with running(Echo(), SHORT) as server, await server.connect() as peer:
        async with trio.open_nursery() as nursery:

            async def drip() -> None:
                await peer.stream.send_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
                while True:
                    await peer.stream.send_all(b"x")
                    await trio.testing.wait_all_tasks_blocked()
                    mock_clock.jump(0.01)

            nursery.start_soon(drip)
            answer = await peer.answer()
            nursery.cancel_scope.cancel()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        await expect_service(server)


@pytest.mark.parametrize("framing", [b"Content-Length: 1000", b"Transfer-Encoding: chunked"])
async def test_a_dripped_body_gets_408_however_steadily_it_drips(
    framing: bytes, mock_clock: trio.testing.MockClock
) -> None:
    app = Echo()
    async with running(app, SHORT) as server, await server.connect() as peer:
        async with trio.open_nursery() as nursery:

            async def drip() -> None:
                await peer.stream.send_all(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n")
                while True:
                    await peer.stream.send_all(b"1\r\nx\r\n")
                    await trio.testing.wait_all_tasks_blocked()
                    mock_clock.jump(0.01)

            nursery.start_soon(drip)
            await expect_service(server)
            answered = len(app.seen)
            answer = await peer.answer()
            nursery.cancel_scope.cancel()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert len(app.seen) == answered, "what dripped never reached the application"
        await expect_service(server)


async def test_a_second_head_that_does_not_end_gets_408_too(mock_clock: trio.testing.MockClock) -> None:
    async with running(Echo(), SHORT) as server, await server.connect() as peer:
        await peer.ask(GOOD)
        async with time_passes(mock_clock):
            assert (await peer.ask(b"GET /")).status == 408


async def test_an_idle_connection_is_closed_after_its_time_without_a_word(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with running(Echo(), SHORT) as server, await server.connect() as peer:
        await peer.ask(GOOD)
        async with time_passes(mock_clock):
            assert await peer.to_end() == b""


async def test_no_deadline_cuts_an_application_that_takes_its_time(
    mock_clock: trio.testing.MockClock,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(0.5)
        return await Echo()(scope, receive, send)

    async with running(app, SHORT) as server, await server.connect() as peer:
        await peer.send(GOOD)
        await trio.testing.wait_all_tasks_blocked()
        async with time_passes(mock_clock):
            assert (await peer.answer()).body == b"POST /good hi"


async def large_answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/good":
        return await Echo()(scope, receive, send)
    return await respond(send, 200, b"x" * 8_000_000)


async def test_a_reader_that_stalls_is_cut_while_others_are_served(
    mock_clock: trio.testing.MockClock,
) -> None:
    limits = HttpLimits(tick_seconds=0.02, write_stall_seconds=0.2)
    async with running(large_answer, limits) as server, await server.connect(receive_buffer=4096) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await expect_service(server)
        async with time_passes(mock_clock):
            await until(lambda: server.counters.stalled == 1)
        with pytest.raises(trio.BrokenResourceError):  # reset: the kernel keeps nothing for it
            await read_to_clean_end(peer)
        await expect_service(server)
        assert server.events() == []


async def test_a_reader_that_only_trickles_is_cut_when_the_window_is_over() -> None:
    limits = HttpLimits(tick_seconds=0.02, write_window_seconds=0.4, write_floor_bytes_per_second=50_000_000)
    async with running(large_answer, limits) as server, await server.connect(receive_buffer=4096) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        with trio.fail_after(60), suppress(trio.BrokenResourceError):
            while server.counters.stalled == 0:
                await peer.stream.receive_some(2048)
                await trio.sleep(0.01)
        assert server.counters.stalled == 1


async def test_an_honest_slow_reader_of_a_large_answer_gets_all_of_it(
    mock_clock: trio.testing.MockClock,
) -> None:
    """Reading takes several windows and many times the stall limit."""
    limits = HttpLimits(tick_seconds=0.02, write_stall_seconds=0.5, write_window_seconds=0.3)
    async with running(large_answer, limits) as server, await server.connect(receive_buffer=65536) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        received, began = 0, mock_clock.current_time()
        with trio.fail_after(60):
            while received < 8_000_000:
                data = await peer.stream.receive_some(65536)
                assert data, "cut"
                received += len(data)
                await trio.testing.wait_all_tasks_blocked()
                mock_clock.jump(0.01)
        assert mock_clock.current_time() - began > 3 * limits.write_window_seconds
        assert server.counters.stalled == 0


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
VITAL = frozenset({"/healthz"})


async def test_whether_it_lives_is_answered_though_there_is_no_room_for_anything_else() -> None:
    async with (
        running(Echo(), HttpLimits(connections=1), vital_paths=VITAL) as server,
        await server.connect() as holding,
    ):
        assert (await holding.ask(GOOD)).status == 200
        for _ in range(3):  # each place is free again with its answer
            async with await server.connect() as probe:
                assert (await probe.ask(HEALTH)).status == 200
                assert not await probe.more()
            async with await server.connect() as other:
                assert (await other.ask(GOOD)).status == 503
                assert not await other.more()
            async with await server.connect() as odd:
                assert (await odd.ask(b"GET / HTTP/9\r\n\r\n")).status == 400
                assert not await odd.more()
        assert server.counters.over_cap == 3
        assert (await holding.ask(GOOD)).status == 200


async def test_places_for_the_question_whether_it_lives_are_few_and_are_held_for_a_moment(
    mock_clock: trio.testing.MockClock,
) -> None:
    limits = HttpLimits(connections=1, vital_connections=2)
    async with (
        running(Echo(), limits, vital_paths=VITAL) as server,
        await server.connect() as holding,
        await server.connect() as silent,
        await server.connect() as dripping,
    ):
        assert (await holding.ask(GOOD)).status == 200
        await dripping.send(HEALTH[:20])
        await trio.testing.wait_all_tasks_blocked()
        async with await server.connect() as late:
            assert (await late.answer()).status == 503
        async with time_passes(mock_clock):
            for each in (silent, dripping):
                assert not await each.more()
        async with await server.connect() as probe:
            assert (await probe.ask(HEALTH)).status == 200


async def test_connections_over_the_cap_are_told_so_and_closed_and_a_place_given_back_is_used_again() -> None:
    async with running(Echo(), HttpLimits(connections=3)) as server:
        peers = [await server.connect() for _ in range(3)]
        for peer in peers:
            await peer.ask(GOOD)
        async with await server.connect() as refused:
            assert (await refused.answer()).status == 503
            assert not await refused.more()
        assert server.counters.over_cap == 1
        assert (await peers[0].ask(GOOD)).status == 200
        await trio.aclose_forcefully(peers[0].stream)

        async def served() -> bool:
            async with await server.connect() as peer:
                try:
                    return (await peer.ask(GOOD)).status == 200
                except trio.BrokenResourceError:
                    return False

        with trio.fail_after(60):
            while not await served():
                pass
        for peer in peers:
            await trio.aclose_forcefully(peer.stream)


@pytest.mark.slow
async def test_two_thousand_idle_connections_do_not_keep_a_good_client_waiting() -> None:
    import gc
    import resource
    from pathlib import Path

    def resident_kib() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024

    patient = HttpLimits(head_seconds=3600, idle_seconds=3600)
    async with running(Echo(), patient) as server:
        await expect_service(server)
        before = resident_kib()
        streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(2000)]
        await until(lambda: server.counters.accepted >= 2001)
        for stream in streams:
            await stream.send_all(GOOD)
        for stream in streams:
            assert await stream.receive_some(1000)
        after = resident_kib()
        await expect_service(server)
        print(f"2000 idle connections, client side included: {(after - before) / 2000:.1f} KiB each")
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def test_a_large_answer_has_to_be_read_faster_than_a_small_one() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        return await respond(send, 200, b"x" * 20_000_000)

    limits = HttpLimits(
        tick_seconds=0.02,
        write_window_seconds=0.3,
        write_floor_bytes_per_second=1,
        write_whole_seconds=2.0,
    )
    async with running(app, limits) as server, await server.connect(receive_buffer=4096) as peer:
        await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        with suppress(trio.BrokenResourceError):
            while not server.counters.stalled:
                assert await peer.stream.receive_some(1000)
                await trio.sleep(0.01)
        assert server.counters.stalled == 1


async def test_what_all_readers_have_not_taken_is_bounded_and_whoever_has_waited_for_longest_gives_way() -> (
    None
):
    size = 8_000_000
    limits = HttpLimits(unsent_bytes=2 * size, write_stall_seconds=3600, write_window_seconds=3600)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        return await respond(send, 200, b"x" * size)

    async with running(app, limits) as server, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(await server.connect(receive_buffer=4096)) for _ in range(4)]
        for number, peer in enumerate(peers):
            await peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await peer.more()  # it has come, and waits
            await until(lambda: server.counters.stalled == max(0, number - 1))  # noqa: B023
        for peer in peers[2:]:
            assert len((await peer.answer()).body) == size
        for peer in peers[:2]:
            assert len(await peer.to_end()) < size
