"""What the bridge is tested between: a program that speaks stdio in memory, and a server with streams that a test feeds.

The server knows sessions to the standard (2025-11-25) and nothing of tools: what a method answers, a test says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
import trio
from fake_server import Response, Seen, as_json

from server.client.access_token import Access
from server.client.bridge import Bridge
from server.client.bridge_paying import Purse
from server.client.bridge_relay import Patience
from server.client.carrier import Carrier
from server.client.http_exchange import open_client
from server.client.login_on_demand import Door, LogIn
from server.client.token_file import TokenFile
from server.payments.buyer.payer import Payer

MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "old"}}


class Stream:
    """An event stream that stays open until the test ends it or the client leaves."""

    def __init__(self) -> None:
        self.left = trio.Event()  # the client closed it
        self._send, self.pieces = trio.open_memory_channel[bytes](100)

    async def event(
        self, message: Any = None, *, event_id: str | None = None, retry: int | None = None
    ) -> None:
        text = "" if event_id is None else f"id: {event_id}\n"
        text += "" if retry is None else f"retry: {retry}\n"
        text += f"data: {'' if message is None else json.dumps(message)}\n\n"
        await self._send.send(text.encode())

    def end(self) -> None:
        self._send.close()

    def cut(self) -> None:
        """Break off in the middle of a chunked body."""
        self._send.send_nowait(b"")


Answer = Response | Stream
Method = Callable[[Seen], Awaitable[Answer]]


@dataclass
class StreamingServer:
    origin: str = ""
    version: str = "2025-11-25"
    offers_get: bool = True
    keeps_sessions: bool = True
    # By JSON-RPC method, or "GET", "DELETE", "response".
    methods: dict[str, Method] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    count: Counter[str] = field(default_factory=Counter)
    unasked: list[Stream] = field(default_factory=list)  # GET streams, in the order in which they were opened
    news: trio.Event = field(default_factory=trio.Event)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def forget(self) -> None:
        """As if it had been started again."""
        self.sessions.clear()

    def requests(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if _kind(seen) == method]

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait until something that the server sees makes `what` true."""
        with trio.fail_after(60):
            while not what():
                await self.news.wait()

    async def answer(self, request: Seen) -> Answer:
        self.seen.append(request)
        self.news.set()
        self.news = trio.Event()
        kind = _kind(request)
        if kind in self.methods:
            return await self.methods[kind](request)
        return self.usual(request)

    def usual(self, request: Seen) -> Answer:
        kind = _kind(request)
        if kind == "initialize":
            self.count["sessions"] += 1
            name = f"s-{self.count['sessions']}"
            self.sessions.add(name)
            opened = {"protocolVersion": self.version, "capabilities": {}, "serverInfo": {"name": name}}
            if self.keeps_sessions:
                return as_result(request, opened, mcp_session_id=name)
            return as_result(request, opened)
        session = request.headers.get("mcp-session-id")
        if self.keeps_sessions and session is not None and session not in self.sessions:
            return Response(404)
        if kind == "DELETE":
            self.sessions.discard(request.headers["mcp-session-id"])
            return Response(200)
        if kind == "GET":
            if not self.offers_get:
                return Response(405)
            self.unasked.append(Stream())
            return self.unasked[-1]
        if isinstance(request.message, list) or "id" not in request.message or kind == "response":
            return Response(202)
        return as_result(request, {"did": kind})


def _kind(request: Seen) -> str:
    if request.method != "POST":
        return request.method
    message = request.message
    return "batch" if isinstance(message, list) else message.get("method", "response")


def result(request: Seen, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.message["id"], "result": value}


def as_result(request: Seen, value: Any, **headers: str) -> Response:
    response = as_json(result(request, value))
    response.headers |= {name.replace("_", "-"): text for name, text in headers.items()}
    return response


def as_error(request: Seen, code: int, status: int = 200, **more: Any) -> Response:
    error = {"code": code, "message": "no"}
    return as_json({"jsonrpc": "2.0", "id": request.message.get("id"), "error": error, **more}, status)


def always(answer: Answer) -> Method:
    async def method(request: Seen) -> Answer:
        return answer

    return method


def streams(server: StreamingServer, method: str) -> list[Stream]:
    """Answer every request of `method` by a stream of its own from here on; return them as they are opened."""
    opened: list[Stream] = []

    async def answer(request: Seen) -> Answer:
        opened.append(Stream())
        return opened[-1]

    server.methods[method] = answer
    return opened


@asynccontextmanager
async def streaming(server: StreamingServer) -> AsyncGenerator[StreamingServer, None]:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            lambda task_status: trio.serve_tcp(
                lambda stream: _connection(server, stream), 0, host="127.0.0.1", task_status=task_status
            )
        )
        server.origin = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield server
        nursery.cancel_scope.cancel()


async def _connection(server: StreamingServer, stream: trio.SocketStream) -> None:
    try:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await _speak(server, stream)
    finally:
        await trio.aclose_forcefully(stream)


async def _speak(server: StreamingServer, stream: trio.SocketStream) -> None:
    http = h11.Connection(h11.SERVER)
    while True:
        request: h11.Request | None = None
        body = b""
        while not isinstance(event := http.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
        if request is None:
            return
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        answer = await server.answer(Seen(request.method.decode(), request.target.decode(), headers, body))
        if isinstance(answer, Stream):
            await _feed(http, stream, answer)
            return
        if answer.break_off:
            return
        sent = [*answer.headers.items(), ("content-length", str(len(answer.body)))]
        await stream.send_all(http.send(h11.Response(status_code=answer.status, headers=sent)) or b"")
        await stream.send_all(http.send(h11.Data(data=answer.body)) or b"")
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")
        http.start_next_cycle()


async def _feed(http: h11.Connection, stream: trio.SocketStream, answer: Stream) -> None:
    head = h11.Response(status_code=200, headers=[("content-type", "text/event-stream")])
    await stream.send_all(http.send(head) or b"")
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            with suppress(trio.BrokenResourceError):
                await stream.receive_some(1)
            answer.left.set()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        async for piece in answer.pieces:
            if not piece:
                nursery.cancel_scope.cancel()
                return
            await stream.send_all(http.send(h11.Data(data=piece)) or b"")
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")
        nursery.cancel_scope.cancel()


class Host:
    """The program at the other end of stdio."""

    def __init__(self) -> None:
        self.said: list[str] = []  # what the bridge told people
        self.slept: list[float] = []
        self.ended = trio.Event()
        self.attention = trio.Event()  # cleared by a program that has stopped reading
        self.attention.set()
        self.gone = False  # nobody reads any more
        self._in, self._read = trio.open_memory_channel[bytes](10_000)
        self._write, self._out = trio.open_memory_channel[bytes](10_000)

    async def read(self) -> bytes:
        try:
            return await self._read.receive()
        except trio.EndOfChannel:
            return b""

    async def write(self, line: bytes) -> None:
        if self.gone:
            raise BrokenPipeError
        await self.attention.wait()
        assert b"\n" not in line
        await self._write.send(line)

    def put(self, chunk: bytes) -> None:
        self._in.send_nowait(chunk)

    def send(self, *messages: Any) -> None:
        self.put(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def request(self, request_id: Any, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}})

    def modern(self, request_id: Any, method: str, params: Any = None) -> None:
        self.request(request_id, method, {**(params or {}), "_meta": MODERN_META})

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})

    def cancel(self, request_id: Any) -> None:
        self.notify("notifications/cancelled", {"requestId": request_id})

    async def hear(self) -> Any:
        with trio.fail_after(60):
            return json.loads(await self._out.receive())

    async def error(self) -> tuple[Any, int, str]:
        answer = await self.hear()
        return answer["id"], answer["error"]["code"], answer["error"]["message"]

    async def open_session(self) -> None:
        self.request("init", "initialize", INITIALIZE)
        assert (await self.hear())["id"] == "init"
        self.notify("notifications/initialized")

    def nothing_more(self) -> bool:
        return self._out.statistics().current_buffer_used == 0

    def hang_up(self) -> None:
        self._in.close()


@asynccontextmanager
async def bridged(
    url: str,
    file: TokenFile,
    *,
    log_in: LogIn | None = None,
    patience: Patience | None = None,
    max_line: int = 1024 * 1024,
    payer: Payer | None = None,
) -> AsyncGenerator[Host, None]:
    """A running bridge. At the end of the block its stdin ends, and it must come to its own end."""
    host = Host()

    async def sleep(seconds: float) -> None:
        host.slept.append(seconds)
        await trio.sleep(min(seconds, 0.01))

    async with open_client() as client, trio.open_nursery() as nursery:
        door = Door(Access(file, url, client=client), log_in)
        bridge = Bridge(
            Carrier(client, url, door),
            door,
            say=host.said.append,
            patience=patience,
            max_line=max_line,
            sleep=sleep,
            purse=None if payer is None else Purse(payer, url, host.said.append),
        )

        async def run() -> None:
            await bridge.run(host.read, host.write)
            host.ended.set()

        nursery.start_soon(run)
        yield host
        host.hang_up()
        with trio.fail_after(60):
            await host.ended.wait()
