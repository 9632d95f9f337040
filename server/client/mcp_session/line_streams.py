"""Messages as lines, to and from one other program: over the pipes of a child process, or a TCP connection.

A line is a message of the protocol (basic/transports/stdio). The contents are not known here.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

import trio

from server.client.mcp_session.session_messages import MESSAGE_BYTES, ServerAway, ServerGone, said_too_much
from server.lib.line_outbox import LineOutbox
from server.lib.line_peer import BrokenLine, LineFraming, Peer

READ_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 10.0
LAST_WORDS_SECONDS: Final = 2.0
# A message that is too long is passed over, and its id found in one of its ends. Whoever says one without an end is not listened to.
END_BYTES: Final = 1024
PASSED_OVER: Final = 16  # times the size of the longest that is taken


class MessageStream(Protocol):
    """`run` is for one task as long as it is used, `receive` for one, `send` for any. `most`: the bytes of the longest message that is taken."""

    most: int

    async def run(self) -> None: ...

    def send_nowait(self, message: bytes) -> bool:
        """Send a message; False: there is no room for it now."""
        ...

    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> Sequence[bytes]:
        """Return the next messages, as they came, or a `CutLine` of one that is too long. Raises `BackendError` at the end, which says
        how it came."""
        ...

    async def aclose(self) -> None: ...


class LineStream:
    """A stream of messages with a `Peer`, which ends when the stream is closed."""

    def __init__(self, peer: Peer, most: int = MESSAGE_BYTES) -> None:
        """Take the peer over. `most`: the bytes of the longest message that is taken."""
        self.most = most
        self._peer = peer
        self._framing = LineFraming(most, ends=END_BYTES, most=PASSED_OVER * most)
        self._reading = trio.CancelScope()
        self._deaf = False  # it does not read any more
        self._outbox = LineOutbox(peer.input, self._hears_nothing)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._peer.listen)
            nursery.start_soon(self._outbox.run)

    def send_nowait(self, message: bytes) -> bool:
        return self._outbox.put(message + b"\n")

    async def send(self, message: bytes) -> None:
        await self._outbox.send(message + b"\n")

    async def receive(self) -> Sequence[bytes]:
        output = self._peer.output
        with trio.CancelScope() as self._reading:
            while not self._deaf:
                # Even where there is more to read: who says much leaves room for others.
                await output.news()
                data = output.read_some()
                if data is None:
                    continue
                if not data:
                    break
                try:
                    lines = [line for line in self._framing.feed(data) if line and not line.isspace()]
                except BrokenLine:
                    raise said_too_much(PASSED_OVER * self.most) from None
                if lines:
                    return lines
        raise await self._how_it_ended()

    async def aclose(self) -> None:
        self._outbox.close()
        await self._peer.aclose()

    def _hears_nothing(self) -> None:
        self._deaf = True
        self._reading.cancel()

    async def _how_it_ended(self) -> ServerGone:
        with trio.move_on_after(LAST_WORDS_SECONDS):
            return ServerGone(f"has ended ({await self._peer.ended()})", more=self._peer.last_words())
        return ServerGone("no longer listens, or no longer speaks")


class _SocketEnd:
    def __init__(self, wire: socket.socket) -> None:
        self._socket = wire

    def write_some(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def room(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    def read_some(self) -> bytes | None:
        try:
            return self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def news(self) -> Awaitable[None]:
        return trio.lowlevel.wait_readable(self._socket)  # noqa: ASYNC105 - awaited by who asks

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()


class TcpPeer:
    """The program at the other end of a TCP connection of ours."""

    def __init__(self, stream: trio.SocketStream) -> None:
        """Take the socket over: the stream is of no use after that."""
        made = stream.socket
        family, kind, protocol = made.family, made.type, made.proto
        wire = socket.socket(family, kind, protocol, fileno=made.detach())
        wire.setblocking(False)
        self._end: Final = _SocketEnd(wire)

    @property
    def input(self) -> _SocketEnd:
        return self._end

    @property
    def output(self) -> _SocketEnd:
        return self._end

    async def listen(self) -> None:
        """Return at once, as it says nothing besides."""

    async def ended(self) -> str:
        return "it closed the connection"

    def last_words(self) -> str:
        return ""

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            await self._end.aclose()


async def dial(address: str, most: int = MESSAGE_BYTES) -> LineStream:
    """Connect to a host and a port. Raises `ServerAway`."""
    host, _, port = address.rpartition(":")
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
    except (OSError, trio.TooSlowError) as error:
        raise ServerAway("cannot be reached: nobody answers there") from error
    return LineStream(TcpPeer(stream), most)
