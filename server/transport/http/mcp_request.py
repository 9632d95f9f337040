"""Requests at an MCP endpoint: what their heads say (`McpHandler`), and one of somebody who was let in (`McpRequest`).

Everything that depends on the head alone is found once for all requests that have it; whether their caller may come in is asked each time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from auth.tokens.presented_credentials import Presentation, PresentedProof, present
from auth.values.identity_model import STRANGER, Principal
from server.calls.request import Outcome
from server.mcp.errors import (
    InsufficientScope,
    InternalError,
    InvalidRequest,
    TooHeavy,
    TooManyRunning,
    TooMuchAtOnce,
    TooOften,
)
from server.mcp.inbound_messages import SESSION_HEADER, VERSION_HEADER, names_session, revision_of
from server.mcp.loads import SMALL_BYTES, Load, weight_of
from server.mcp.messages import Batch, Message, decode
from server.mcp.versions import Revision
from server.transport.admission.bearer_check import EntryRefusal
from server.transport.http.allowed_hosts import ForeignRequest, OwnRequest
from server.transport.http.connection_refusals import Disconnected, RequestRefused
from server.transport.http.entry import (
    PAYMENT_HEADERS,
    PROOF_HEADER,
    TOOLS_HEADER,
    Threshold,
    is_json,
    joined,
    preflight,
    wanted_tools,
)
from server.transport.http.handler import Address, Cycle, Pairs, Resolve, Scope
from server.transport.http.mcp_reply import McpReply, accepted, status_of

if TYPE_CHECKING:
    from server.payments.seller.priced_call import HeaderSettlement

# Neither is a store that cannot answer back sooner, as a rule, nor has a large request ended.
RETRY_AFTER_SECONDS: Final = 5
ADDRESS_TOO_OFTEN: Final = "too many requests from this address"
CALLER_TOO_OFTEN: Final = "too many requests of yours"
# When one of several that run has ended.
RETRY_SOON: Final = ((b"retry-after", b"1"),)
RETRY_LATER: Final = ((b"retry-after", b"%d" % RETRY_AFTER_SECONDS),)


class McpRequest:
    """One request, and the way to answer it."""

    __slots__ = ("address", "cycle", "head", "headers", "load", "principal", "reply", "request_id")

    def __init__(
        self, handler: McpHandler, cycle: Cycle, reply: McpReply, principal: Principal, address: str
    ) -> None:
        """Begin a request. `address` is the caller's, as far as it can be told."""
        self.head: Final = handler
        self.cycle: Final = cycle
        self.reply: Final = reply
        self.principal: Final = principal
        self.address: Final = address
        self.headers: Final[Mapping[bytes, bytes]] = handler.headers
        self.request_id: Final = cycle.request_id
        self.load: Load | None = None  # of a large body, from when on it is expected

    async def still_allowed(self) -> bool:
        """Return whether the caller would be let in again, now."""
        return isinstance(await self.head.ask(self.address, again=True), Principal)

    async def ask_login(self) -> None:
        """Ask a visitor, or somebody who came in to pay, to log in for what is for neither."""
        shown = replace(self.head.shown(self.address), pays=False, visits=False)
        refusal = await self.head.threshold.doorkeeper.authenticate(shown)
        if isinstance(refusal, Principal):  # it was asked for less than a moment ago
            error = InvalidRequest("this is for nobody")
            return await self.reply.refuse(error, status=403)
        return await self.head.turn_away(self.reply, refusal)

    async def message(self) -> Message | Batch | None:
        """Return what was posted. None: a refusal was sent already, or the client left before the end."""
        if self.head.unreadable is not None:
            error = InvalidRequest(self.head.unreadable)
            return await self.reply.refuse(error, status=415, extra=((b"accept-encoding", b"identity"),))
        body = self.cycle.arrived()
        if body is not None and len(body) <= SMALL_BYTES and len(body) <= self.head.threshold.max_body_bytes:
            return decode(body)
        body = await self.body(body)
        return None if body is None else decode(body)

    async def body(self, arrived: bytes | None) -> bytes | None:
        """Return all of the body; `arrived` if it is here already. None: as for `message`."""
        try:
            return await self._large(arrived)
        except TooMuchAtOnce as error:
            return await self.reply.refuse(error, extra=RETRY_LATER)
        except TooHeavy as error:
            return await self.reply.refuse(error)

    async def _large(self, body: bytes | None) -> bytes | None:
        """Read a body that is not small, or not all here: room is taken before it is read, and for what it turns out to hold.

        Raises what `Load.weigh` does.
        """
        limit = self.head.threshold.max_body_bytes
        if body is None:
            body = await self._rest(limit)
        if body is None:
            return None
        if len(body) > limit:
            error = InvalidRequest(f"the body is larger than {limit} bytes")
            return await self.reply.refuse(error, status=413, extra=((b"connection", b"close"),))
        if len(body) > SMALL_BYTES:
            self._weigh(weight_of(body))
        return body

    async def _rest(self, limit: int) -> bytes | None:
        """Read on until there is more of the body than may be. None: the client has left."""
        expected, pieces, more = int(self.headers.get(b"content-length", b"0")), bytearray(), True
        while more and len(pieces) <= limit:
            expected = min(limit, max(expected, len(pieces)))
            if expected > SMALL_BYTES and (self.load is None or expected > self.load.weight):
                self._weigh(expected)
            event = await self.cycle.receive()
            if event["type"] == "http.disconnect":
                return None
            pieces += event.get("body", b"")
            more = event.get("more_body", False)
        return bytes(pieces)

    def _weigh(self, weight: int) -> None:
        if self.load is None:
            loads, principal = self.head.threshold.loads, self.principal
            self.load = Load(loads, principal.key(self.address), known=principal.identified)
        self.load.weigh(weight)

    async def finish(self, outcome: Outcome) -> None:
        reply, error = self.reply, outcome.error
        if error is None:
            tells = outcome.when_written is not None and not self.cycle.has_left()
            settled = outcome.settled
            await reply.finish(200, outcome.body, () if settled is None else _receipt_pairs(settled))
            if tells and reply.written:
                self.cycle.when_heard_of(outcome.written())
        elif isinstance(error, InsufficientScope) and not reply.streaming:
            head = self.head
            refusal = head.threshold.doorkeeper.forbid(error.scopes, error.missing, head.shown(self.address))
            await head.turn_away(reply, refusal)
        else:
            soon = RETRY_SOON if isinstance(error, TooManyRunning) else ()
            await reply.finish(status_of(error, reply.revision), outcome.body, soon)


def _receipt_pairs(settled: HeaderSettlement) -> Pairs:
    """Return the receipt of a payment that came in a header. A stream has sent its headers before there is one."""
    from server.transport.http.payment_required import receipt_pairs

    return receipt_pairs(settled.settlement, settled.version)


Serve: TypeAlias = Callable[[McpRequest], Awaitable[None]]


def leading_to(
    serve: Serve, threshold: Threshold, revision: Revision | None = None, *, visitors: bool = False
) -> Resolve:
    """Let callers in to `serve`. `revision` labels the answers; None: the one that a request names.

    `visitors`: `serve` knows what callers may do who have not logged in.
    """

    def resolve(scope: Scope) -> McpHandler:
        return McpHandler(threshold, scope, serve, revision, visitors=visitors)

    return resolve


class McpHandler:
    """Implements `Handler`: what the head of a request says to an MCP endpoint."""

    __slots__ = (
        "_asks_price", "_cors", "_denied", "_revision", "_serve", "_shown", "client", "headers", "named_session", "names_session",
        "origin", "path", "query", "takes_events", "takes_json", "threshold", "unreadable", "verb",
    )  # fmt: skip

    replies: ClassVar[Callable[..., McpReply]] = McpReply
    requests: ClassVar[Callable[..., McpRequest]] = McpRequest
    crashed: ClassVar = "mcp.crashed"

    def __init__(
        self,
        threshold: Threshold,
        scope: Scope,
        serve: Serve,
        revision: Revision | None,
        *,
        asks_price: bool = False,
        visitors: bool = False,
    ) -> None:
        """Read a head. `asks_price`: a client without a login wants the price. `visitors`: as of `leading_to`."""
        headers = joined(scope["headers"])
        found = threshold.guard(scope, headers)
        self.threshold: Final = threshold
        self.headers: Final = headers
        self.verb: Final[str] = scope["method"]
        self.path: Final[str] = scope["path"]
        self.query: Final[str] = scope.get("query_string", b"").decode("latin-1")
        self.client: Final = (
            cast("Address | None", scope.get("client")) if scope["state"].get("proxied") else None
        )
        self.takes_json, self.takes_events = accepted(headers.get(b"accept"))
        self.unreadable: Final = _why_unreadable(headers)
        self.names_session: Final = names_session(headers)  # in an era that has sessions
        self.named_session: Final = (
            headers[SESSION_HEADER].decode("latin-1") if SESSION_HEADER in headers else None
        )
        self._serve = serve
        self._revision = revision or revision_of(headers)
        self._denied = found if isinstance(found, ForeignRequest) else None
        self.origin: Final = found.origin if isinstance(found, OwnRequest) else ""
        self._cors = found.cors if isinstance(found, OwnRequest) else None
        shows_nothing = not (
            b"authorization" in headers or b"x-api-key" in headers or PROOF_HEADER in headers
        )
        nameless = threshold.sells_to_all and not (b"authorization" in headers or b"x-api-key" in headers)
        pays = nameless and (asks_price or any(name in headers for name in PAYMENT_HEADERS.values()))
        self._shown = _presented(
            threshold, scope, headers, self.origin, pays=pays, visits=visitors and shows_nothing
        )
        # Who speaks MCP is asked to log in, and who speaks plain HTTP to pay (design of the protocol: neither knows the other's answer).
        self._asks_price = nameless and not pays and not _speaks_mcp(headers)

    async def answer(self, cycle: Cycle) -> None:
        reply = self.replies(
            cycle,
            takes_json=self.takes_json,
            takes_events=self.takes_events,
            cors=self._cors,
            revision=self._revision,
        )
        try:
            if self._denied is not None:
                return await reply.refuse(InvalidRequest(self._denied.reason), status=self._denied.status)
            if self.verb == "OPTIONS":
                return await reply.empty(204, preflight(self.headers))
            client = cycle.client
            address = client[0] if client else ""
            shown = self._shown
            if shown.address != address:
                shown = self.shown(address)
            gate = self.threshold.gate
            site = "" if gate is None else gate.site_of(address)
            if site and gate is not None and (wait := gate.knock(site)):
                return await slow_down(reply, ADDRESS_TOO_OFTEN, gate.turned_back(site, wait))
            doorkeeper = self.threshold.doorkeeper
            who = doorkeeper.who_nowait(shown) or await doorkeeper.authenticate(shown)
            if not isinstance(who, Principal):
                if self._asks_price and who.status == 401:
                    return await self._ask_payment(cycle, reply, address)
                return await self.turn_away(reply, who)
            if gate is not None and (site or gate.counts_all) and (seconds := gate.recognise(who, site)):
                return await slow_down(reply, CALLER_TOO_OFTEN, seconds)
            visit = self.requests(self, cycle, reply, who, address)
            try:
                return await self._serve(visit)
            finally:
                if visit.load is not None:
                    visit.load.let_go()
        except (RequestRefused, Disconnected):
            raise  # the connection's own: what became of the body while it was read
        except Exception:
            self.threshold.log.exception(self.crashed, request=cycle.request_id)
            return await reply.refuse(InternalError(cycle.request_id), status=500)

    async def turn_away(self, reply: McpReply, refusal: EntryRefusal) -> None:
        """Give the authorization server's answer instead of ours (400, 401, 403, 503)."""
        extra = (*refusal.headers, *(RETRY_LATER if refusal.status == 503 else ()))
        await reply.finish(refusal.status, refusal.body, extra)

    async def _ask_payment(self, cycle: Cycle, reply: McpReply, address: str) -> None:
        """Answer 402 with the price of the called tool to a client that knows nothing of MCP's logins."""
        storefront = self.threshold.storefront
        assert storefront is not None  # something is sold here
        visit = McpRequest(self, cycle, reply, STRANGER, address)
        try:
            body = await visit.body(cycle.arrived()) if self.verb == "POST" else b""
        finally:
            if visit.load is not None:
                visit.load.let_go()
        if body is None:
            return
        unpaid = storefront.poster(_named_tool(body), STRANGER) or storefront.sign()
        from server.transport.http.payment_required import challenge_pairs

        told = msgspec.json.encode(unpaid.challenge_v1 or unpaid.challenge)
        await reply.finish(402, told, challenge_pairs(unpaid))

    def done(self, cycle: Cycle, seconds: float) -> None:
        """Do nothing: there is nothing left to tell."""

    async def ask(self, address: str, *, again: bool = False) -> Principal | EntryRefusal:
        """Ask who calls, by what the request shows. `again`: the same request was asked of before."""
        return await self.threshold.doorkeeper.authenticate(self.shown(address, again=again))

    def shown(self, address: str, *, again: bool = False) -> Presentation:
        shown = self._shown
        if shown.address != address:
            shown = self._shown = replace(shown, address=address)
        if again and shown.proof is not None:
            return replace(shown, proof=PresentedProof(shown.proof.text, shown.proof.method, again))
        return shown


def _why_unreadable(headers: Mapping[bytes, bytes]) -> str | None:
    """Return why a body is not looked at, if it is not."""
    if not is_json(headers.get(b"content-type")):
        return "the content type must be application/json"
    if headers.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity"):
        return "the body must be sent as it is, without a Content-Encoding"
    return None


def _speaks_mcp(headers: Mapping[bytes, bytes]) -> bool:
    return (
        VERSION_HEADER in headers
        or SESSION_HEADER in headers
        or b"text/event-stream" in headers.get(b"accept", b"").lower()
    )


class _NamedTool(msgspec.Struct):
    name: str


class _Call(msgspec.Struct):
    """The part of a call that names its tool."""

    method: Literal["tools/call"]
    params: _NamedTool


def _named_tool(body: bytes) -> str:
    """Return the tool that a call names; "" for whatever is no call."""
    try:
        return msgspec.json.decode(body, type=_Call).params.name
    except (msgspec.DecodeError, RecursionError):
        return ""


def _presented(
    threshold: Threshold,
    scope: Scope,
    headers: Mapping[bytes, bytes],
    origin: str,
    *,
    pays: bool,
    visits: bool,
) -> Presentation:
    """Return what the head shows; the caller's address is added for each connection."""
    authorization, api_key = headers.get(b"authorization"), headers.get(b"x-api-key")
    proof = headers.get(PROOF_HEADER)
    has_tools = TOOLS_HEADER in headers or bool(scope.get("query_string"))
    return present(
        None if authorization is None else authorization.decode("latin-1"),
        None if api_key is None else api_key.decode("latin-1"),
        server=threshold.name,
        origin=origin,
        path=scope["path"],
        proof=None if proof is None else PresentedProof(proof.decode("latin-1"), scope["method"]),
        tools=wanted_tools(scope, headers) if has_tools else None,
        pays=pays,
        visits=visits,
    )


async def slow_down(reply: McpReply, text: str, seconds: int) -> None:
    """Answer 429, before anything of the message was read."""
    error = TooOften(f"{text}: try again in {seconds} second{'' if seconds == 1 else 's'}", seconds)
    await reply.refuse(error, extra=((b"retry-after", b"%d" % seconds),))
