"""A client of any era over either wire, so that one test says what holds on all of them.

Over HTTP it is tests.pair's, in the handshake era with a session; over a pipe it talks to a `Conversation` without a
process. Everything is in memory.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from io import StringIO
from typing import Any, NamedTuple

import structlog
import trio
import trio.testing

from auth.model import Principal, PrincipalKind
from server.backends.catalog import Source
from server.calls import Asked as AskedOfCalls
from server.calls import Calls
from server.desk import Tasking
from server.mcp.tasks import Completed, Ending
from server.sessions import Sessions
from server.stdio import Conversation
from server.store.inline import open_inline_store
from server.subscriptions import task_topic
from server.task_order import Order
from server.tasks import Tasks, TaskTerms
from tests.interaction.agents import USER, House
from tests.interaction.everything import everything
from tests.interaction.session_house import living
from tests.pair import Exchange, Talk, encode, legacy, modern, next_message, talk
from tests.requirements import Cell

NOW = 1_800_000_000_000
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOCAL = Principal(kind=PrincipalKind.LOCAL, subject="local:1000")
SAFELY = 10  # seconds in which everything that is in memory is done


class Reply(NamedTuple):
    message: Any  # the response
    before: list[Any]  # what was sent for the request before it
    status: int | None = None  # HTTP's

    @property
    def result(self) -> Any:
        assert "result" in self.message, self.message
        return self.message["result"]

    @property
    def error(self) -> Any:
        assert "error" in self.message, self.message
        return self.message["error"]

    @property
    def code(self) -> int:
        return self.error["code"]

    @property
    def text(self) -> str:
        return self.result["content"][0]["text"]


class Asked(ABC):
    """A request under way."""

    id: Any

    @abstractmethod
    async def next(self) -> Any:
        """The next message that is sent for it."""

    @abstractmethod
    async def cancel(self) -> None:
        """As the era and the wire have it."""

    @abstractmethod
    async def rest(self) -> list[Any]:
        """Everything that is still sent for it, when nothing more is going to happen."""

    status: int | None = None

    async def reply(self) -> Reply:
        before: list[Any] = []
        while "method" in (message := await self.next()):
            before.append(message)
        return Reply(message, before, self.status)


Next = Callable[[], Any]


class Client(ABC):
    """`capabilities` are what it declares: once, or with each request."""

    def __init__(self, cell: Cell, made: House, capabilities: Mapping[str, Any]) -> None:
        self.cell = cell
        self.made = made
        self.capabilities = capabilities
        self.welcome: Any = None  # the answer to `initialize`
        self._asked = 100

    @property
    def modern(self) -> bool:
        return self.cell.modern

    @abstractmethod
    def begins(
        self, method: str, params: Any = None, *, request_id: Any = None
    ) -> AbstractAsyncContextManager[Asked]: ...

    @abstractmethod
    async def raw(self, body: bytes) -> Any:
        """Anything, as it is; what is answered, or None."""

    @abstractmethod
    async def send(self, message: Any) -> None:
        """A notification or a response, which nothing is answered to."""

    @abstractmethod
    def aside(self) -> AbstractAsyncContextManager[Next]:
        """What belongs to no request (handshake era)."""

    async def ask(self, method: str, params: Any = None, *, request_id: Any = None) -> Reply:
        with trio.fail_after(SAFELY):
            async with self.begins(method, params, request_id=request_id) as asked:
                return await asked.reply()

    async def call(self, tool: str, arguments: Any = None, **more: Any) -> Reply:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments or {}, **more})

    async def note(self, method: str, params: Any = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def answer(self, request: Any, **what: Any) -> None:
        """To a request of the server's."""
        await self.send({"jsonrpc": "2.0", "id": request["id"], **what})

    def _id(self, wanted: Any) -> Any:
        self._asked += 1
        return self._asked if wanted is None else wanted

    def _build(self, method: str, params: Any, request_id: Any) -> tuple[bytes, dict[str, str]]:
        if not self.modern:
            return legacy(method, params, request_id=request_id)
        params = {**(params or {})}
        params["_meta"] = {CAPABILITIES: self.capabilities, **params.get("_meta", {})}
        body, headers = modern(method, params, request_id=request_id)
        if "taskId" in params:
            headers["mcp-name"] = params["taskId"]
        return body, headers


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _WebAsked(Asked):
    def __init__(self, client: WebClient, exchange: Exchange, request_id: Any) -> None:
        self._client = client
        self._exchange = exchange
        self.id = request_id

    async def next(self) -> Any:
        exchange = self._exchange
        with trio.fail_after(SAFELY):
            await exchange.started.wait()
            self.status = exchange.status
            if exchange.headers.get("content-type") == "application/json":
                return (await exchange.answer()).json
            return await next_message(exchange)

    async def cancel(self) -> None:
        if self._client.modern:
            self._exchange.hang_up()
        else:
            await self._client.note("notifications/cancelled", {"requestId": self.id})
        with trio.fail_after(SAFELY):
            await self._exchange.ended.wait()

    async def rest(self) -> list[Any]:
        with trio.fail_after(SAFELY):
            await self._exchange.ended.wait()
            body = (await self._exchange.answer()).body.decode()
        return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]


class WebClient(Client):
    talk: Talk | None = None

    @asynccontextmanager
    async def begins(
        self, method: str, params: Any = None, *, request_id: Any = None
    ) -> AsyncGenerator[Asked]:
        request_id = self._id(request_id)
        body, headers = self._build(method, params, request_id)
        async with self.made.pair.open(body=body, headers=headers | self._own) as exchange:
            yield _WebAsked(self, exchange, request_id)

    async def raw(self, body: bytes) -> Any:
        _, headers = self._build("ping", None, 0)
        answer = await self.made.pair.request(body=body, headers=headers | self._own)
        return answer.json if answer.body else None

    async def send(self, message: Any) -> None:
        _, headers = self._build("ping", None, 0)
        answer = await self.made.pair.request(body=encode(message), headers=headers | self._own)
        assert (answer.status, answer.body) == (202, b"")

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[Next]:
        assert self.talk is not None
        async with self.talk.listens() as stream:
            assert await stream.read() == b": keep-alive\n\n"

            async def next_aside() -> Any:
                with trio.fail_after(SAFELY):
                    return await next_message(stream)

            yield next_aside

    @property
    def _own(self) -> dict[str, str]:
        return {} if self.talk is None else self.talk.headers


# ── pipes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _PipeAsked(Asked):
    def __init__(self, client: PipeClient, request_id: Any) -> None:
        self._client = client
        self.id = request_id

    async def next(self) -> Any:
        with trio.fail_after(SAFELY):
            return await self._client.next(self.id)

    async def cancel(self) -> None:
        await self._client.note("notifications/cancelled", {"requestId": self.id})
        await trio.testing.wait_all_tasks_blocked()

    async def rest(self) -> list[Any]:
        await trio.testing.wait_all_tasks_blocked()
        return self._client.there(self.id)


class PipeClient(Client):
    """What is not for the request that is read for is put by for the one that it is for. `lines` is all that was said."""

    def __init__(
        self, cell: Cell, made: House, capabilities: Mapping[str, Any], conversation: Conversation
    ) -> None:
        super().__init__(cell, made, capabilities)
        self.lines: list[bytes] = []
        self.finished = trio.Event()  # the conversation is over
        self.stopping = trio.Event()
        self._conversation = conversation
        self._in, self._read = trio.open_memory_channel[bytes](1000)
        self._write, self._out = trio.open_memory_channel[bytes](1000)
        self._put_by: list[Any] = []

    async def run(self) -> None:
        async def read() -> bytes:
            try:
                return await self._read.receive()
            except trio.EndOfChannel:
                return b""

        async def write(lines: bytes) -> None:
            for line in lines.split(b"\n"):
                self.lines.append(line)
                await self._write.send(line)

        await self._conversation.run(read, write, stopping=self.stopping)
        self.finished.set()

    def close(self) -> None:
        """The client closes its end."""
        self._in.close()

    async def line(self, body: bytes) -> None:
        await self._in.send(body + b"\n")

    async def next(self, request_id: Any) -> Any:
        for message in self._put_by:
            if _is_for(message, request_id):
                self._put_by.remove(message)
                return message
        while not _is_for(message := json.loads(await self._out.receive()), request_id):
            self._put_by.append(message)
        return message

    def there(self, request_id: Any) -> list[Any]:
        """All that was said for it already, and was not read."""
        while True:
            try:
                self._put_by.append(json.loads(self._out.receive_nowait()))
            except trio.WouldBlock:
                break
        found = [message for message in self._put_by if _is_for(message, request_id)]
        self._put_by = [message for message in self._put_by if message not in found]
        return found

    @asynccontextmanager
    async def begins(
        self, method: str, params: Any = None, *, request_id: Any = None
    ) -> AsyncGenerator[Asked]:
        request_id = self._id(request_id)
        body, _ = self._build(method, params, request_id)
        await self.line(body)
        yield _PipeAsked(self, request_id)

    async def raw(self, body: bytes) -> Any:
        await self.line(body)
        await trio.testing.wait_all_tasks_blocked()
        try:
            return json.loads(self._out.receive_nowait())
        except trio.WouldBlock:
            return None

    async def send(self, message: Any) -> None:
        await self.line(encode(message))

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[Next]:
        async def next_aside() -> Any:
            with trio.fail_after(SAFELY):
                return await self.next(None)

        yield next_aside


def _is_for(message: Any, request_id: Any) -> bool:
    """Answers and subscriptions name their request. Anything else is for whoever reads: the tests keep it apart."""
    if isinstance(message, list):
        return True
    if "method" not in message:
        return message.get("id") == request_id and type(message.get("id")) is type(request_id)
    meta = message.get("params", {}).get("_meta", {})
    return meta.get("io.modelcontextprotocol/subscriptionId", request_id) == request_id


# ── opening one ──────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def client(
    cell: Cell,
    *sources: Source,
    capabilities: Mapping[str, Any] | None = None,
    handshake: bool = True,
    initialized: bool = True,
    tasks: bool = False,
    **how: Any,
) -> AsyncGenerator[Client]:
    """A client that has, in the handshake era, agreed on the cell's revision. Over HTTP it is logged in as `USER`. Without
    sources the server has `everything`; `tasks` adds an engine that keeps them in memory."""
    async with AsyncExitStack() as stack:
        engines: list[Tasks] = []
        changed: list[Callable[[str], None]] = []
        if tasks:
            how["tasks"] = await stack.enter_async_context(_engine(engines, changed))
        how.setdefault("tokens", {"t": USER})
        sessions = Sessions()
        made = (
            await stack.enter_async_context(living(*(sources or (everything(),)), sessions=sessions, **how))
        ).house
        if made.tokens is not None:
            made.pair.headers = {"authorization": "Bearer t"}
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        changed.append(lambda task_id: made.subscriptions.publish(task_topic(task_id)))
        for engine in engines:
            await nursery.start(engine.run)
        declared = {} if capabilities is None else capabilities
        one: Client
        if cell.transport == "http":
            one = await _web(cell, made, declared, handshake=handshake, initialized=initialized)
        else:
            one = pipe(cell, made, sessions, declared)
            nursery.start_soon(one.run)
            if handshake and not cell.modern:
                await _shake_hands(one, initialized=initialized)
        yield one


async def _web(
    cell: Cell, made: House, capabilities: Mapping[str, Any], *, handshake: bool, initialized: bool
) -> WebClient:
    one = WebClient(cell, made, capabilities)
    if handshake and not cell.modern:
        one.talk = await talk(
            made.pair, version=cell.version, capabilities=capabilities, initialized=initialized
        )
        one.welcome = one.talk.welcome.json["result"]
    return one


def pipe(cell: Cell, made: House, sessions: Sessions, capabilities: Mapping[str, Any]) -> PipeClient:
    endpoint: Any = made.pair.app
    conversation = Conversation(
        endpoint._lent, sessions, LOCAL, boot_id="boot", max_line=64 * 1024, drain_seconds=SAFELY
    )
    return PipeClient(cell, made, capabilities, conversation)


async def _shake_hands(one: PipeClient, *, initialized: bool) -> None:
    params = {
        "protocolVersion": one.cell.version,
        "capabilities": one.capabilities,
        "clientInfo": {"name": "pipe", "version": "1"},
    }
    one.welcome = (await one.ask("initialize", params)).result
    if initialized:
        await one.note("notifications/initialized")
        await trio.testing.wait_all_tasks_blocked()  # it has been read


@asynccontextmanager
async def _engine(
    engines: list[Tasks], changed: list[Callable[[str], None]]
) -> AsyncGenerator[Callable[[Calls], Tasking]]:
    """`changed` are told of each task that is another than before."""

    def announce(_server: str, task_id: str) -> None:
        for tell in changed:
            tell(task_id)

    async with open_inline_store(clock=lambda: NOW) as store:

        def tasking(calls: Calls) -> Tasking:
            async def perform(order: Order, outlet: Any) -> Ending:
                asked = AskedOfCalls(
                    order.principal.principal(),
                    order.tool,
                    order.arguments,
                    order.call_id,
                    outlet=outlet,
                    can=order.can,
                    wants_progress=True,
                    log_level="debug",
                    unhurried=True,
                )
                return Completed(await calls.call(asked))

            engine = Tasks(
                store,
                perform=perform,
                clock=lambda: NOW,
                entropy=secrets.token_bytes,
                key=bytes(32),
                boot_id="boot",
                log=structlog.wrap_logger(structlog.PrintLogger(StringIO())),
                announce=announce,
                terms=TaskTerms(),
            )
            engines.append(engine)
            return Tasking(
                name="main",
                tasks=engine,
                calls=calls,
                wasmagent=False,
                sync_timeout_seconds=25,
                ttl_ms=60_000,
            )

        yield tasking
