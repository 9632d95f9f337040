"""MCP servers that do what a test tells them to, in either era, over TCP or HTTP in this very process; and a back-end in front of
one, set up as a test wants both."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import structlog
import trio

from server.agents.base.backend import Announce, ToolCall
from server.agents.mcp.mcp_settings import McpConfig, problems
from server.agents.mcp.offer_guard import OfferGuard, OpenGuard
from server.agents.mcp.remote_suspended import RemoteSuspended
from server.agents.mcp.upstream_agent import MakeBuyer, McpBackend, TellReceipt
from server.agents.mcp.upstream_credentials import StaticCredential
from server.client.mcp_session.session_request import Credential
from server.mcp.call_outlet import LogMessage, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from tests.agents.python.fake_agent import caller_of

PATIENCE = 60  # seconds that any wait in these tests may take on a slow machine
MODERN = "2026-07-28"
CAN_ALL = frozenset({"elicitation", "elicitation.url", "sampling", "sampling.tools", "roots"})


class Log:
    """Events by name, with what they hold."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.logger: Any = structlog.wrap_logger(
            None,
            processors=[self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            context_class=dict,
        )

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    def _keep(self, _: object, level: str, event: Any) -> Any:
        self.events.append({**event, "level": level})
        raise structlog.DropEvent


Say = Callable[[Mapping[str, Any]], Awaitable[None]]


class Refused(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


@dataclass
class Turn:
    """One request that the double answers."""

    double: Double
    id: Any
    params: Mapping[str, Any]
    say: Say
    headers: Mapping[str, str]

    @property
    def modern(self) -> bool:
        return "io.modelcontextprotocol/protocolVersion" in self.params.get("_meta", {})

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.params.get("arguments") or {}

    async def tell(self, method: str, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def progress(self, done: float, message: str = "") -> None:
        token = self.params["_meta"]["progressToken"]
        await self.tell(
            "notifications/progress", progressToken=token, progress=done, total=3, message=message
        )

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """As in the handshake era. The whole answer of the other side."""
        number = f"ask-{next(self.double.numbers)}"
        answered = self.double.answers[number] = _Answer()
        await self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        await answered.came.wait()
        return answered.message


@dataclass
class _Answer:
    came: trio.Event = field(default_factory=trio.Event)
    message: dict[str, Any] = field(default_factory=dict)


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


async def parrot(turn: Turn) -> Any:
    return text(str(turn.arguments.get("word", "-")))


Handler = Callable[[Turn], Awaitable[Any]]


@dataclass
class Double:
    """`handlers` answer tools by their names, and methods by theirs."""

    era: str = "handshake"  # or "stateless", or "both"
    version: str = "2025-11-25"
    handlers: dict[str, Handler] = field(default_factory=lambda: {"say": parrot})
    lists: dict[str, list[Any]] = field(default_factory=lambda: {"tools": [tool("say")]})
    capabilities: dict[str, Any] = field(default_factory=lambda: {"tools": {}})
    session: str | None = None  # over HTTP, in the handshake era
    sessions: set[str] | None = (
        None  # over HTTP: those that were begun, where each `initialize` begins another
    )
    ended: list[str] = field(default_factory=list)  # over HTTP: sessions that were deleted
    news: dict[str, Say] | None = None  # over HTTP: the streams of sessions, where there are such
    heard: list[dict[str, Any]] = field(default_factory=list)
    heads: list[Mapping[str, str]] = field(default_factory=list)
    answers: dict[str, _Answer] = field(default_factory=dict)
    cancelled: list[Any] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    listeners: list[Say] = field(default_factory=list)  # over TCP: every connection
    connections: int = 0
    hang_up: list[Callable[[], None]] = field(default_factory=list)  # over TCP: every connection
    let_in: str | None = None  # over HTTP: what Authorization has to be
    methods: list[str] = field(default_factory=list)  # over HTTP, besides POST
    statuses: list[tuple[int, bytes]] = field(default_factory=list)  # over HTTP: what comes of the next calls
    turned_away: list[str] = field(default_factory=list)  # over 2024-11-05: methods that are not taken
    left: int = 0  # requests whose client went away

    def of(self, method: str) -> list[dict[str, Any]]:
        return [each for each in self.heard if each.get("method") == method]

    def hear(self, message: dict[str, Any], headers: Mapping[str, str]) -> None:
        self.heard.append(message)
        self.heads.append(headers)

    async def take(self, message: dict[str, Any], say: Say, headers: Mapping[str, str]) -> None:
        """Answers through `say`."""
        if "method" not in message:
            answered = self.answers.get(message.get("id", ""))
            if answered is not None:
                answered.message = message
                answered.came.set()
            return
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                self.cancelled.append(message["params"]["requestId"])
            return
        turn = Turn(self, message["id"], message.get("params") or {}, say, headers)
        try:
            result = await self._result(message["method"], turn)
        except Refused as refused:
            await say({"jsonrpc": "2.0", "id": message["id"], "error": refused.error})
            return
        if result is not None:
            modern = {"resultType": "complete"} if turn.modern else {}
            await say({"jsonrpc": "2.0", "id": message["id"], "result": {**modern, **result}})

    async def _result(self, method: str, turn: Turn) -> Any:
        if method in self.handlers:
            return await self.handlers[method](turn)
        if method == "server/discover" and self.era != "handshake":
            return {"supportedVersions": [MODERN], "capabilities": self.capabilities}
        if method == "initialize" and self.era != "stateless":
            info = {"name": "double", "version": "1"}
            return {"protocolVersion": self.version, "capabilities": self.capabilities, "serverInfo": info}
        kind = {
            "tools/list": "tools",
            "resources/list": "resources",
            "resources/templates/list": "resourceTemplates",
            "prompts/list": "prompts",
        }.get(method)
        if kind is not None:
            return {kind: self.lists.get(kind, [])}
        if method == "tools/call":
            handler = self.handlers.get(turn.params["name"])
            if handler is None:
                raise Refused(-32602, f"unknown tool: {turn.params['name']}")
            return await handler(turn)
        if method in ("ping", "logging/setLevel", "resources/subscribe"):
            return {}
        if method == "subscriptions/listen":
            await trio.sleep_forever()
        raise Refused(-32601, f"method not found: {method}")


@asynccontextmanager
async def over_tcp(double: Double) -> AsyncGenerator[str]:
    """host:port"""

    async def serve(stream: trio.SocketStream) -> None:
        double.connections += 1
        here = {"connection": str(double.connections)}
        lock = trio.Lock()

        async def say(message: Mapping[str, Any]) -> None:
            async with lock:
                await stream.send_all(json.dumps(message).encode() + b"\n")

        double.listeners.append(say)
        double.hang_up.append(partial(stream.socket.shutdown, socket.SHUT_RDWR))
        held = b""
        try:
            async with stream, trio.open_nursery() as nursery:
                async for data in stream:
                    *lines, held = (held + data).split(b"\n")
                    for line in lines:
                        double.hear(json.loads(line), here)
                        nursery.start_soon(double.take, json.loads(line), say, here)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        try:
            yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_http(double: Double, *, sse: bool = False) -> AsyncGenerator[str]:
    """Its address. `sse`: answers are streams of events even where nothing is said before them."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            async with stream:
                while (request := await read_request(stream)) is not None:
                    await _answer(double, stream, *request, sse=sse)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        try:
            yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def with_streams(double: Double, *, old: bool = False) -> AsyncGenerator[tuple[str, list[Any]]]:
    """Of the handshake era, with a stream on GET; `old`: the transport of 2024-11-05, which has nothing else. What is posted for a stream
    comes with its number as the session."""
    streams: list[Any] = []

    async def serve(stream: trio.SocketStream) -> None:
        async def say_on(number: int, message: Mapping[str, Any]) -> None:
            event = b"data: " + json.dumps(message).encode() + b"\n\n"
            await streams[number - 1].send_all(b"%x\r\n%s\r\n" % (len(event), event))

        async def reply(status: int, body: bytes = b"") -> None:
            kind = "Content-Type: application/json\r\n" if body else ""
            head = f"HTTP/1.1 {status} Whatever\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)

        async def post(headers: dict[str, str], body: bytes) -> None:
            message = json.loads(body)
            double.hear(message, headers)
            if old:
                number = headers[":path"].rpartition("=")[2]
                here = {**headers, "mcp-session-id": number}
                await reply(202 if message.get("method") not in double.turned_away else 403)
                nursery.start_soon(double.take, message, partial(say_on, int(number)), here)
                return
            answers: list[Any] = []

            async def keep(answer: Any) -> None:
                answers.append(answer)

            await double.take(message, keep, {})
            await reply(200 if answers else 202, json.dumps(answers[0]).encode() if answers else b"")

        try:
            async with stream:
                while (request := await read_request(stream)) is not None:
                    method, headers, body = request
                    if method == "GET":
                        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                        streams.append(stream)
                        named = f"event: endpoint\ndata: /messages?session={len(streams)}\n\n".encode()
                        event = named if old else b": hello\n\n"
                        await stream.send_all(head.encode() + b"%x\r\n%s\r\n" % (len(event), event))
                        await trio.sleep_forever()
                    elif old and headers[":path"] == "/sse":
                        await reply(405)
                    else:
                        await post(headers, body)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/sse", streams
        nursery.cancel_scope.cancel()


async def read_request(stream: trio.SocketStream) -> tuple[str, dict[str, str], bytes] | None:
    received = b""
    while b"\r\n\r\n" not in received:
        data = await stream.receive_some(65536)
        if not data:
            return None
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive_some(65536)
    method, path, _ = first.split(" ")
    return method, {**headers, ":path": path}, body


async def _answer(
    double: Double, stream: trio.SocketStream, method: str, headers: dict[str, str], body: bytes, *, sse: bool
) -> None:
    async def reply(status: int, content: bytes = b"", more: str = "") -> None:
        kind = "Content-Type: application/json\r\n" if content else ""
        head = f"HTTP/1.1 {status} Whatever\r\n{kind}{more}Content-Length: {len(content)}\r\n\r\n"
        await stream.send_all(head.encode() + content)

    if double.let_in is not None and headers.get("authorization") != double.let_in:
        double.heads.append(headers)
        await reply(401, more='WWW-Authenticate: Bearer error="invalid_token"\r\n')
        return
    if double.session is not None and headers.get("mcp-session-id", double.session) != double.session:
        await reply(404)
        return
    if double.sessions is not None and headers.get("mcp-session-id", "") not in {"", *double.sessions}:
        await reply(404)
        return
    if method != "POST":
        double.methods.append(method)
        if method == "DELETE" and double.sessions is not None:
            double.ended.append(headers["mcp-session-id"])
        if method == "GET" and double.news is not None:
            await _listened(double.news, stream, headers["mcp-session-id"])
            return
        await reply(405 if method == "GET" else 200)
        return
    message = json.loads(body)
    double.hear(message, headers)
    if "id" not in message or "method" not in message:
        await double.take(message, _nowhere, headers)
        await reply(202)
        return
    if double.statuses and message["method"] == "tools/call":
        await reply(*double.statuses.pop(0))
        return
    begun_here = double.session
    if double.sessions is not None and message["method"] == "initialize":
        begun_here = f"s-{next(double.numbers)}"
        double.sessions.add(begun_here)
    session = f"Mcp-Session-Id: {begun_here}\r\n" if begun_here and message["method"] == "initialize" else ""
    if double.session is not None and message["method"] != "initialize" and "mcp-session-id" not in headers:
        await reply(400)
        return
    begun = False

    lock = trio.Lock()

    async def say(said: Mapping[str, Any]) -> None:
        nonlocal begun
        async with lock:
            final = said.get("id") == message["id"] and "method" not in said
            raw = json.dumps(said).encode()
            if final and not begun and not sse:
                status = (
                    404 if said.get("error", {}).get("code") == -32601 and double.era != "handshake" else 200
                )
                await reply(status, raw, session)
                return
            if not begun:
                begun = True
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{session}Transfer-Encoding: chunked\r\n\r\n"
                await stream.send_all(head.encode())
            event = b"data: " + raw + b"\n\n"
            await stream.send_all(b"%x\r\n%s\r\n" % (len(event), event) + (b"0\r\n\r\n" if final else b""))

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def until_gone() -> None:
                await trio.lowlevel.wait_readable(stream.socket)
                double.left += 1
                scope.cancel()

            nursery.start_soon(until_gone)
            await double.take(message, say, headers)
            nursery.cancel_scope.cancel()
    if scope.cancelled_caught:
        await stream.aclose()


async def _listened(news: dict[str, Say], stream: trio.SocketStream, session: str) -> None:
    """Say on the stream of a session what is put into `news`, for as long as it is there."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    await stream.send_all(head.encode())

    async def say(message: Mapping[str, Any]) -> None:
        event = b"data: " + json.dumps(message).encode() + b"\n\n"
        await stream.send_all(b"%x\r\n%s\r\n" % (len(event), event))

    news[session] = say
    await stream.receive_some(1)
    del news[session]
    await stream.aclose()


async def _nowhere(_: Mapping[str, Any]) -> None:
    raise AssertionError("a notification is not answered")


@dataclass
class Caller:
    """An outlet that keeps what it is told. `answer` answers questions, or raises."""

    answer: Callable[[Mapping[str, Question]], Mapping[str, Mapping[str, Any]]] | None = None
    events: list[Progress | LogMessage] = field(default_factory=list)
    asked: list[Mapping[str, Question]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    becomes_task: bool = False

    async def emit(self, event: Progress | LogMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append(event)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        await trio.lowlevel.checkpoint()
        self.asked.append(questions)
        assert self.answer is not None, f"nothing was to be asked: {questions}"
        return self.answer(questions)

    async def checkpoint(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.kept.append(data)

    async def become_task(self) -> bool:
        return self.becomes_task

    async def close_stream(self) -> None:
        """There is none."""


@dataclass
class Gate:
    """A back-end at work, and what it tells."""

    backend: McpBackend
    log: Log
    changes: int = 0
    updated: list[str] = field(default_factory=list)
    updated_for: list[tuple[str, str]] = field(default_factory=list)  # and for whom alone
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def call(self, name: str, caller: Caller | None = None, **more: Any) -> ToolResult:
        fields: dict[str, Any] = {
            "subject": "ada",
            "call_id": f"c{next(self.numbers)}",
            "arguments": {},
            **more,
        }
        fields["caller"] = caller_of(fields["subject"])
        with trio.fail_after(PATIENCE):
            return await self.backend.call(ToolCall(tool=name, **fields), caller or Caller())

    async def say(self, word: str, **more: Any) -> str:
        return words(await self.call("say", arguments={"word": word}, **more))


def words(result: ToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@asynccontextmanager
async def gate(
    *,
    credential: Credential | None = None,
    guard: OfferGuard | None = None,
    buying: MakeBuyer | None = None,
    tell_receipt: TellReceipt | None = None,
    parked: RemoteSuspended | None = None,
    before: Callable[[Gate], None] = lambda _: None,
    **settings: Any,
) -> AsyncGenerator[Gate]:
    config = msgspec.convert({"start_seconds": PATIENCE, **settings}, McpConfig)
    assert problems(config) == []
    log = Log()
    backend = McpBackend(
        config,
        credential=credential or StaticCredential({}),
        guard=guard or OpenGuard(),
        environment={"PATH": "/usr/bin:/bin"},
        name="test[1]",
        log=log.logger,
        buying=buying,
        tell_receipt=tell_receipt,
        parked=parked,
    )
    found = Gate(backend, log)
    before(found)

    def changed() -> None:
        found.changes += 1

    with trio.fail_after(PATIENCE * 3):
        async with trio.open_nursery() as nursery:
            announce = Announce(
                lists=changed,
                resource=found.updated.append,
                own_resource=lambda uri, apart: found.updated_for.append((uri, apart)),
            )
            await nursery.start(backend.run, announce)
            yield found
            nursery.cancel_scope.cancel()


async def soon(happened: Callable[[], object]) -> None:
    """Returns when it has happened, in another task or beyond a socket: there is nothing else to wait for."""
    with trio.fail_after(PATIENCE):
        while not happened():
            await trio.sleep(0.005)
