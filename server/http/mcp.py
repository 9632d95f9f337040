"""`/mcp` over HTTP: POST, a session's GET and DELETE, and the clear refusals of everything else, both eras on one endpoint.
Raw ASGI.

    guard → preflight → who → verb → body → session → classify → run → JSON, or a stream from the first event on

What a message means is server/mcp's, what a call does is calls.py's; here a request becomes the one and the answer of the
other becomes HTTP. Who may come in is visit.py's, what a session's streams are session_*.py's. Spec:
basic/transports/streamable-http (2026-07-28), basic/transports (2025-11-25 and before).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from server.caller import SILENT, Line
from server.crew import Crew
from server.exchange import Exchange, Lent, Outcome
from server.http.refusal import Disconnected, Refused
from server.http.reply import Reply, Send
from server.http.session_post import answer_in_session, run_exchange, take
from server.http.session_stream import serve_verb
from server.http.sse import attend, stream
from server.http.visit import (
    ALLOW,
    MAX_BODY_BYTES,
    Authenticate,
    Forbid,
    Guard,
    Receive,
    Scope,
    Threshold,
    Visit,
    joined,
)
from server.mcp.errors import (
    InternalError,
    InvalidRequest,
    SessionNotFound,
    SessionRequired,
    TooManySessions,
)
from server.mcp.inbound import (
    SESSION_HEADER,
    Rejection,
    Route,
    Taken,
    classify,
    classify_item,
    names_session,
    open_batch,
    revision_of,
)
from server.mcp.messages import Batch, RequestId
from server.mcp.params import CallToolParams, InitializeParams
from server.mcp.results import encode_error
from server.mcp.versions import Revision
from server.sessions import Session, Sessions, caller_of

# Requests of one caller at once that belong to no session. Their work goes on without their connections, so it is not bounded by
# how many of those an address may have; this is as many.
MAX_ALONE: Final = 256

_SESSION_VERBS: Final = frozenset({"GET", "HEAD", "DELETE"})


class McpEndpoint:
    """`await endpoint(scope, receive, send)` for `/mcp` and `/mcp/`. `name` is the server's name in the configuration.
    `sessions_required`: requests of the handshake era belong to a session; where `lent` has none, there are none.
    `batches_widened`: arrays in every revision of that era."""

    def __init__(
        self,
        *,
        name: str,
        lent: Lent,
        crew: Crew,
        guard: Guard,
        authenticate: Authenticate,
        forbid: Forbid,
        max_body_bytes: int = MAX_BODY_BYTES,
        sessions_required: bool = False,
        batches_widened: bool = False,
    ) -> None:
        self.threshold: Final = Threshold(
            name=name, guard=guard, authenticate=authenticate, forbid=forbid, max_body_bytes=max_body_bytes
        )
        self._lent = lent
        self._crew = crew
        self._sessions_required = sessions_required
        self._batches_widened = batches_widened
        self._alone = Counter[str]()  # requests of each caller that belong to no session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = joined(scope["headers"])
        reply = Reply(send, accept=headers.get(b"accept"))
        reply.revision = revision_of(headers)
        try:
            visit = await self.threshold.admit(scope, receive, reply, headers)
            if visit is None:
                return None
            if scope["method"] == "POST":
                return await self._post(visit)
            return await self._other_verb(visit)
        except (Refused, Disconnected):
            raise  # the connection's own: what became of the body while it was read
        except Exception:
            request_id: str = scope["state"]["request_id"]
            self._lent.log.exception("mcp.crashed", request=request_id)
            await reply.refuse(InternalError(request_id), status=500)

    async def _other_verb(self, visit: Visit) -> None:
        """GET, HEAD and DELETE belong to sessions. Where one is named that is gone, the client starts over; where none is
        named there is nothing here, at once: a stream that stays silent costs some clients seconds."""
        sessions = self._lent.sessions
        if visit.scope["method"] in _SESSION_VERBS and names_session(visit.headers):
            session = self._session(visit)
            if session is None or sessions is None:
                return await visit.reply.refuse(SessionNotFound("unknown session"))
            return await serve_verb(visit, session, sessions)
        error = InvalidRequest("POST a JSON-RPC message here")
        return await visit.reply.refuse(error, status=405, extra=(ALLOW,))

    async def _post(self, visit: Visit) -> None:
        reply = visit.reply
        if not (reply.takes_json or reply.takes_events):
            error = InvalidRequest("the answer is application/json or text/event-stream")
            return await reply.refuse(error, status=406)
        message = await visit.message()
        if message is None:
            return None
        session = self._session(visit) if SESSION_HEADER in visit.headers else None
        agreed = None if session is None else session.revision
        if isinstance(message, Batch):
            return await self._batch(visit, message, session)
        verdict = classify(message, visit.headers, agreed)
        del message  # the whole body hangs on it, and a stream may last for days
        reply.revision = verdict.revision
        if isinstance(verdict, Rejection):
            return await reply.refuse(verdict.error, verdict.id)
        if isinstance(verdict, Taken):
            if session is not None:
                take(session, verdict.message)
            return await reply.empty(202)
        if verdict.revision.modern:
            session = None  # a header that means nothing there
        elif verdict.method.params is InitializeParams:
            return await self._initialize(visit, verdict)
        elif session is None and self._sessions_required:
            error = SessionRequired("begin a session with `initialize`, and send its Mcp-Session-Id")
            return await reply.refuse(error, verdict.id)
        return await self._run(visit, verdict, session)

    async def _run(self, visit: Visit, route: Route, session: Session | None) -> None:
        if route.method.streams and not visit.reply.takes_events:
            error = InvalidRequest(f"{route.method.name} is answered with text/event-stream")
            return await visit.reply.refuse(error, route.id, status=406)
        exchange = self._exchange(visit, route, visit.request_id, session)
        if route.method.streams:
            end = partial(_end_at, visit.draining, exchange)
            outcome = await attend(exchange.run, visit.reply, gone=visit.wait_gone, alongside=end)
        elif self._returns_at_once(route):
            outcome = await exchange.run()
        elif session is not None:
            job = partial(run_exchange, session, exchange)
            return await answer_in_session(visit, session, self._crew, job)
        elif route.revision.modern:
            outcome = await stream(exchange.run, visit.reply, gone=visit.wait_gone)
        else:
            return await self._run_alone(visit, exchange.run, 1, route.id)
        if outcome is not None:
            await visit.finish(outcome)
        return None

    async def _initialize(self, visit: Visit, route: Route) -> None:
        sessions, params = self._lent.sessions, route.params
        if sessions is None or not isinstance(params, InitializeParams):
            return await visit.finish(await self._exchange(visit, route, visit.request_id, None).run())
        try:
            session = sessions.create(visit.principal, visit.address, route.revision, params)
        except TooManySessions as error:
            return await visit.reply.refuse(error, route.id)
        outcome = await self._exchange(visit, route, visit.request_id, session).run()
        if outcome.error is not None:
            sessions.end(session)
            return await visit.finish(outcome)
        self._lent.log.info("session.began", client=session.client, version=session.revision.version)
        named = (b"mcp-session-id", session.id.encode())
        return await visit.reply.finish(200, outcome.body, (named,))

    async def _batch(self, visit: Visit, batch: Batch, session: Session | None) -> None:
        reply = visit.reply
        agreed = None if session is None else session.revision
        revision = open_batch(batch, visit.headers, agreed, widened=self._batches_widened)
        if isinstance(revision, Rejection):
            reply.revision = revision.revision
            return await reply.refuse(revision.error)
        reply.revision = revision
        if session is None and self._sessions_required:
            return await reply.refuse(
                SessionRequired("a batch belongs to a session: begin one with `initialize`")
            )
        job = partial(self._answer_batch, visit, batch, revision, session)
        if session is not None:
            return await answer_in_session(visit, session, self._crew, job)
        # Nothing but the answers is sent: what belongs to one of several requests is not for those without a session.
        return await self._run_alone(visit, lambda _line: job(SILENT), len(batch.items))

    async def _run_alone(
        self,
        visit: Visit,
        produce: Callable[[Line], Awaitable[Outcome | None]],
        count: int,
        request_id: RequestId | None = None,
    ) -> None:
        """So many requests of the handshake era that belong to no session: they run on when their client leaves."""
        caller = caller_of(visit.principal, visit.address)
        if self._alone[caller] + count > MAX_ALONE:
            error = TooManySessions(f"{MAX_ALONE} requests of yours are running: wait for one")
            return await visit.reply.refuse(error, request_id)
        self._alone[caller] += count
        try:
            outcome = await stream(produce, visit.reply, gone=None)
        finally:
            self._alone[caller] -= count
            if not self._alone[caller]:
                del self._alone[caller]
        return await (visit.reply.empty(202) if outcome is None else visit.finish(outcome))

    async def _answer_batch(
        self, visit: Visit, batch: Batch, revision: Revision, session: Session | None, line: Line
    ) -> Outcome | None:
        """The answers in the order of the requests, which run side by side. None: nothing is to be answered."""
        answers: list[bytes | None] = [None] * len(batch.items)

        async def run(place: int, exchange: Exchange) -> None:
            outcome = await (exchange.run(line) if session is None else run_exchange(session, exchange, line))
            answers[place] = None if outcome is None else outcome.body

        async with trio.open_nursery() as nursery:
            for place, item in enumerate(batch.items):
                verdict = classify_item(item, revision)
                if isinstance(verdict, Rejection):
                    answers[place] = encode_error(verdict.id, verdict.error, revision)
                elif isinstance(verdict, Route):
                    exchange = self._exchange(visit, verdict, f"{visit.request_id}.{place}", session)
                    nursery.start_soon(run, place, exchange)
                elif session is not None:
                    take(session, verdict.message)
        given = [answer for answer in answers if answer is not None]
        return Outcome(b"[%s]" % b",".join(given)) if given else None

    def _exchange(self, visit: Visit, route: Route, call_id: str, session: Session | None) -> Exchange:
        return Exchange(
            route,
            visit.principal,
            self._lent,
            headers=visit.headers,
            call_id=call_id,
            still_allowed=visit.still_allowed,
            session=session,
            # Whoever takes no stream here and has none open besides would never see the question.
            can_ask=session is not None and (visit.reply.takes_events or session.unsolicited.attended),
        )

    def _session(self, visit: Visit) -> Session | None:
        sessions: Sessions | None = self._lent.sessions
        if sessions is None:
            return None
        named = visit.headers[SESSION_HEADER].decode("latin-1")
        return sessions.find(named, visit.principal, visit.address)

    def _returns_at_once(self, route: Route) -> bool:
        if not route.method.waits:
            return True
        return isinstance(route.params, CallToolParams) and self._lent.calls.quick(route.params.name)


async def _end_at(draining: trio.Event, exchange: Exchange) -> None:
    await draining.wait()
    exchange.end()
