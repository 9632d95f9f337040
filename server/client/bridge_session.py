"""The side of a bridge that speaks MCP's handshake era (2024-11-05 to 2025-11-25, "Streamable HTTP") with the server: one session,
its GET stream, streams that broke and are resumed, and a session that was lost and is begun again.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from server.client.bridge_messages import (
    BridgedNotice,
    BridgedRequest,
    asking_for,
    decode,
    is_header_safe,
    one_line,
)
from server.client.bridge_relay import Patience, Relay, Revise, refusal
from server.client.carrier import Carrier, broken_off, hear, is_stream
from server.client.client_errors import BadAnswer, ClientError, NotLoggedIn, ScopeNeeded, Unreachable
from server.client.mcp_session.upstream_messages import METHOD_NOT_FOUND
from server.client.stdio_lines import Write
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.json_objects import mapping
from server.lib.server_sent_events import EventDecoder

if TYPE_CHECKING:
    from server.client.bridge_paying import Purse

# How often in a row a stream may fail to open before the call that waits for it is given up: some two minutes.
RESUME_TRIES = 8

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class SessionLost(ClientError):
    """The error that the server does not know our session, or no longer knows it."""


class _Session(msgspec.Struct, kw_only=True, eq=False):
    """The result of one handshake. Without an `id` the server keeps no session, and cannot lose it."""

    params: Mapping[str, Any]  # of the client's initialize
    id: str | None
    headers: dict[str, str]
    initialized: bool = False
    over: trio.Event = msgspec.field(default_factory=trio.Event)


class _Place(msgspec.Struct):
    """The position up to which a stream was read, over all its connections."""

    last_id: str | None = None
    retry_millis: int | None = None
    idle: int = 0  # connections in a row that brought nothing new

    def move(self, decoder: EventDecoder) -> None:
        self.idle = self.idle + 1 if decoder.last_id is None else 0
        self.last_id = decoder.last_id or self.last_id
        if decoder.retry_millis is not None:
            self.retry_millis = decoder.retry_millis

    @property
    def headers(self) -> dict[str, str]:
        # Only what survives as a header can have been meant as one.
        last = self.last_id
        return {"Last-Event-ID": last} if last and last.isascii() and last.isprintable() else {}


class SessionSide:
    """The side of a bridge that keeps a session with a server of the handshake era.

    `run` must be running: it keeps the GET stream. `say` is called with what no MCP message can say.
    """

    def __init__(
        self,
        carrier: Carrier,
        write: Write,
        patience: Patience,
        *,
        say: Callable[[str], None],
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
        purse: Purse | None = None,
    ) -> None:
        self._purse = purse
        self._carrier = carrier
        self._write = write
        self._patience = patience
        self._say = say
        self._sleep = sleep
        self._own_ids = (f"ostiary-connect-{number}" for number in itertools.count(1))
        self._session: _Session | None = None
        self._changing = trio.Lock()  # held from initialize to its answer
        self._ready = trio.Event()  # a session wants its GET stream

    @property
    def begun(self) -> bool:
        return self._session is not None

    async def ask(self, asking: BridgedRequest) -> None:
        """Send a request or a batch, paid for from the purse if there is one, and return when all is answered. Raise `ClientError`s."""
        if asking.method == "initialize":
            await self._begin(asking)
            return
        purchase = None if self._purse is None else await self._purse.purchase(asking)
        if purchase is None:
            await self._ask(asking)
            return
        await self._ask(purchase.turn(), purchase.revise)
        while purchase.again:
            await self._ask(purchase.turn(), purchase.revise)

    async def _ask(self, asking: BridgedRequest, revise: Revise | None = None) -> None:
        session = await self._current()
        try:
            await self._exchange(asking, session, revise)
        except SessionLost:
            assert session is not None  # only a session can be lost
            await self._exchange(asking, await self._begin_again(session), revise)

    async def tell(self, telling: BridgedNotice) -> None:
        # An answer may be what a handshake that is under way waits for.
        session = await self._current() if telling.method else self._session
        try:
            await self._post(telling.line, session)
        except SessionLost:
            # An answer was for the session that is gone; the opening has been repeated already.
            assert session is not None  # only a session can be lost
            session = await self._begin_again(session)
            if telling.method not in ("", "notifications/initialized", "notifications/cancelled"):
                await self._post(telling.line, session)
        if telling.method == "notifications/initialized" and session is not None and not session.initialized:
            session.initialized = True
            self._ready.set()

    async def run(self) -> None:
        """Keep the GET stream of the current session, whichever that is, until cancelled."""
        while True:
            await self._ready.wait()
            self._ready = trio.Event()
            session = self._session
            if session is None or not session.initialized:
                continue
            lost = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, session.over, nursery.cancel_scope)
                lost = await self._listen(session)
                nursery.cancel_scope.cancel()
            if lost:
                try:
                    await self._begin_again(session)
                except ClientError:
                    continue  # the next message tries again, and says so where the client sees it

    async def end(self) -> None:
        """End the session at the server. This takes a bounded time, and the server's errors are ignored."""
        session, self._session = self._session, None
        if session is not None:
            await self._farewell(session)

    # ---- the handshake -----------------------------------------------------------------------------------------------

    async def _current(self) -> _Session | None:
        async with self._changing:
            return self._session

    async def _begin(self, asking: BridgedRequest) -> None:
        """Perform the client's `initialize`. If there is a session already, the new one replaces it."""
        async with self._changing:
            before = self._session
            # Before the answer is written: what the client says next finds the session there.
            await self._shake_hands(asking, self._write, self._adopt)
            replaced = before if before is not self._session else None
        if replaced is not None:
            await self._farewell(replaced)

    async def _shake_hands(
        self, asking: BridgedRequest, write: Write, adopt: Callable[[_Session], None]
    ) -> None:
        """Send an `initialize`, give its answer to `write`, and the session, if one begins, to `adopt`.

        The answer names the version; the headers of its response name the session.
        """
        async with self._carrier.open(
            "POST", body=asking.line, silence_seconds=self._patience.answer_seconds
        ) as response:
            if response.status >= 300:
                await Relay(asking, self._carrier, write).refuse(await refusal(response, self._carrier))
                return
            named = response.header(b"mcp-session-id") or None

            def begun(answer: Mapping[str, Any]) -> None:
                result = mapping(answer.get("result"))
                if result:
                    adopt(self._session_of(asking, result.get("protocolVersion"), named))

            if not await Relay(asking, self._carrier, write, begun).hear(response, EventDecoder()):
                raise broken_off(self._carrier.host)

    def _session_of(self, asking: BridgedRequest, version: object, named: str | None) -> _Session:
        if named is not None and not is_header_safe(named):
            raise BadAnswer(f"{self._carrier.host} sent an unusable session id")
        wanted = {"MCP-Protocol-Version": version, "Mcp-Session-Id": named}
        headers = {name: value for name, value in wanted.items() if is_header_safe(value)}
        return _Session(params=asking.params, id=named, headers=headers)

    def _adopt(self, session: _Session) -> None:
        if self._session is not None:
            self._session.over.set()
        self._session = session

    async def _begin_again(self, lost: _Session) -> _Session:
        """Begin a new session in place of the one that was `lost`, with the parameters of the client's own `initialize`, and return it.

        A task that comes second finds that session there, and returns it.
        """
        async with self._changing:
            if self._session is not None and self._session is not lost:
                return self._session
            request_id = next(self._own_ids)
            body = {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": lost.params}
            opening = asking_for(
                msgspec.json.encode(body), (request_id,), "initialize", lost.params, modern=False
            )
            found: list[_Session] = []
            await self._shake_hands(opening, _swallow, found.append)
            if not found:
                raise BadAnswer(
                    f"{self._carrier.host} forgot this session and begins no new one",
                    hint="start the client again",
                )
            (session,) = found
            if lost.initialized:
                await self._post(INITIALIZED, session)
                session.initialized = True
            # Only now, in one step: a request that is cancelled on the way leaves no half-opened session behind.
            self._adopt(session)
            self._ready.set()
        self._say(
            "the server forgot this session; a new one was begun, without what was subscribed to before"
        )
        return session

    async def _farewell(self, session: _Session) -> None:
        session.over.set()
        if session.id is None:
            return
        with trio.move_on_after(self._patience.farewell_seconds, shield=True):
            try:
                async with self._carrier.open(
                    "DELETE", session.headers, silence_seconds=self._patience.farewell_seconds
                ):
                    return
            except ClientError:
                return

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def _post(self, line: bytes, session: _Session | None) -> None:
        async with self._carrier.open(
            "POST", _headers(session), body=line, silence_seconds=self._patience.telling_seconds
        ) as response:
            if response.status == 404 and session is not None and session.id is not None:
                raise _lost(self._carrier)
            if response.status >= 300:
                raise self._carrier.problem(response)

    async def _exchange(
        self, asking: BridgedRequest, session: _Session | None, revise: Revise | None
    ) -> None:
        relay = Relay(asking, self._carrier, self._write, revise=revise)
        decoder = EventDecoder()
        try:
            async with self._carrier.open(
                "POST", _headers(session), body=asking.line, silence_seconds=self._patience.answer_seconds
            ) as response:
                if response.status >= 300:
                    await self._refused(response, relay, session)
                    return
                if await relay.hear(response, decoder):
                    return
        except Unreachable:
            if decoder.last_id is None:
                raise
        # Broken, or ended early by a server that wants to be polled (2025-11-25).
        if decoder.last_id is None:
            raise broken_off(self._carrier.host)
        place = _Place()
        place.move(decoder)
        await self._resume(relay, session, place)

    async def _refused(self, response: UpstreamAnswer, relay: Relay, session: _Session | None) -> None:
        in_session = session is not None and session.id is not None
        if response.status == 404 and in_session:
            try:
                message = await refusal(response, self._carrier)
            except ClientError:
                raise _lost(self._carrier) from None
            # Some servers use the same status for a method that they do not have.
            if mapping(message.get("error")).get("code") != METHOD_NOT_FOUND:
                raise _lost(self._carrier)
        else:
            message = await refusal(response, self._carrier)
        await relay.refuse(message)

    async def _resume(self, relay: Relay, session: _Session | None, place: _Place) -> None:
        """Fetch the rest of an answer, by GET with Last-Event-ID, over as many connections as it takes.

        Raise a `ClientError` if the stream is gone, or could not be opened `RESUME_TRIES` times in a row.
        """
        failures = 0
        trouble: ClientError = broken_off(self._carrier.host)
        while failures < RESUME_TRIES:
            await self._sleep(self._patience.pause(place.retry_millis, place.idle))
            decoder = EventDecoder()
            try:
                async with self._carrier.open(
                    "GET",
                    {**_headers(session), **place.headers},
                    silence_seconds=self._patience.answer_seconds,
                ) as response:
                    if is_stream(response):
                        failures = 0
                        if await hear(response, relay.take, decoder):
                            return
                    elif is_passing(response.status):
                        failures += 1
                        trouble = self._carrier.problem(response)
                    else:  # it is gone, and nobody can say what became of the call
                        failures, trouble = RESUME_TRIES, broken_off(self._carrier.host)
            except Unreachable as error:
                failures += 1
                trouble = error
            place.move(decoder)
        raise trouble

    # ---- the GET stream ----------------------------------------------------------------------------------------------

    async def _listen(self, session: _Session) -> bool:
        """Relay what the server sends unasked on its GET stream. Return True if it lost the session.

        Return False if it offers no such stream (405), or wants a login or another scope: the next message says that.
        """
        place = _Place()
        opened = False
        while True:
            decoder = EventDecoder()
            try:
                async with self._carrier.open(
                    "GET",
                    {**session.headers, **place.headers},
                    silence_seconds=self._patience.stream_seconds,
                ) as response:
                    status = response.status
                    if is_stream(response):
                        opened = True
                        await hear(response, self._relay_unasked, decoder)
                    elif not is_passing(status):
                        # Never opened: 404 is another way to say that there is no such stream.
                        return status == 404 and opened and session.id is not None
            except (NotLoggedIn, ScopeNeeded):
                return False  # the next message says so where the client sees it
            except ClientError:
                pass  # the network is away for a while, and there is nothing that anybody should do
            place.move(decoder)
            await self._sleep(self._patience.pause(place.retry_millis, place.idle))

    async def _relay_unasked(self, data: bytes) -> bool:
        if isinstance(decode(data), dict | list):
            await self._write(one_line(data))
        return False


def _headers(session: _Session | None) -> dict[str, str]:
    return {} if session is None else session.headers


def is_passing(status: int) -> bool:
    return status in (408, 429) or status >= 500


async def _swallow(line: bytes) -> None:
    """Drop an answer that the client must not see: it did not make this request."""


def _lost(carrier: Carrier) -> SessionLost:
    return SessionLost(f"{carrier.host} does not know this session", hint="start the client again")


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
