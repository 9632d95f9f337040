"""The two-endpoint transport of 2024-11-05, for clients that have no other: a stream by GET, and POSTs beside it.

The first event of the stream says where to POST; every answer comes as an event, and a POST is only told that it was taken.
The stream is the session: when it ends, so does that. Served where it is switched on. Spec: basic/transports "HTTP with SSE"
(2024-11-05).
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Final

import trio

from server.calls.dispatch import begin_session, hear, make_request, run, run_in_session
from server.calls.request import Request
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.sessions.event_log import Allowance, Event, EventLog
from server.calls.sessions.session import Session
from server.calls.sessions.sessions import Sessions, caller_of
from server.mcp.errors import InvalidRequest, McpError, SessionNotFound, TooManySubscriptions
from server.mcp.inbound_messages import Acknowledged, Rejection, Route, classify_line
from server.mcp.messages import Batch, RequestId
from server.mcp.method_params import InitializeParams
from server.mcp.result_encoding import encode_error
from server.mcp.versions import REVISIONS
from server.transport.http.entry import Threshold
from server.transport.http.handler import Resolve
from server.transport.http.mcp_request import McpRequest, leading_to
from server.transport.http.session_post import Parting, follow

OLDEST: Final = REVISIONS["2024-11-05"]
# As many streams as a caller may have sessions, and each is a connection.
MAX_PER_CALLER: Final = 64
MAX_OVERALL: Final = 4096

_ID_BYTES: Final = 24
_GET_ONLY: Final = (b"allow", b"GET")
_POST_ONLY: Final = (b"allow", b"POST, OPTIONS")


class _Wire:
    """One client's stream. Implements `Line`."""

    def __init__(self, caller: str, allowance: Allowance) -> None:
        self.id: Final = secrets.token_urlsafe(_ID_BYTES)
        self.caller: Final = caller
        self.log: Final = EventLog(allowance)
        self.stream: Final = self.log.open()
        self.session: Session | None = None
        self._begun = trio.Event()
        self._running = 0
        self._leaving = False

    def drain(self) -> None:
        """The server is about to go: the stream ends with the last answer that is owed on it."""
        self._leaving = True
        self._end_if_idle()

    def began(self) -> None:
        """A request whose answer is owed."""
        self._running += 1

    def ended(self) -> None:
        self._running -= 1
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._leaving and not self._running:
            self.stream.end()

    def begin(self, session: Session) -> None:
        self.session = session
        self._begun.set()

    async def tell_changes(self) -> None:
        """What belongs to no request has no stream of its own here."""
        await self._begun.wait()
        if (session := self.session) is not None:
            with session.unsolicited.read() as reader, session.attended_here():
                while (event := await reader.next()) is not None:
                    await self.send(event.message)

    async def send(self, message: bytes) -> None:
        self.stream.append(message)
        await self.stream.taken()

    async def ping(self) -> None:
        """Whoever reads the stream sends signs of life."""

    async def release(self) -> None:
        """The stream is all there is."""


class SseEndpoint:
    """`listening` leads to what answers at `/sse`, `posting` to `/messages` beside it."""

    def __init__(
        self, endpoint: Endpoint, threshold: Threshold, crew: BackgroundTasks, *, sessions: Sessions
    ) -> None:
        self.listening: Final[Resolve] = leading_to(self._listen, threshold, OLDEST)
        self.posting: Final[Resolve] = leading_to(self._post, threshold, OLDEST)
        self._endpoint = endpoint
        self._sessions = sessions
        self._crew = crew
        self._wires: dict[str, _Wire] = {}
        self._allowance = Allowance()

    def count(self) -> int:
        return len(self._wires)

    async def _listen(self, visit: McpRequest) -> None:
        reply = visit.reply
        caller = caller_of(visit.principal, visit.address)
        if visit.head.verb != "GET":
            await reply.refuse(InvalidRequest("GET the stream here"), status=405, extra=(_GET_ONLY,))
        elif not reply.takes_events:
            await reply.refuse(InvalidRequest("the answer is text/event-stream"), status=406)
        elif (error := self._full(caller)) is not None:
            await reply.refuse(error)
        else:
            await self._serve(visit, _Wire(caller, self._allowance))

    def _full(self, caller: str) -> McpError | None:
        if len(self._wires) >= MAX_OVERALL:
            return TooManySubscriptions("too many streams are open on this server")
        if sum(wire.caller == caller for wire in self._wires.values()) >= MAX_PER_CALLER:
            return TooManySubscriptions(f"{MAX_PER_CALLER} streams are open already: close one first")
        return None

    async def _serve(self, visit: McpRequest, wire: _Wire) -> None:
        posts = visit.head.path.rstrip("/").removesuffix("/sse") + "/messages"
        visit.reply.opening = b"event: endpoint\ndata: %s?session=%s\n\n" % (posts.encode(), wire.id.encode())
        self._wires[wire.id] = wire
        try:
            with wire.stream.read() as reader:
                await visit.reply.ping()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wire.tell_changes)
                    visit.cycle.at_drain(wire.drain)
                    parting = await follow(visit, reader, framed=_as_message)
                    nursery.cancel_scope.cancel()
            if parting is not Parting.GONE:
                await visit.reply.close()
        except OSError:
            return
        finally:
            del self._wires[wire.id]
            if wire.session is not None:
                self._sessions.put_away(wire.session)
            wire.log.close()

    async def _post(self, visit: McpRequest) -> None:
        reply = visit.reply
        if visit.head.verb != "POST":
            error = InvalidRequest("POST a JSON-RPC message here")
            return await reply.refuse(error, status=405, extra=(_POST_ONLY,))
        message = await visit.message()
        if message is None:
            return None
        # Looked up only now: the stream may have ended while the body came.
        wire = self._wires.get(_named(visit.head.query))
        if wire is None or wire.caller != caller_of(visit.principal, visit.address):
            return await reply.refuse(SessionNotFound("unknown session"))
        session = wire.session
        if isinstance(message, Batch):
            return await reply.refuse(InvalidRequest("this version has no batches"))
        verdict = classify_line(message, None if session is None else session.revision)
        if isinstance(verdict, Rejection):
            if verdict.id is None:
                reply.revision = OLDEST
                return await reply.refuse(verdict.error)
            self._refuse(wire, verdict.error, verdict.id)
        elif isinstance(verdict, Acknowledged):
            if session is not None:
                hear(session, verdict.message, visit.load)
        elif verdict.revision.modern:
            error = InvalidRequest("this endpoint is for clients of the handshake era: use the other one")
            self._refuse(wire, error, verdict.id)
        elif verdict.method.params is InitializeParams:
            await self._initialize(visit, wire, verdict)
        else:
            wire.began()
            self._crew.start(partial(self._run, visit, wire, verdict), visit.load)
        return await reply.empty(202)

    async def _initialize(self, visit: McpRequest, wire: _Wire, route: Route) -> None:
        if wire.session is not None:
            return self._refuse(wire, InvalidRequest("initialize was answered already"), route.id)
        session, outcome = await begin_session(self._made(visit, route, None), self._sessions, visit.address)
        if session is not None:
            wire.begin(session)
        wire.stream.append(outcome.body)
        return None

    async def _run(self, visit: McpRequest, wire: _Wire, route: Route) -> None:
        session = wire.session
        request = self._made(visit, route, session)
        try:
            outcome = await (
                run(request, wire) if session is None else run_in_session(session, request, wire)
            )
            if outcome is not None:
                wire.stream.append(outcome.body)
                if outcome.when_written is not None:
                    await wire.stream.taken()
                    if self._wires.get(wire.id) is wire:
                        outcome.written()
        finally:
            wire.ended()

    def _made(self, visit: McpRequest, route: Route, session: Session | None) -> Request:
        return make_request(
            self._endpoint,
            visit.principal,
            route,
            visit.request_id,
            headers=visit.headers,
            session=session,
            still_allowed=visit.still_allowed,
            address=visit.address,
            load=visit.load,
        )

    def _refuse(self, wire: _Wire, error: McpError, request_id: RequestId) -> None:
        revision = OLDEST if wire.session is None else wire.session.revision
        wire.stream.append(encode_error(request_id, error, revision))


def _named(query: str) -> str:
    """The id in a query, which is all that there is in it."""
    name, _, value = query.partition("=")
    return value if name == "session" else ""


def _as_message(event: Event) -> bytes:
    return b"event: message\ndata: %s\n\n" % event.message
