"""MCP over TCP: lines as over pipes, a conversation of its own for each connection.

Nobody says here who they are: whoever reaches the port may call. A browser could be made to reach it by any page, with messages in the body
of a request; so a connection that begins with anything but a message is closed before a line of it is read.
"""

from __future__ import annotations

import itertools
import math
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import trio

from server.client.stdio_lines import CHUNK, Read, Write
from server.lib.log.logger import Logger
from server.transport.stdio.stdio_conversation import PipeConversation

# At once. Each may have as many requests as a client over pipes.
MAX_CONNECTIONS: Final = 64
# For the beginning of its first message: a connection that says nothing has no place for long.
FIRST_SECONDS: Final = 30.0
BLANK: Final = b" \t\r\n"
MESSAGES_BEGIN: Final = (b"{", b"[")

MakeConversation: TypeAlias = Callable[[str], PipeConversation]


async def serve_connections(
    listeners: Sequence[trio.SocketListener],
    make: MakeConversation,
    *,
    stopping: trio.Event,
    log: Logger,
    most: int = MAX_CONNECTIONS,
) -> None:
    """Until `stopping` is set and every conversation has ended."""
    open_now, numbers = 0, itertools.count(1)

    async def take(stream: trio.SocketStream) -> None:
        nonlocal open_now
        if open_now >= most:
            log.warning("connection.refused", reason=f"{most} are open already")
            await stream.aclose()
            return
        open_now += 1
        try:
            await _converse(make(f"-{next(numbers)}"), stream, stopping, log)
        except Exception:
            log.exception("connection.crashed")
        finally:
            open_now -= 1

    async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
        for listener in listeners:
            accepting.start_soon(_accept, listener, connections, take)
        await stopping.wait()
        accepting.cancel_scope.cancel()


async def _accept(
    listener: trio.SocketListener,
    connections: trio.Nursery,
    take: Callable[[trio.SocketStream], Awaitable[None]],
) -> None:
    """Closes the listener at its end. `connections` outlive that, and end by themselves."""
    await trio.serve_listeners(take, [listener], handler_nursery=connections)


async def _converse(
    conversation: PipeConversation, stream: trio.SocketStream, stopping: trio.Event, log: Logger
) -> None:
    over = trio.Event()
    with suppress(OSError):  # some do not have it
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def stop() -> None:
        await stopping.wait()
        over.set()

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await conversation.run(_reader(stream, log), _writer(stream), stopping=over)
        nursery.cancel_scope.cancel()


def _reader(stream: trio.SocketStream, log: Logger) -> Read:
    begun, until = False, trio.current_time() + FIRST_SECONDS

    async def read() -> bytes:
        nonlocal begun
        data = None
        with trio.move_on_at(math.inf if begun else until):
            try:
                data = await stream.receive_some(CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
        if data is None:
            log.warning("connection.refused", reason=f"nothing came for {FIRST_SECONDS:.0f} seconds")
            return b""
        if begun:
            return data
        told = data.lstrip(BLANK)
        if told and not told.startswith(MESSAGES_BEGIN):
            log.warning("connection.refused", reason="it did not begin with a message")
            return b""
        begun = bool(told)
        return data

    return read


def _writer(stream: trio.SocketStream) -> Write:
    async def write(lines: bytes) -> None:
        try:
            await stream.send_all(lines + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise BrokenPipeError from None

    return write
