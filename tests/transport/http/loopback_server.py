"""A real server on a loopback port, and a peer that speaks bytes to it. Used by the tests of the connection layer."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
import trio
import trio.testing
from structlog.testing import CapturingLogger

from server.transport.http.asgi import hosting
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.connection_refusals import Disconnected
from server.transport.http.connection_table import Network
from server.transport.http.handler import Resolve
from server.transport.http.listen import ListenSettings, serve
from server.transport.http.server_tls import Secures
from server.transport.http.shared_state import Counters

App = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]

PATIENCE = 60.0  # the machine is slow at times: every wait is bounded by this, none is expected to last


@dataclass
class Running:
    urls: list[str]
    port: int
    draining: trio.Event
    ended: trio.Event
    counters: Counters
    logged: CapturingLogger
    scope: trio.CancelScope

    def events(self) -> list[str]:
        return [call.kwargs["event"] for call in self.logged.calls if call.method_name != "debug"]

    async def connect(self, host: str = "127.0.0.1", **options: Any) -> Peer:
        return Peer(await open_stream(host, self.port, **options))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Peer:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.buffer = b""

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self.stream)

    async def send(self, data: bytes) -> None:
        with trio.fail_after(PATIENCE):
            await self.stream.send_all(data)

    async def more(self) -> bool:
        with trio.fail_after(PATIENCE):
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                data = b""
        self.buffer += data
        return bool(data)

    async def to_end(self) -> bytes:
        while await self.more():
            pass
        return self.buffer

    async def line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            assert await self.more(), f"closed within a line: {self.buffer!r}"
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    async def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            assert await self.more(), "closed within a body"
        body, self.buffer = self.buffer[:size], self.buffer[size:]
        return body

    async def answer(self, *, method: str = "POST") -> Answer:
        version, status, *_ = (await self.line()).split(b" ", 2)
        assert version == b"HTTP/1.1", version
        headers: dict[str, str] = {}
        while line := await self.line():
            name, _, value = line.partition(b":")
            assert name.decode() not in headers, f"{name!r} twice"
            headers[name.decode()] = value.strip().decode()
        body = b""
        if method == "HEAD" or status in (b"100", b"204", b"304"):
            pass
        elif "content-length" in headers:
            assert "transfer-encoding" not in headers
            body = await self.exactly(int(headers["content-length"]))
        elif "transfer-encoding" in headers:
            while size := int(await self.line(), 16):
                body += await self.exactly(size)
                assert await self.line() == b""
            assert await self.line() == b""
        else:
            body, self.buffer = await self.to_end(), b""
        return Answer(int(status), headers, body)

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer(method=data.partition(b" ")[0].decode("latin-1"))


async def open_stream(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, receive_buffer: int | None = None
) -> trio.abc.Stream:
    sock = trio.socket.socket(trio.socket.AF_INET6 if ":" in host else trio.socket.AF_INET)
    try:
        if receive_buffer is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        with trio.fail_after(PATIENCE):
            await sock.connect((host, port))
            stream: trio.abc.Stream = trio.SocketStream(sock)
            if tls is not None:
                secure = trio.SSLStream(stream, tls, server_hostname="localhost")
                await secure.do_handshake()
                stream = secure
    except BaseException:
        sock.close()
        raise
    return stream


def capturing() -> tuple[Any, CapturingLogger]:
    sink = CapturingLogger()
    wrapper = structlog.make_filtering_bound_logger(0)
    return structlog.wrap_logger(sink, processors=[], wrapper_class=wrapper, context_class=dict), sink


@asynccontextmanager
async def running(
    app: App | None = None,
    limits: HttpLimits | None = None,
    *,
    resolve: Resolve | None = None,
    tls: Secures | None = None,
    bind: str = "127.0.0.1:0",
    **settings: Any,
) -> AsyncGenerator[Running]:
    """An ASGI application, or what else `resolve` leads to. Leaving the block cancels the server, unless a test has drained it before."""
    log, logged = capturing()
    counters = Counters()
    draining, ended = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[list[str]]) -> None:
            options = ListenSettings(
                binds=[bind], log=log, tls=tls, limits=limits or HttpLimits(), counters=counters, **settings
            )
            await serve(
                resolve or hosting(app or Echo()), options, draining=draining, task_status=task_status
            )
            ended.set()

        with trio.fail_after(PATIENCE):
            urls: list[str] = await nursery.start(run)
        port = int(urls[0].rpartition(":")[2]) if not urls[0].startswith("unix") else 0
        yield Running(urls, port, draining, ended, counters, logged, nursery.cancel_scope)
        nursery.cancel_scope.cancel()


@dataclass
class Echo:
    """Answers with what it was asked: method, path and body. Records every request it saw."""

    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    scopes: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await whole_body(receive)
        self.scopes.append(scope)
        self.seen.append((scope["method"], scope["path"], body))
        reply = f"{scope['method']} {scope['path']} ".encode() + body
        await respond(send, 200, reply)
        return


async def whole_body(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message["body"]
        if not message["more_body"]:
            return body


async def respond(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


GOOD = b"POST /good HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"


async def expect_service(server: Running) -> None:
    """A good client is answered."""
    async with await server.connect() as peer:
        answer = await peer.ask(GOOD)
        assert answer.status == 200
        assert answer.body == b"POST /good hi"


async def read_to_clean_end(peer: Peer) -> None:
    """Raises BrokenResourceError when the connection ends in a reset instead."""
    with trio.fail_after(PATIENCE):
        while await peer.stream.receive_some(65536):
            pass


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the server does on its own time."""
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.01)


@asynccontextmanager
async def time_passes(clock: trio.testing.MockClock) -> AsyncGenerator[None]:
    """Only here, and only when nobody has anything to do: no deadline is missed because the machine is slow."""

    async def go_by() -> None:
        while True:
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_by)
        yield
        nursery.cancel_scope.cancel()


def networks_of(texts: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)
