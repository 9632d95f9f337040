"""An agent's HTTP endpoint on a real socket, doing what a test tells it to: answers, delays, lies and disappearances."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from trio.testing import MockClock, wait_all_tasks_blocked

from auth.values.identity_model import ANONYMOUS, STRANGER, Principal, PrincipalKind
from server.agents.base.backend import ToolCall
from server.calls.rights.visitors import VISITOR
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question

PATIENCE = 60  # seconds that any wait in these tests may take on a slow machine
KEY = b"0123456789abcdef"
# By their subject, all that stand for more than one caller.
STRANGERS: Mapping[str, Principal] = {each.subject: each for each in (ANONYMOUS, STRANGER, VISITOR)}


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int  # which connection, counted from 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Exchange:
    request: Seen
    stream: trio.abc.Stream

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def reply(
        self, body: bytes | Mapping[str, Any], *, status: int = 200, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers)
        kind = (
            ""
            if any(name.lower() == "content-type" for name, _ in headers)
            else "Content-Type: application/json\r\n"
        )
        head = f"HTTP/1.1 {status} Whatever\r\n{kind}Content-Length: {len(raw)}\r\n{extra}\r\n"
        await self.send(head.encode() + raw)

    async def begin_stream(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, document: Mapping[str, Any]) -> None:
        await self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def wait_gone(self) -> None:
        """Returns when the other side has closed the connection."""
        try:
            while await self.stream.receive_some(4096):
                pass
        except trio.BrokenResourceError:
            pass


Handler = Callable[[Exchange], Awaitable[None]]


@dataclass
class FakeAgent:
    """`handler` answers; after it has returned the connection waits for its next request."""

    port: int
    scheme: str
    handler: Handler
    requests: list[Seen] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/api/chat"

    async def serve_connection(self, stream: trio.abc.Stream) -> None:
        number = self.connections
        self.connections += 1
        try:
            async with stream:
                while (request := await _read_request(stream, number)) is not None:
                    self.requests.append(request)
                    await self.handler(Exchange(request, stream))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


async def _read_request(stream: trio.abc.Stream, connection: int) -> Seen | None:
    received = b""
    while b"\r\n\r\n" not in received:
        data = await stream.receive_some(65536)
        if not data:
            return None
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive_some(65536)
    return Seen(method, target, headers, body, connection)


@asynccontextmanager
async def fake_agent(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[FakeAgent]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    agent = FakeAgent(port, "https" if tls else "http", handler)

    async def serve(stream: trio.SocketStream) -> None:
        await agent.serve_connection(
            trio.SSLStream(stream, tls, server_side=True, https_compatible=True) if tls else stream
        )

    with trio.fail_after(PATIENCE * 3):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            yield agent
            nursery.cancel_scope.cancel()


def says(
    body: bytes | Mapping[str, Any], *, status: int = 200, headers: Sequence[tuple[str, str]] = ()
) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.reply(body, status=status, headers=headers)

    return handler


def sends(raw: bytes) -> Handler:
    """Those bytes, and the connection is closed."""

    async def handler(exchange: Exchange) -> None:
        await exchange.send(raw)
        await exchange.stream.aclose()

    return handler


@dataclass
class Silent:
    """Never answers; tells when the request has come and when the caller has gone."""

    came: trio.Event = field(default_factory=trio.Event)
    gone: trio.Event = field(default_factory=trio.Event)

    async def __call__(self, exchange: Exchange) -> None:
        self.came.set()
        await exchange.wait_gone()
        self.gone.set()


async def pass_when(clock: MockClock, seconds: float, came: trio.Event) -> None:
    """A deadline passes while the request is being answered, and not on its way there."""
    await came.wait()
    await wait_all_tasks_blocked()
    clock.jump(seconds)


@dataclass
class Ear:
    """The caller's end of a call: keeps what it is told."""

    events: list[Progress | LogMessage] = field(default_factory=list)

    async def emit(self, event: Progress | LogMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append(event)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise AssertionError(f"nothing was to be asked: {questions}")

    async def checkpoint(self, data: Any) -> None:
        raise AssertionError("there was nothing to keep")

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None:
        raise AssertionError("the stream was to stay")


def tool_call(
    tool: str = "chat_with_agent", *, subject: str = "user-1", call_id: str = "call-7", **arguments: Any
) -> ToolCall:
    return ToolCall(
        tool=tool, arguments=arguments, subject=subject, caller=caller_of(subject), call_id=call_id
    )


def caller_of(subject: str) -> Principal:
    """Somebody with a login, unless it is the subject of callers without one."""
    return STRANGERS.get(subject) or Principal(kind=PrincipalKind.USER, subject=subject)


class Bytes:
    """Randomness that can be foretold: 1, 2, 3 …"""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")


def certificate(name: str = "localhost") -> tuple[bytes, bytes]:
    """A certificate that answers for itself, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private
