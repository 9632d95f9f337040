"""What every wire does with what it has read: make a request of it, begin a session, run it where it can be cancelled, answer a batch.

HTTP, its two-endpoint form of 2024-11-05, and stdio share these, so that they cannot come to differ. What a message means is
mcp/inbound_messages.py's; what is done is method_handlers.py's; how bytes come and go is the wire's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import trio

from auth.values.identity_model import Principal
from server.agents.base.backend import UseKind
from server.calls.caller_outlet import Line
from server.calls.method_handlers import answer
from server.calls.request import Outcome, Request, always
from server.calls.resource_methods import follow
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.session import Session
from server.calls.sessions.sessions import Sessions, list_changed
from server.calls.tools_call import TOOL_CALL, settle_tool
from server.lib.shortened import short_reason
from server.mcp.errors import McpError, ServerStopping, TooManyRunning
from server.mcp.inbound_messages import Acknowledged, Headers, Rejection, Route, classify_item
from server.mcp.loads import Load
from server.mcp.messages import Batch, Notification, ResponseMessage
from server.mcp.method_params import CallToolParams, InitializeParams
from server.mcp.result_encoding import encode_error
from server.mcp.tool_names import CALL_TOOL
from server.mcp.versions import Revision
from server.store.jobs import StoreUnavailable
from server.store.limits.endpoint_gate import Gate

T = TypeVar("T")


def make_request(
    endpoint: Endpoint,
    principal: Principal,
    route: Route,
    call_id: str,
    *,
    headers: Headers | None = None,
    session: Session | None = None,
    hears_questions: bool = True,
    still_allowed: Callable[[], Awaitable[bool]] = always,
    address: str = "",
    load: Load | None = None,
) -> Request:
    """Everything that is known of it before it runs, looked up once."""
    request = Request(
        endpoint=endpoint,
        principal=principal,
        route=route,
        call_id=call_id,
        headers=headers,
        session=session,
        hears_questions=hears_questions,
        handshake=not route.revision.modern,
        still_allowed=still_allowed,
        address=address,
        load=load,
        inner=use_inside,
    )
    method = route.method
    if method is TOOL_CALL and route.problem is None:
        params: CallToolParams = route.params  # type: ignore[assignment]
        if params.name == CALL_TOOL:
            params = _named_tool(request)
        settle_tool(request, params.name)
        if request.tool is not None:
            tool = request.tool
            request.at_once = (
                tool.terms.quick and not (request.priced or request.repeats) and tool.policy is None
            )
    else:
        request.at_once = not method.waits
    return request


def _named_tool(request: Request) -> CallToolParams:
    """Make the request the call of the tool that it names, where this server's tools are found by searching."""
    from server.calls.servers.tool_search import named_by

    params: CallToolParams = request.route.params  # type: ignore[assignment]
    named = named_by(params, request.endpoint)
    if named is not params:
        request.route, request.rewritten = msgspec.structs.replace(request.route, params=named), True
        request.searched = True
    return named


async def use_inside(
    request: Request, what: UseKind, name: str, arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Loaded when the first call wants something else of its server."""
    from server.calls.nested_calls import use

    return await use(request, what, name, arguments)


def settle_again(request: Request) -> None:
    """For whatever has waited since it was made: its tool may be another by now, or none."""
    if request.route.method is TOOL_CALL and request.route.problem is None:
        params: CallToolParams = request.route.params  # type: ignore[assignment]
        settle_tool(request, params.name)


async def run(request: Request, line: Line) -> Outcome:
    """`line` takes what is said before the answer."""
    request.line = line
    gate = gate_of(request)
    if gate is None:
        return await answer(request)
    if not gate.begin(request.sharer):
        return refused(request, too_many_running(gate))
    try:
        return await answer(request)
    finally:
        gate.end(request.sharer)


def gate_of(request: Request) -> Gate | None:
    """What bounds how many requests of its caller run at once, if anything does. Streams have bounds of their own."""
    limits = request.endpoint.limits
    if limits is None or not limits.gate.calls_at_once or request.route.method.streams:
        return None
    gate = limits.gate
    return gate if gate.counts_all or gate.site_of(request.address) else None


def too_many_running(gate: Gate) -> TooManyRunning:
    if gate.calls_at_once == 1:
        return TooManyRunning("a request of yours is running: wait for it to end")
    return TooManyRunning(f"{gate.calls_at_once} requests of yours are running: wait for one of them to end")


async def run_in_session(session: Session, request: Request, line: Line) -> Outcome | None:
    """None when the client has cancelled it, or the session is over."""
    outcome: Outcome | None = None
    try:
        with session.running(request.id) as running:
            outcome = await run(request, line)
        return None if running.cancelled else outcome or refused(request, ServerStopping())
    except McpError as error:
        return refused(request, error)


def refused(request: Request, error: McpError) -> Outcome:
    return Outcome(encode_error(request.id, error, request.revision), error.as_value())


async def begin_session(request: Request, sessions: Sessions, address: str) -> tuple[Session | None, Outcome]:
    """`initialize`. No session is left of one that was not answered with a result."""
    params = request.route.params
    if not isinstance(params, InitializeParams):  # they could not be read, which is the answer
        return None, await answer(request)
    try:
        session = sessions.create(request.principal, address, request.revision, params)
    except McpError as error:
        return None, refused(request, error)
    request.session = session
    outcome = await answer(request)
    if outcome.error is not None:
        sessions.put_away(session)
        return None, outcome
    request.endpoint.log.info("session.began", client=session.client, version=session.revision.version)
    return session, outcome


async def resume_session(
    endpoint: Endpoint, sessions: Sessions, named: str, principal: Principal, address: str
) -> Session | None:
    """A session that its caller goes on with, although it is not here any more: the process is another, or it was put away. What
    there is may be another by now, so its client is told to look. Raises `TooManySessions`."""
    with sessions.expecting(named):
        facts = None
        if sessions.shared is not None:
            try:
                facts = await sessions.look_up(named, principal, address)
            except StoreUnavailable as problem:  # it goes on, as it would if nobody knew more of it
                endpoint.log.warning("store.unavailable", method="session", reason=short_reason(problem))
            if (found := sessions.find(named, principal, address)) is not None:
                return found  # another request of it was quicker
        session = sessions.resume(named, principal, address, facts)
    if session is not None:
        for kind in endpoint.lists:
            if sessions.may_have_missed(session, kind):
                session.changed(*list_changed(kind))
        for uri in session.watched:
            follow(endpoint, uri)
        endpoint.log.info("session.resumed", version=session.revision.version)
    return session


def hear(session: Session, message: Notification | ResponseMessage, load: Load | None = None) -> None:
    """What is not answered. `load`: of what brought it."""
    if isinstance(message, Notification):
        session.note(message)
    else:
        session.answer(message, load)


def take_batch(
    batch: Batch,
    revision: Revision,
    *,
    hear: Callable[[Notification | ResponseMessage], None],
    take: Callable[[Route, int], T | Rejection],
) -> list[T | bytes]:
    """The requests in it, as `take` has them, and in the places of those that are none, what is answered to them."""
    items: list[T | bytes] = []
    for place, item in enumerate(batch.items):
        verdict = classify_item(item, revision)
        if isinstance(verdict, Acknowledged):
            hear(verdict.message)
            continue
        taken = verdict if isinstance(verdict, Rejection) else take(verdict, place)
        if isinstance(taken, Rejection):
            items.append(encode_error(taken.id, taken.error, taken.revision))
        else:
            items.append(taken)
    return items


async def answer_batch(
    items: Sequence[T | bytes], answer_one: Callable[[T], Awaitable[Outcome | None]]
) -> Outcome | None:
    """The answers in the order of the requests, which run side by side. None: nothing is to be answered."""
    answers: list[bytes | None] = [item if isinstance(item, bytes) else None for item in items]
    outcomes: list[Outcome] = []

    async def run_one(place: int, item: T) -> None:
        outcome = await answer_one(item)
        answers[place] = None if outcome is None else outcome.body
        if outcome is not None:
            outcomes.append(outcome)

    def written() -> Callable[[], None]:
        told = [heard_of for outcome in outcomes if (heard_of := outcome.written()) is not None]

        def all_heard_of() -> None:
            for heard_of in told:
                heard_of()

        return all_heard_of

    async with trio.open_nursery() as nursery:
        for place, item in enumerate(items):
            if not isinstance(item, bytes):
                nursery.start_soon(run_one, place, item)
    given = [each for each in answers if each is not None]
    return Outcome(b"[%s]" % b",".join(given), when_written=written) if given else None
