"""Somebody else's web server on a real socket with TLS, and an outside in which names lead to it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import trio

from server.lib.http_client.public_addresses import Address
from server.run.pinned_fetcher import EXCHANGES, Reach
from tests.made_certificates import trusting, write_certificate

HOST = "app.example"
PUBLIC = "93.184.216.34"
PATIENCE = 60

Handler = Callable[[bytes, trio.abc.Stream], Awaitable[None]]


def answer(
    body: bytes = b"{}", *, status: int = 200, headers: Sequence[str] = ("Content-Type: application/json",)
) -> bytes:
    lines = [f"HTTP/1.1 {status} So", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def says(*parts: bytes) -> Handler:
    async def handler(request: bytes, stream: trio.abc.Stream) -> None:
        for part in parts:
            await stream.send_all(part)

    return handler


@dataclass
class Stranger:
    """What it was asked, and how the names lead to it. Names that are not listed are not known."""

    port: int
    authority: Path
    handler: Handler
    names: dict[str, list[Sequence[str]]] = field(default_factory=lambda: {HOST: [[PUBLIC]]})
    requests: list[bytes] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    connected: list[tuple[str, int]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)  # addresses that do not pick up
    open_now: int = 0
    most_open: int = 0

    async def resolve(self, host: str) -> Sequence[Address]:
        """Each look-up takes the next answer of the name; the last one stays."""
        await trio.lowlevel.checkpoint()
        self.resolved.append(host)
        if host not in self.names:
            raise OSError("no such name")
        answers = self.names[host]
        texts = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(text) for text in texts]

    async def connect(self, address: Address, port: int) -> trio.SocketStream:
        self.connected.append((str(address), port))
        if str(address) in self.deaf:
            await trio.sleep_forever()
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    def reach(
        self,
        *,
        trust: Callable[[], ssl.SSLContext] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Reach:
        return Reach(
            resolve=self.resolve,
            connect=self.connect,
            trust=trust or (lambda: trusting(self.authority)),
            slots=trio.Semaphore(EXCHANGES),
            environment=environment or {},
        )

    def publishes(self, documents: Mapping[str, bytes]) -> None:
        """Answers by path, and says that there is nothing anywhere else."""

        async def handler(request: bytes, stream: trio.abc.Stream) -> None:
            path = request.split(b" ")[1].decode()
            await stream.send_all(
                answer(documents[path]) if path in documents else answer(b"", status=404, headers=())
            )

        self.handler = handler

    async def serve(self, plain: trio.abc.Stream, context: ssl.SSLContext) -> None:
        stream = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            async with plain:
                await stream.do_handshake()
                request = b""
                while b"\r\n\r\n" not in request:
                    data = await stream.receive_some(65536)
                    if not data:
                        return
                    request += data
                self.requests.append(request)
                await self.handler(request, stream)
                await stream.receive_some(1)  # until the other side closes
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.open_now -= 1


@asynccontextmanager
async def a_stranger(
    directory: Path, handler: Handler | None = None, *, host: str = HOST
) -> AsyncGenerator[Stranger]:
    authority, key = write_certificate(directory, "stranger", host=host)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, key)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    stranger = Stranger(listeners[0].socket.getsockname()[1], authority, handler or says(answer()))

    def noted(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        stranger.server_names.append(name)

    context.sni_callback = noted

    async def serve(stream: trio.SocketStream) -> None:
        await stranger.serve(stream, context)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            yield stranger
            nursery.cancel_scope.cancel()
