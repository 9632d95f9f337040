"""The two-endpoint transport of 2024-11-05, for clients that have no other: a stream by GET, and POSTs beside it.

The first event of the stream says where to POST; every answer comes as an event, and a POST is only told that it was taken.
The stream is the session: when it ends, so does that. Served where it is switched on. Spec: basic/transports "HTTP with SSE"
(2024-11-05).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from server.caller import SILENT, Line
from server.crew import Crew
from server.event_log import Allowance, Event, EventLog
from server.exchange import Exchange, Lent, Outcome
from server.http.refusal import Disconnected, Refused
from server.http.reply import Reply, Send
from server.http.session_post import Parting, follow, run_exchange, take
from server.http.visit import Receive, Scope, Threshold, Visit, joined
from server.mcp.errors import (
    InternalError,
    InvalidRequest,
    McpError,
    SessionNotFound,
    TooManySessions,
    TooManySubscriptions,
)
from server.mcp.inbound import Rejection, Route, Taken, classify_line
from server.mcp.messages import Batch, RequestId
from server.mcp.params import InitializeParams
from server.mcp.results import encode_error
from server.mcp.versions import REVISIONS
from server.sessions import Session, Sessions, caller_of

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

    def begin(self, session: Session) -> None:
        self.session = session
        self._begun.set()

    async def tell_changes(self) -> None:
        """What belongs to no request has no stream of its own here."""
        await self._begun.wait()
        if (session := self.session) is not None:
            with session.stream_open(), session.unsolicited.read() as reader:
                session.catch_up()
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
    """`listen` is what answers at `/sse`, `post` at `/messages` beside it. `lent` has sessions."""

    def __init__(self, *, lent: Lent, sessions: Sessions, crew: Crew, threshold: Threshold) -> None:
        self._lent = lent
        self._sessions = sessions
        self._crew = crew
        self._threshold = threshold
        self._wires: dict[str, _Wire] = {}
        self._allowance = Allowance()

    def count(self) -> int:
        return len(self._wires)

    async def listen(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._admit(scope, receive, send, self._listen)

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._admit(scope, receive, send, self._post)

    async def _admit(
        self, scope: Scope, receive: Receive, send: Send, serve: Callable[[Visit], Awaitable[None]]
    ) -> None:
        headers = joined(scope["headers"])
        reply = Reply(send, accept=headers.get(b"accept"))
        reply.revision = OLDEST
        try:
            visit = await self._threshold.admit(scope, receive, reply, headers)
            if visit is not None:
                await serve(visit)
        except (Refused, Disconnected):
            raise  # the connection's own
        except Exception:
            request_id: str = scope["state"]["request_id"]
            self._lent.log.exception("mcp.crashed", request=request_id)
            await reply.refuse(InternalError(request_id), status=500)

    async def _listen(self, visit: Visit) -> None:
        reply = visit.reply
        caller = caller_of(visit.principal, visit.address)
        if visit.scope["method"] != "GET":
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

    async def _serve(self, visit: Visit, wire: _Wire) -> None:
        posts = visit.scope["path"].rstrip("/").removesuffix("/sse") + "/messages"
        visit.reply.opening = b"event: endpoint\ndata: %s?session=%s\n\n" % (posts.encode(), wire.id.encode())
        self._wires[wire.id] = wire
        try:
            with wire.stream.read() as reader:
                await visit.reply.ping()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wire.tell_changes)
                    parting = await follow(visit, reader, until=visit.draining, framed=_as_message)
                    nursery.cancel_scope.cancel()
            if parting is not Parting.GONE:
                await visit.reply.close()
        except OSError:
            return
        finally:
            del self._wires[wire.id]
            if wire.session is not None:
                self._sessions.end(wire.session)
            wire.log.close()

    async def _post(self, visit: Visit) -> None:
        reply = visit.reply
        if visit.scope["method"] != "POST":
            error = InvalidRequest("POST a JSON-RPC message here")
            return await reply.refuse(error, status=405, extra=(_POST_ONLY,))
        message = await visit.message()
        if message is None:
            return None
        # Looked up only now: the stream may have ended while the body came.
        wire = self._wires.get(_named(visit.scope["query_string"]))
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
        elif isinstance(verdict, Taken):
            if session is not None:
                take(session, verdict.message)
        elif verdict.revision.modern:
            error = InvalidRequest("this endpoint is for clients of the handshake era: use the other one")
            self._refuse(wire, error, verdict.id)
        elif verdict.method.params is InitializeParams:
            await self._initialize(visit, wire, verdict)
        else:
            self._crew.start(partial(self._run, visit, wire, verdict))
        return await reply.empty(202)

    async def _initialize(self, visit: Visit, wire: _Wire, route: Route) -> None:
        params = route.params
        if wire.session is not None or not isinstance(params, InitializeParams):
            return self._refuse(wire, InvalidRequest("initialize was answered already"), route.id)
        try:
            session = self._sessions.create(visit.principal, visit.address, route.revision, params)
        except TooManySessions as error:
            return self._refuse(wire, error, route.id)
        wire.begin(session)
        self._lent.log.info("session.began", client=session.client, version=session.revision.version)
        wire.stream.append((await self._exchange(visit, route, session).run(SILENT)).body)
        return None

    async def _run(self, visit: Visit, wire: _Wire, route: Route) -> None:
        session, exchange = wire.session, self._exchange(visit, route, wire.session)
        line: Line = wire
        outcome: Outcome | None = await (
            exchange.run(line) if session is None else run_exchange(session, exchange, line)
        )
        if outcome is not None:
            wire.stream.append(outcome.body)

    def _exchange(self, visit: Visit, route: Route, session: Session | None) -> Exchange:
        return Exchange(
            route,
            visit.principal,
            self._lent,
            headers=visit.headers,
            call_id=visit.request_id,
            still_allowed=visit.still_allowed,
            session=session,
        )

    def _refuse(self, wire: _Wire, error: McpError, request_id: RequestId) -> None:
        revision = OLDEST if wire.session is None else wire.session.revision
        wire.stream.append(encode_error(request_id, error, revision))


def _named(query: bytes) -> str:
    """The id in a query, which is all that there is in it."""
    name, _, value = query.decode("latin-1").partition("=")
    return value if name == "session" else ""


def _as_message(event: Event) -> bytes:
    return b"event: message\ndata: %s\n\n" % event.message
