"""An upstream that is bytes on a socket: it reads a request, and does whatever a test tells it to."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import trio

from server.lib.http_client.fetch import Fetcher

PATIENCE = 60  # seconds that anything in these tests may take on a slow machine
LIMIT = 64 * 1024

Play = Callable[["Visitor"], Awaitable[None]]


@dataclass
class Visitor:
    """One connection, from the upstream's side."""

    number: int  # counted from 0
    stream: trio.abc.Stream
    plain: trio.SocketStream
    received: bytearray = field(default_factory=bytearray)

    async def request(self) -> bytes | None:
        """The body of the next request; None when there is none."""
        while (end := self.received.find(b"\r\n\r\n")) < 0:
            if not await self._more():
                return None
        head = bytes(self.received[:end]).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(self.received) < end + 4 + length:
            if not await self._more():
                return None
        body = bytes(self.received[end + 4 : end + 4 + length])
        del self.received[: end + 4 + length]
        return body

    async def head_only(self) -> None:
        while b"\r\n\r\n" not in self.received:
            assert await self._more()

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def drip(self, data: bytes) -> None:
        """Each byte in a segment of its own."""
        for at in range(len(data)):
            await self.stream.send_all(data[at : at + 1])
            await trio.lowlevel.checkpoint()

    def hang_up(self) -> None:
        with suppress(OSError):  # the caller may be gone already
            self.plain.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.plain.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.plain.socket.close()

    async def wait_gone(self) -> None:
        """Until the caller has closed the connection."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _more(self) -> bytes:
        data = bytes(await self.stream.receive_some(65536))
        self.received += data
        return data


@dataclass
class RawUpstream:
    url: str
    connections: int = 0
    open_now: int = 0
    most_open: int = 0

    async def wait_until_nobody_is_left(self) -> None:
        while self.open_now:
            await trio.sleep(0.001)


@asynccontextmanager
async def raw_upstream(play: Play, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawUpstream]:
    """`play` is run for each connection, which is closed afterwards."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    upstream = RawUpstream(f"{'https' if tls else 'http'}://localhost:{port}/chat?a=b;c")

    async def serve(plain: trio.SocketStream) -> None:
        stream = trio.SSLStream(plain, tls, server_side=True, https_compatible=True) if tls else plain
        visitor = Visitor(upstream.connections, stream, plain)
        upstream.connections += 1
        upstream.open_now += 1
        upstream.most_open = max(upstream.most_open, upstream.open_now)
        try:
            async with plain:
                await play(visitor)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            upstream.open_now -= 1

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            yield upstream
            nursery.cancel_scope.cancel()


def leading_to(
    upstream: RawUpstream,
    heads: list[bytes],
    established: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n",
) -> Play:
    """A proxy that leads to this upstream, whatever it is asked for, and notes what that was."""

    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        received = bytes(visitor.received)
        heads.append(received.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        port = urlsplit(upstream.url).port or 0
        async with await trio.open_tcp_stream("127.0.0.1", port) as onward, trio.open_nursery() as nursery:

            async def hand_on(source: trio.abc.ReceiveStream, sink: trio.abc.SendStream) -> None:
                try:
                    while data := await source.receive_some(65536):
                        await sink.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
                nursery.cancel_scope.cancel()

            if received.startswith(b"CONNECT "):
                await visitor.send(established)
            else:
                await onward.send_all(received)
            nursery.start_soon(hand_on, visitor.stream, onward)
            nursery.start_soon(hand_on, onward, visitor.stream)

    return play


@asynccontextmanager
async def calling(upstream: RawUpstream, *, connections: int = 1) -> AsyncGenerator[Fetcher]:
    fetcher = Fetcher(upstream.url, connections=connections)
    try:
        yield fetcher
    finally:
        await fetcher.aclose()


@asynccontextmanager
async def calling_by_proxy(upstream: RawUpstream, *, connections: int = 1) -> AsyncGenerator[Fetcher]:
    """`calling`, for an upstream whose certificate is of upstream.example."""
    async with raw_upstream(leading_to(upstream, [])) as proxy:
        url = upstream.url.replace("localhost", "upstream.example")
        environment = {"all_proxy": proxy.url.partition("/chat")[0]}
        fetcher = Fetcher(url, connections=connections, environment=environment)
        try:
            yield fetcher
        finally:
            await fetcher.aclose()


async def ask(
    fetcher: Fetcher, body: bytes = b"{}", *, seconds: float = PATIENCE, limit: int = LIMIT
) -> tuple[int, bytes]:
    """Status and body; of an answer that is not 2xx too."""
    return await fetcher.exchange(
        fetcher.prepare("POST", []),
        body,
        deadline=trio.current_time() + seconds,
        limit=limit,
        beginning=limit,
    )


def answer(body: bytes, *fields: bytes, status: int = 200) -> bytes:
    lines = [b"HTTP/1.1 %d So" % status, *fields, b"Content-Length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)
