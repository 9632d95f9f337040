"""One request as a value: who asks what of which server, and how the answer may be come to. Found out once, handed on as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from auth.values.identity_model import Principal
from server.agents.base.backend import SECRET_HEADERS, AskedBy, UseKind
from server.agents.base.catalog import ToolEntry
from server.calls.caller_outlet import SILENT, Line
from server.calls.rights.standing import Standing
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.ended_sessions import topic_of
from server.calls.sessions.session import Session
from server.calls.sessions.subscriptions import Subscription
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LEVELS, LaterNews, LogLevel, LogMessage, is_wanted
from server.mcp.call_questions import abilities
from server.mcp.errors import BadParams, McpError
from server.mcp.inbound_messages import Headers, Route
from server.mcp.loads import Load
from server.mcp.messages import RequestId
from server.mcp.result_encoding import PAYMENT_EXTENSION, encode_log
from server.mcp.versions import TASKS_EXTENSION, Revision
from server.store.call_records.call_record import CallRecord
from server.store.idempotency.call_keys import IDEMPOTENCY_HEADER
from server.store.limits.endpoint_gate import sharer_of

if TYPE_CHECKING:
    from server.lib.tracing.trace_spans import Span
    from server.payments.seller.priced_call import HeaderSettlement, PaidInVain, Unpaid
    from server.store.idempotency.abandoned_answers import AbandonedCall

NO_ABILITIES: Final[frozenset[str]] = frozenset()


async def always() -> bool:
    """Answer for `still_allowed` where nobody's right to be here ends."""
    return True


# What a call does with something else of its server, in its caller's name (nested_calls.py).
Inner: TypeAlias = Callable[["Request", UseKind, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class Request(msgspec.Struct, kw_only=True):
    """One request, which back-ends know as the `Origin` of a call. `still_allowed` asks again whether the caller may be here; only a subscription outlives the first answer to that."""

    endpoint: Endpoint
    principal: Principal
    route: Route
    call_id: str  # ours, for logs and for whoever answers
    headers: Headers | None = None  # None: a wire without headers
    session: Session | None = None
    hears_questions: bool = True  # what is sent to the client of the session meanwhile comes to it
    handshake: bool = False  # its client speaks the handshake era; of a task, or inside of a call, that of the request which began it
    still_allowed: Callable[[], Awaitable[bool]] = always
    load: Load | None = None  # of a large one: for whatever outlives it, and holds what it brought
    # What tools/call names. A tool of which the caller must not know is none, and stands hidden.
    tool: ToolEntry | None = None
    standing: Standing = Standing.HIDDEN
    # The answer comes without waiting, so that nobody needs to watch its caller. Refusing is quick.
    at_once: bool = True
    priced: bool = False  # it goes by the till
    # What is said before the answer goes here.
    line: Line = SILENT
    unhurried: bool = False  # a task: nobody waits on a line, and its own time bounds it
    subscription: Subscription | None = None  # while it is one
    ending: bool = False
    known_abilities: frozenset[str] | None = None  # `can`, once somebody has asked
    # Of a task that costs something: what was begun for it at the till, and what it was paid with.
    charge: str | None = None
    payment: Any = None
    idempotency_key: str | None = None
    address: str = ""  # where the caller is, as far as it can be told
    known_sharer: str | None = None  # `sharer`, once somebody has asked
    known_apart: str | None = (
        None  # `apart` likewise; of a task, or inside of a call, that of the request which began it
    )
    repeats: bool = False  # it may have been made before, and then its answer is given again
    once: bool = False  # it has a key, or its tool has `dedupe`
    answer: Any = None  # its result, once there is one, should its client be gone by then
    adrift: AbandonedCall | None = None  # its client has left without the answer
    reached: bool = False  # its agent was asked, so it may have done something
    counted: bool = False  # by the bounds of its tool
    retry_after: int | None = None  # seconds, if it was not made because it came too soon
    unpaid: Unpaid | None = None  # how it was refused at the till, if it was
    in_vain: PaidInVain | None = None  # it was paid for beforehand, and has failed
    header_version: int = 0  # of a payment that came in a header of /mcp
    settled: HeaderSettlement | None = None  # and what became of it
    price: str | None = None  # the version of what it costs
    sold: int | None = None  # for so many millionths of a dollar
    sold_as_said: bool = False  # as its agent has it
    unmade: bool = False  # what stands in front of its tool has kept it from being made
    confirmed_again: bool = (
        False  # made before with this confirmation: it may be answered once more, and not made
    )
    asked_with: Mapping[str, Any] | None = None  # its arguments as they came, where they are others now
    unhooked: Mapping[str, Any] | None = (
        None  # as they were before a hook changed them: what it is known again by
    )
    searched: bool = False  # its tool was named to `call_tool`, which models call
    rewritten: bool = False  # its arguments are not those that came, so no header repeats them
    record: CallRecord | None = None  # of the call, once it has ended
    inner: Inner | None = None  # None: nothing else can be used
    depth: int = 0  # how many calls it is inside of
    outermost: Request | None = None  # of those, the one that its caller made; None: itself
    used: int = 0  # how many it made itself
    used_inside: int = 0  # by the outermost one: how many were made on all levels
    # Called once the answer has been written to its caller, whole; what it returns, once it is known that the caller has it.
    when_written: Callable[[], Callable[[], None] | None] | None = None
    trace: Span | None = None  # where requests are traced: its span, or that it has none
    traceparent: str | None = None  # of what is traced now, for what is done on its behalf

    def __repr__(self) -> str:  # its headers hold what let the caller in
        return f"Request({self.route.method.name}, {self.call_id})"

    @property
    def id(self) -> RequestId:
        return self.route.id

    @property
    def revision(self) -> Revision:
        return self.route.revision

    @property
    def apart(self) -> str:
        """Name its caller, or the session that is that caller's alone, as a digest: a session's id is as good as a key to it, and this is kept."""
        if self.known_apart is None:
            if self.session is not None:
                self.known_apart = topic_of(self.session.id)
            else:
                named = msgspec.json.encode([self.principal.subject, self.known_sharer or self.sharer])
                self.known_apart = hashlib.sha256(named).hexdigest()
        return self.known_apart

    @property
    def sharer(self) -> str:
        """The name by which its caller has a part of what there is only so much of."""
        if self.known_sharer is None:
            self.known_sharer = sharer_of(self.principal, self.address)
        return self.known_sharer

    @property
    def can(self) -> frozenset[str]:
        """The abilities of the caller's client: what it can be asked for."""
        known = self.known_abilities
        if known is None:
            route = self.route
            if not route.revision.modern:
                known = NO_ABILITIES if self.session is None else self.session.can
            else:
                declared = route.params.meta.client_capabilities
                known = abilities(declared, route.revision) if declared else NO_ABILITIES
            self.known_abilities = known
        return known

    @property
    def declares_tasks(self) -> bool:
        """The word of this very request that its client knows what to do with a task (2026-07-28)."""
        declared = self.route.params.meta.client_capabilities
        extensions: Any = declared.get("extensions") if declared is not UNSET else None
        return isinstance(extensions, dict) and TASKS_EXTENSION in extensions

    @property
    def without_tasks(self) -> bool:
        """True if it is a message of a client of the stateless era that takes no tasks. Whatever came in another way waits for them: calls inside
        of calls, over plain HTTP, and of the try-out page."""
        by_message = self.revision.modern and self.route.params.meta.protocol_version is not UNSET
        return by_message and not self.declares_tasks

    @property
    def pays_by_extension(self) -> bool:
        """The word of this request that its client knows what to do with a result that asks for payment, and the server has such."""
        if not self.endpoint.x402_extension or not self.revision.modern:
            return False
        declared = self.route.params.meta.client_capabilities
        extensions: Any = declared.get("extensions") if declared is not UNSET else None
        return isinstance(extensions, dict) and PAYMENT_EXTENSION in extensions

    @property
    def wants_progress(self) -> bool:
        return self.route.params.meta.progress_token is not UNSET

    def log_level(self) -> LogLevel | None:
        """Return the level from which on the caller wants log messages, now. Raises `BadParams` for one that does not exist."""
        if not self.route.revision.modern:
            return None if self.session is None or self.line is SILENT else self.session.log_level
        level = self.route.params.meta.log_level
        if level is UNSET:
            return None
        if level not in LEVELS:
            raise BadParams(f"no such log level; use one of {', '.join(LEVELS)}")
        return None if self.line is SILENT else level

    def later(self) -> LaterNews | None:
        """Return the way to the caller's session for what an agent says there after this request. Where answers are redacted there is none, for
        nothing would look these words through."""
        session, catalog = self.session, self.endpoint.catalog
        if session is None or catalog.redacts:
            return None

        async def tell(event: LogMessage) -> None:
            if not catalog.redacts and session.heard and is_wanted(event.level, session.log_level):
                await session.send(encode_log(event.level, event.data, event.logger))

        return LaterNews(tell, session.closed.wait, session.heard)

    def asked_by(self) -> AskedBy:
        from server.calls.visible_caller import facts_of

        return facts_of(self.principal, self.session, self.route.params.meta.client_info, self.endpoint.name)

    def header(self, name: bytes) -> str | None:
        if name == b"traceparent" and self.traceparent is not None:
            return self.traceparent
        hidden = self.headers is None or name.decode("latin-1") in SECRET_HEADERS
        value = None if hidden or self.headers is None else self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def use(self, what: UseKind, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.inner is None:
            raise BackendError("this call can use nothing else of the server")
        return await self.inner(self, what, name, arguments)

    def end(self) -> None:
        """End the subscription, with its result: the server is going away. Calls run to theirs."""
        self.ending = True
        if self.subscription is not None:
            self.subscription.end()


class Outcome(msgspec.Struct, frozen=True):
    """The bytes of the answer, and the error in it, if it is one: the status is the table's to say."""

    body: bytes
    error: McpError | None = None
    when_written: Callable[[], Callable[[], None] | None] | None = None
    settled: HeaderSettlement | None = None  # for its headers

    def written(self) -> Callable[[], None] | None:
        """Note that the answer was given, whole. The function that comes back is to be called once it is known that the caller has it."""
        return None if self.when_written is None else self.when_written()


def key_of(request: Request) -> Any:
    """Return the key as it came, in the `_meta` of a request or in its headers; None for none."""
    meta, headers = request.route.params.meta, request.headers
    key: Any = request.idempotency_key if meta.idempotency_key is UNSET else meta.idempotency_key
    if key is None and headers is not None and IDEMPOTENCY_HEADER in headers:
        key = headers[IDEMPOTENCY_HEADER].decode("latin-1")
    return key
