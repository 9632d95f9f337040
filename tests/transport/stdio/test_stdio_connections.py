"""MCP over TCP: who is let have one of the connections. What is said over them is e2e/test_from_agents_kt.py's."""

from __future__ import annotations

from typing import Any

import trio
from structlog.testing import CapturingLogger
from trio.testing import MockClock

from server.transport.stdio.tcp_connections import FIRST_SECONDS, serve_connections


async def test_a_connection_that_says_nothing_gives_its_place_back(mock_clock: MockClock) -> None:
    log, stopping, numbers = CapturingLogger(), trio.Event(), list[str]()

    class Conversation:
        async def run(self, read: Any, write: Any, *, stopping: trio.Event) -> None:
            while data := await read():
                await write(data.strip())

    def make(number: str) -> Any:
        numbers.append(number)
        return Conversation()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        logger: Any = log
        nursery.start_soon(lambda: serve_connections(listeners, make, stopping=stopping, log=logger, most=2))
        speaks, is_silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
        await speaks.send_all(b"{}\n")
        assert await speaks.receive_some() == b"{}\n"
        await is_silent.send_all(b" \n")
        while len(numbers) < 2:
            await trio.lowlevel.checkpoint()
        async with await trio.open_tcp_stream("127.0.0.1", port) as third:
            assert await third.receive_some() == b""
        mock_clock.jump(FIRST_SECONDS + 1)
        while await is_silent.receive_some():
            pass
        await speaks.send_all(b"[]\n")
        assert await speaks.receive_some() == b"[]\n"
        async with await trio.open_tcp_stream("127.0.0.1", port) as another:
            await another.send_all(b"{}\n")
            assert await another.receive_some() == b"{}\n"
        await speaks.aclose()
        await is_silent.aclose()
        stopping.set()
    reasons = [call.kwargs["reason"] for call in log.calls]
    assert reasons == ["2 are open already", "nothing came for 30 seconds"]
