"""An in-memory client for an ASGI application under trio: whole answers, streams read event by event, and hanging up.

No sockets and no HTTP framing: what a connection does to bytes is tested with the connection.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from trio.testing import MockClock

App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]],
    Awaitable[None],
]

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ACCEPT_BOTH = "application/json, text/event-stream"


def patience() -> float:
    """For what is in memory and waits for nobody. A clock of the test's own says so exactly; on a real one the machine has its say."""
    return 10 if isinstance(trio.lowlevel.current_clock(), MockClock) else 60


@dataclass(kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The JSON of each event; comments are left out."""
        return [json.loads(event) for event in _data(self.body)]


@dataclass(kw_only=True)
class Exchange:
    """One request under way. Reading waits; `hang_up` is the client going away."""

    _chunks: trio.MemoryReceiveChannel[bytes]
    _gone: trio.Event
    started: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)  # the application has returned
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    _put_back: list[bytes] = field(default_factory=list)  # pieces of the body that are to be read again

    def hang_up(self) -> None:
        self._gone.set()

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end."""
        if self._put_back:
            return self._put_back.pop(0)
        try:
            return await self._chunks.receive()
        except trio.EndOfChannel:
            return b""

    async def event(self) -> Any:
        """The next event's JSON, past any comments."""
        while True:
            chunk = await self.read()
            if not chunk:
                raise AssertionError("the stream has ended")
            for data in _data(chunk):
                return json.loads(data)

    async def answer(self) -> Answer:
        body = b""
        while chunk := await self.read():
            body += chunk
        return Answer(status=self.status, headers=self.headers, body=body)


@dataclass(kw_only=True)
class Pair:
    app: App
    headers: Mapping[str, str] = field(default_factory=dict)  # sent with every request
    draining: trio.Event = field(default_factory=trio.Event)
    _count: int = 0

    @asynccontextmanager
    async def open(
        self,
        method: str = "POST",
        *,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        path: str = "/mcp",
        query: str = "",
    ) -> AsyncGenerator[Exchange]:
        """A request whose answer is read inside the block; leaving it cancels what is left of it."""
        self._count += 1
        sender, receiver = trio.open_memory_channel[bytes](1000)
        exchange = Exchange(_chunks=receiver, _gone=trio.Event())
        pairs = [*self.headers.items(), *(headers.items() if isinstance(headers, Mapping) else headers)]
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8420),
            "state": {"draining": self.draining, "request_id": f"request-{self._count}"},
        }
        pieces = list(body) if isinstance(body, list) else [body]

        async def receive() -> Mapping[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            await exchange._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            if exchange._gone.is_set():
                raise BrokenPipeError("the client has left")
            if message["type"] == "http.response.start":
                assert not exchange.started.is_set(), "an answer starts once"
                exchange.status = message["status"]
                exchange.headers = {
                    name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]
                }
                exchange.started.set()
                return
            assert exchange.started.is_set()
            exchange.raw += message["body"]
            if message["body"]:
                sender.send_nowait(message["body"])
            if not message["more_body"]:
                sender.close()

        async def run() -> None:
            with sender:
                await self.app(scope, receive, send)
            exchange.ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            yield exchange
            nursery.cancel_scope.cancel()

    async def request(
        self,
        method: str = "POST",
        *,
        body: bytes | list[bytes] = b"",
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        seconds: float | None = None,
    ) -> Answer:
        with trio.fail_after(patience() if seconds is None else seconds):
            async with self.open(method, body=body, headers=headers) as exchange:
                answer = await exchange.answer()
                await exchange.ended.wait()
        assert exchange.started.is_set(), "nothing was answered"
        return answer

    async def modern(
        self, method: str, params: Any = None, *, seconds: float | None = None, **headers: str
    ) -> Answer:
        """A 2026-07-28 request with everything that such a request has."""
        body, all_headers = modern(method, params)
        return await self.request(body=body, headers=all_headers | _names(headers), seconds=seconds)

    async def legacy(
        self,
        method: str,
        params: Any = None,
        *,
        version: str | None = None,
        seconds: float | None = None,
        **headers: str,
    ) -> Answer:
        """A request of the handshake era, without a session."""
        body, all_headers = legacy(method, params, version=version)
        return await self.request(body=body, headers=all_headers | _names(headers), seconds=seconds)


INTRODUCTION = {"capabilities": {}, "clientInfo": {"name": "pair", "version": "1"}}


def modern(method: str, params: Any = None, *, request_id: Any = 1) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a 2026-07-28 request."""
    params = {**(params or {})}
    params["_meta"] = {**META, **params.get("_meta", {})}
    headers = {
        "content-type": "application/json",
        "accept": ACCEPT_BOTH,
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
    }
    name = params.get("uri") if method == "resources/read" else params.get("name")
    if method in ("tools/call", "prompts/get", "resources/read") and isinstance(name, str):
        headers["mcp-name"] = name
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}), headers


def legacy(
    method: str, params: Any = None, *, version: str | None = None, request_id: Any = 1
) -> tuple[bytes, dict[str, str]]:
    """One that introduces itself says what else it has to, unless its parameters do."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        params = {**INTRODUCTION, **params} if method == "initialize" else params
        message["params"] = params
    headers = {"content-type": "application/json", "accept": ACCEPT_BOTH}
    if version is not None:
        headers["mcp-protocol-version"] = version
    return encode(message), headers


def encode(message: Any) -> bytes:
    return json.dumps(message).encode()


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _data(body: bytes) -> list[str]:
    return [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: ")]


# ── sessions of the handshake era ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One block of an event stream, a comment left out."""

    id: str | None = None
    data: str | None = None
    retry: str | None = None
    event: str | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.data or "")


def frames(body: bytes) -> list[Frame]:
    """The blocks of a whole stream."""
    found: list[Frame] = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append(Frame(**fields))
    return found


def messages(body: bytes) -> list[Any]:
    """The JSON of a stream's events, those without data left out."""
    return [frame.json for frame in frames(body) if frame.data]


async def next_frame(exchange: Exchange) -> Frame:
    """The next block of a stream. Blocks that came in one piece are put back."""
    while True:
        chunk = await exchange.read()
        if not chunk:
            raise AssertionError("the stream has ended")
        blocks = [block + b"\n\n" for block in chunk.split(b"\n\n") if block]
        if blocks[1:]:
            exchange._put_back.extend(blocks[1:])
        for frame in frames(blocks[0]):
            return frame


async def next_message(exchange: Exchange) -> Any:
    """The JSON of the next event that has any."""
    while True:
        frame = await next_frame(exchange)
        if frame.data:
            return frame.json


@dataclass(kw_only=True)
class NodeConversation:
    """A client in its session."""

    pair: Pair
    headers: dict[str, str]  # those of every request in the session
    welcome: Answer  # to `initialize`
    _asked: int = 1

    @property
    def id(self) -> str:
        return self.headers["mcp-session-id"]

    def opens(self, method: str, params: Any = None, *, request_id: Any = None, **headers: str) -> Any:
        """A request whose answer is read inside the block."""
        self._asked += 1
        body, own = legacy(method, params, request_id=self._asked if request_id is None else request_id)
        return self.pair.open(body=body, headers=own | self.headers | _names(headers))

    async def ask(
        self, method: str, params: Any = None, *, seconds: float | None = None, **how: Any
    ) -> Answer:
        """A request, and its whole answer."""
        with trio.fail_after(patience() if seconds is None else seconds):
            async with self.opens(method, params, **how) as exchange:
                return await exchange.answer()

    async def say(self, message: Any, **headers: str) -> Answer:
        """Anything else that is posted: notifications, answers, arrays."""
        own = {"content-type": "application/json", "accept": ACCEPT_BOTH}
        return await self.pair.request(body=encode(message), headers=own | self.headers | _names(headers))

    async def note(self, method: str, params: Any = None) -> Answer:
        return await self.say({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def reply(self, request: Any, **what: Any) -> Answer:
        """Our answer to a request of the server's."""
        return await self.say({"jsonrpc": "2.0", "id": request["id"], **what})

    def listens(self, last_event_id: str | None = None, **headers: str) -> Any:
        """The GET stream; with an id, the rest of the stream which that event was of."""
        own = {"accept": "text/event-stream"} | self.headers | _names(headers)
        if last_event_id is not None:
            own["last-event-id"] = last_event_id
        return self.pair.open("GET", headers=own)

    async def end(self) -> Answer:
        return await self.pair.request("DELETE", headers=self.headers)


async def talk(
    pair: Pair,
    *,
    version: str = "2025-11-25",
    capabilities: Any = None,
    initialized: bool = True,
    **headers: str,
) -> NodeConversation:
    """Begin a session."""
    own = _names(headers)
    params = {
        "protocolVersion": version,
        "capabilities": {} if capabilities is None else capabilities,
        "clientInfo": {"name": "pair", "version": "1"},
    }
    body, sent = legacy("initialize", params)
    welcome = await pair.request(body=body, headers=sent | own)
    assert welcome.status == 200, welcome.body
    own |= {"mcp-session-id": welcome.headers["mcp-session-id"], "mcp-protocol-version": version}
    made = NodeConversation(pair=pair, headers=own, welcome=welcome)
    if initialized:
        assert (await made.note("notifications/initialized")).status == 202
    return made


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    """Return a request as it is in JSON."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
