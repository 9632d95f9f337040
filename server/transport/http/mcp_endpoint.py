"""`/mcp` over HTTP: POST, a session's GET and DELETE, and the clear refusals of everything else, both eras on one endpoint.

    guard → preflight → who → verb → body → session → classify → run → JSON, or a stream from the first event on

What a message means is server/mcp's, what a call does is server/calls's; here a request becomes the one and the answer of the
other becomes HTTP. Who may come in is mcp_request.py's, what a session's streams are session_*.py's. Spec:
basic/transports/streamable-http (2026-07-28), basic/transports (2025-11-25 and before).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from auth.values.identity_model import PrincipalKind
from server.calls.anonymous_access import for_visitors
from server.calls.caller_outlet import SILENT, Line
from server.calls.dispatch import (
    answer_batch,
    begin_session,
    hear,
    make_request,
    resume_session,
    run,
    run_in_session,
    take_batch,
)
from server.calls.method_handlers import answer
from server.calls.request import Outcome, Request
from server.calls.rights.visitors import VISITOR
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.sessions.session import Session
from server.calls.sessions.sessions import caller_of
from server.mcp.errors import InvalidRequest, SessionNotFound, SessionRequired, TooManySessions
from server.mcp.inbound_messages import Rejection, Route, classify, open_batch
from server.mcp.messages import Batch, Notification, RequestId, ResponseMessage
from server.mcp.method_params import InitializeParams
from server.mcp.older_versions import as_older
from server.mcp.versions import Revision
from server.transport.http.entry import ALLOW, Threshold
from server.transport.http.handler import Resolve
from server.transport.http.inline_reply import answer_in_place
from server.transport.http.mcp_request import CALLER_TOO_OFTEN, McpRequest, leading_to, slow_down
from server.transport.http.session_post import answer_in_session
from server.transport.http.session_stream import end_session, serve_verb

# Requests of one caller at once that belong to no session. Their work goes on without their connections, so it is not bounded by
# how many of those an address may have; this is as many.
MAX_ALONE: Final = 256

_SESSION_VERBS: Final = frozenset({"GET", "HEAD", "DELETE"})


class McpEndpoint:
    """`resolve` leads to it, at `/mcp` and `/mcp/`. `sessions_required`: requests of the handshake era belong to a session; where
    `endpoint` has none, there are none. `batches_widened`: arrays in every revision of that era."""

    def __init__(
        self,
        endpoint: Endpoint,
        threshold: Threshold,
        crew: BackgroundTasks,
        *,
        sessions_required: bool = False,
        batches_widened: bool = False,
    ) -> None:
        self.endpoint: Final = endpoint
        self.threshold: Final = threshold
        self.crew: Final = crew
        self.resolve: Final[Resolve] = leading_to(self._serve, threshold, visitors=True)
        self._sessions_required = sessions_required
        self._batches_widened = batches_widened
        self._alone = Counter[str]()  # requests of each caller that belong to no session

    async def _serve(self, visit: McpRequest) -> None:
        visits = (
            visit.principal.subject == VISITOR.subject and visit.principal.kind is PrincipalKind.ANONYMOUS
        )
        if visit.head.verb != "POST":
            # A stream, and with it the challenge: where clients look next that have not found the login yet.
            asked_first = visits and visit.head.verb != "DELETE"
            return await (visit.ask_login() if asked_first else self._other_verb(visit))
        reply = visit.reply
        if not (reply.takes_json or reply.takes_events):
            error = InvalidRequest("the answer is application/json or text/event-stream")
            return await reply.refuse(error, status=406)
        message = await visit.message()
        if message is None:
            return None
        session = None
        if visit.head.named_session is not None:
            session = self._found(visit)
            if session is None:
                try:
                    session = await self._resumed(visit)
                except TooManySessions as error:
                    return await reply.refuse(error)
        agreed = None if session is None else session.revision
        if isinstance(message, Batch):
            return await (visit.ask_login() if visits else self._batch(visit, message, session))
        verdict = classify(message, visit.headers, agreed)
        if self.endpoint.pretends is not None:
            verdict = as_older(verdict, self.endpoint.pretends)
        del message  # the whole body hangs on it, and a stream may last for days
        reply.revision = verdict.revision
        if isinstance(verdict, Route):
            if visits and not for_visitors(self.endpoint, verdict, visit.principal):
                return await visit.ask_login()
            return await self._request(visit, verdict, session)
        if isinstance(verdict, Rejection):
            return await reply.refuse(verdict.error, verdict.id)
        if session is not None:
            hear(session, verdict.message, visit.load)
        return await reply.empty(202)

    async def _other_verb(self, visit: McpRequest) -> None:
        """GET, HEAD and DELETE belong to sessions. Where one is named that has ended, the client starts over; where none is
        named there is nothing here, at once: a stream that stays silent costs some clients seconds."""
        sessions, named = self.endpoint.sessions, visit.head.named_session
        if visit.head.verb in _SESSION_VERBS and visit.head.names_session:
            if visit.head.verb == "DELETE" and sessions is not None and named is not None:
                return await end_session(visit, sessions, named)
            try:
                session = self._found(visit) or await self._resumed(visit)
            except TooManySessions as error:
                return await visit.reply.refuse(error)
            if session is None:
                return await visit.reply.refuse(SessionNotFound("unknown session"))
            return await serve_verb(visit, session)
        error = InvalidRequest("POST a JSON-RPC message here")
        return await visit.reply.refuse(error, status=405, extra=(ALLOW,))

    async def _request(self, visit: McpRequest, route: Route, session: Session | None) -> None:
        reply, sessions = visit.reply, self.endpoint.sessions
        if route.revision.modern:
            session = None  # a header that means nothing there
        elif route.method.params is InitializeParams:
            if sessions is not None:
                begun, outcome = await begin_session(
                    self._made(visit, route, visit.request_id, None), sessions, visit.address
                )
                if begun is None:
                    return await visit.finish(outcome)
                return await reply.finish(200, outcome.body, ((b"mcp-session-id", begun.id.encode()),))
        elif session is None and self._sessions_required:
            error = SessionRequired("begin a session with `initialize`, and send its Mcp-Session-Id")
            return await reply.refuse(error, route.id)
        if route.method.streams and not reply.takes_events:
            error = InvalidRequest(f"{route.method.name} is answered with text/event-stream")
            return await reply.refuse(error, route.id, status=406)
        request = make_request(
            self.endpoint,
            visit.principal,
            route,
            visit.request_id,
            headers=visit.headers,
            session=session,
            # Whoever takes no stream here and has none open besides would never see the question.
            hears_questions=session is not None and (reply.takes_events or session.heard),
            still_allowed=visit.still_allowed,
            address=visit.address,
            load=visit.load,
        )
        if request.at_once:
            outcome = await answer(request)
            if outcome.error is None:
                return await reply.finish(200, outcome.body)
            return await visit.finish(outcome)
        if session is not None:
            job = partial(run_in_session, session, request)
            return await answer_in_session(visit, session, self.crew, job, on_left=partial(_left, request))
        if not route.revision.modern:
            return await self._run_alone(
                visit, partial(run, request), 1, route.id, on_left=partial(_left, request)
            )
        cycle = visit.cycle
        if route.method.streams:
            cycle.at_drain(request.end)
        outcome = await answer_in_place(
            partial(run, request),
            reply,
            cycle,
            cancels=True,
            pings=not route.method.streams,
            last_word=partial(reply.tell_stopping, route.id),
        )
        return await visit.finish(outcome)

    async def _batch(self, visit: McpRequest, batch: Batch, session: Session | None) -> None:
        reply = visit.reply
        agreed = None if session is None else session.revision
        revision = open_batch(batch, visit.headers, agreed, widened=self._batches_widened)
        if isinstance(revision, Rejection):
            reply.revision = revision.revision
            return await reply.refuse(revision.error)
        reply.revision = revision
        gate, more = self.threshold.gate, len(batch.items) - 1
        if gate is not None and (seconds := gate.recognise_more(visit.principal, visit.address, more)):
            return await slow_down(reply, CALLER_TOO_OFTEN, seconds)
        if session is None and self._sessions_required:
            return await reply.refuse(
                SessionRequired("a batch belongs to a session: begin one with `initialize`")
            )
        job = partial(self._answer_batch, visit, batch, revision, session)
        if session is not None:
            return await answer_in_session(visit, session, self.crew, job)
        # Nothing but the answers is sent: what belongs to one of several requests is not for those without a session.
        return await self._run_alone(visit, lambda _line: job(SILENT), len(batch.items))

    async def _run_alone(
        self,
        visit: McpRequest,
        produce: Callable[[Line], Awaitable[Outcome | None]],
        count: int,
        request_id: RequestId | None = None,
        *,
        on_left: Callable[[], None] | None = None,
    ) -> None:
        """So many requests of the handshake era that belong to no session: they run on when their client leaves."""
        caller = caller_of(visit.principal, visit.address)
        if self._alone[caller] + count > MAX_ALONE:
            error = TooManySessions(f"{MAX_ALONE} requests of yours are running: wait for one")
            return await visit.reply.refuse(error, request_id)
        self._alone[caller] += count
        try:
            outcome = await answer_in_place(
                produce,
                visit.reply,
                visit.cycle,
                cancels=False,
                on_left=on_left,
                last_word=partial(visit.reply.tell_stopping, request_id),
            )
        finally:
            self._alone[caller] -= count
            if not self._alone[caller]:
                del self._alone[caller]
        await (visit.reply.empty(202) if outcome is None else visit.finish(outcome))
        if on_left is not None and not visit.reply.written:
            on_left()
        return None

    async def _answer_batch(
        self, visit: McpRequest, batch: Batch, revision: Revision, session: Session | None, line: Line
    ) -> Outcome | None:
        def take(route: Route, place: int) -> Request:
            return self._made(visit, route, f"{visit.request_id}.{place}", session)

        def listen(message: Notification | ResponseMessage) -> None:
            if session is not None:
                hear(session, message, visit.load)

        async def answer_one(request: Request) -> Outcome | None:
            return await (run(request, line) if session is None else run_in_session(session, request, line))

        return await answer_batch(take_batch(batch, revision, hear=listen, take=take), answer_one)

    def _made(self, visit: McpRequest, route: Route, call_id: str, session: Session | None) -> Request:
        return make_request(
            self.endpoint,
            visit.principal,
            route,
            call_id,
            headers=visit.headers,
            session=session,
            # Whoever takes no stream here and has none open besides would never see the question.
            hears_questions=session is not None and (visit.reply.takes_events or session.heard),
            still_allowed=visit.still_allowed,
            address=visit.address,
            load=visit.load,
        )

    def _found(self, visit: McpRequest) -> Session | None:
        sessions, named = self.endpoint.sessions, visit.head.named_session
        if sessions is None or named is None:
            return None
        return sessions.find(named, visit.principal, visit.address)

    async def _resumed(self, visit: McpRequest) -> Session | None:
        """The one that is named, taken up again. Raises `TooManySessions`."""
        sessions, named = self.endpoint.sessions, visit.head.named_session
        if sessions is None or named is None:
            return None
        return await resume_session(self.endpoint, sessions, named, visit.principal, visit.address)


def _left(request: Request) -> None:
    """Its client has gone without the answer, and it runs on, or has ended: the same call, made again, is to have it."""
    if request.tool is not None:
        from server.calls.abandoned_calls import set_adrift

        set_adrift(request)
