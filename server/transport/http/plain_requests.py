"""Requests of plain HTTP, beside MCP: JSON in, JSON out, and what is wrong is said by the status.

The threshold is the server's own, as for MCP. A caller who is not let in learns the price as well, so that both ways are open: 401 with
the challenge of a login, and 402 only where nobody needs one (x402 transports-v2/http.md, transports-v1/http.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from auth.values.identity_model import Principal
from server.lib.surrogates import decode_mended
from server.mcp.errors import WIRE, InvalidRequest, McpError, ServerStopping
from server.mcp.messages import RequestId
from server.mcp.versions import LATEST
from server.store.idempotency.call_keys import IDEMPOTENCY_HEADER
from server.transport.admission.bearer_check import EntryRefusal
from server.transport.http.entry import ALLOW, PAYMENT_HEADERS, Threshold
from server.transport.http.handler import Cycle, Pairs, Scope
from server.transport.http.mcp_reply import McpReply, cors_headers
from server.transport.http.mcp_request import (
    RETRY_LATER,
    McpHandler,
    McpRequest,
    Serve,
)

if TYPE_CHECKING:
    from server.payments.seller.priced_call import Unpaid

NOT_STORED: Final = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
# What was paid for is nobody else's, and a good answer all the same.
PRIVATE: Final = ((b"content-type", b"application/json"), (b"cache-control", b"private"))
_encode: Final = msgspec.json.Encoder().encode
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


class PlainReply(McpReply):
    """One answer, which is never a stream."""

    __slots__ = ()

    async def finish(self, status: int, body: bytes, extra: Pairs = ()) -> None:
        await self.give(status, body, (*NOT_STORED, *extra))

    async def give(self, status: int, body: bytes, headers: Pairs) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            await self._cycle.answer(status, headers + cors_headers(self._cors), body)
        except OSError:
            return
        self.written = True

    async def empty(self, status: int, extra: Pairs = ()) -> None:
        await self.give(status, b"", extra)

    async def say(self, status: int, error: str, description: str, extra: Pairs = (), **more: Any) -> None:
        await self.finish(status, _encode({"error": error, "error_description": description, **more}), extra)

    async def refuse(
        self,
        error: McpError,
        request_id: RequestId | None = None,
        *,
        status: int | None = None,
        extra: Pairs = (),
    ) -> None:
        """Say what goes wrong before anything is run."""
        status = status or WIRE[type(error)].modern
        word = (
            "server_error" if status >= 500 else "too_many_requests" if status == 429 else "invalid_request"
        )
        await self.say(status, word, str(error), extra)

    async def tell_stopping(self, request_id: RequestId | None) -> None:
        await self.refuse(ServerStopping(), status=503, extra=RETRY_LATER)

    async def demand(
        self, unpaid: Unpaid, *, version: int = 2, status: int = 0, extra: Pairs = (), **more: Any
    ) -> None:
        """Ask for payment, or say whatever else the till said. `version`: of the payment that came, if one did."""
        from server.transport.http.payment_required import demand_of

        headers, body = demand_of(unpaid, version, more)
        await self.finish(status or unpaid.refusal.status, body, (*headers, *extra))


class PlainRequest(McpRequest):
    """One request of somebody who was let in."""

    __slots__ = ("idempotency_key", "payment", "payment_version", "plain", "plain_head")

    def __init__(
        self, handler: PlainHandler, cycle: Cycle, reply: PlainReply, principal: Principal, address: str
    ) -> None:
        super().__init__(handler, cycle, reply, principal, address)
        self.plain: Final = reply
        self.plain_head: Final = handler
        headers = handler.headers
        # The answer goes by the version of the header that brought the payment: its sender reads no other.
        self.payment_version, name = next(
            ((version, name) for version, name in PAYMENT_HEADERS.items() if name in headers), (2, b"")
        )
        self.payment: Final = headers[name].decode("latin-1") if name else None
        key = headers.get(IDEMPOTENCY_HEADER)
        self.idempotency_key: Final = None if key is None else key.decode("latin-1")

    async def json_object(self) -> Mapping[str, Any] | None:
        """Return what was posted; nothing at all is an object without members. None: a refusal was sent, or the client left."""
        body = self.cycle.arrived()
        if body is None or len(body) > 0:
            if self.head.unreadable is not None:
                return await self.reply.refuse(
                    InvalidRequest(self.head.unreadable),
                    status=415,
                    extra=((b"accept-encoding", b"identity"),),
                )
            body = await self.body(body)
        if body is None:
            return None
        try:
            body.decode()  # what is skipped is not checked for UTF-8 by the decoder
            return decode_mended(_decode_object, body) if body else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return await self.reply.refuse(InvalidRequest("the body is not a JSON object"), status=400)


ServePlain: TypeAlias = Callable[[PlainRequest], Awaitable[None]]


class PlainHandler(McpHandler):
    """Implements `Handler`: what the head of a request says to an address of plain HTTP. `thing`: what it is about, in the words of the
    storefront; "" for nothing that has a price."""

    __slots__ = ("thing",)

    replies = PlainReply
    requests = PlainRequest
    crashed = "http.crashed"

    def __init__(
        self,
        threshold: Threshold,
        scope: Scope,
        serve: ServePlain,
        thing: str = "",
        *,
        visitors: bool = False,
    ) -> None:
        super().__init__(threshold, scope, cast("Serve", serve), LATEST, asks_price=True, visitors=visitors)
        self.thing: Final = thing

    async def as_visitor(self, visit: PlainRequest) -> PlainRequest | None:
        """Return the request of somebody who came in to pay as one that shows nothing; None if nobody comes in like that."""
        shown = replace(self.shown(visit.address), pays=False)
        who = await self.threshold.doorkeeper.authenticate(shown)
        return (
            PlainRequest(self, visit.cycle, visit.plain, who, visit.address)
            if isinstance(who, Principal)
            else None
        )

    async def ask_login(self, visit: PlainRequest) -> None:
        """Ask somebody who came in without a login for one."""
        shown = replace(self.shown(visit.address), pays=False, visits=False)
        who = await self.threshold.doorkeeper.authenticate(shown)
        if isinstance(who, Principal):  # nobody is asked to log in here
            return await visit.plain.say(404, "not_found", "there is no such tool")
        return await self.turn_away(visit.plain, who)

    async def turn_away(self, reply: McpReply, refusal: EntryRefusal) -> None:
        """Give the authorization server's answer (400, 401, 403, 503), and with a 401 what the thing would cost."""
        storefront = self.threshold.storefront
        poster = storefront.poster(self.thing) if storefront is not None and refusal.status == 401 else None
        if storefront is None or poster is None:
            return await super().turn_away(reply, refusal)
        return await cast("PlainReply", reply).demand(
            poster,
            status=401,
            extra=tuple(refusal.headers),
            setup=storefront.setup,
            error_description=poster.refusal.text,
        )


async def wrong_verb(visit: PlainRequest, thing: str) -> None:
    """Refuse; but show whoever looks at what is sold what it costs."""
    storefront = visit.head.threshold.storefront
    poster = None if storefront is None else storefront.poster(thing, visit.principal)
    if poster is not None:
        return await visit.plain.demand(poster, extra=(ALLOW,))
    return await visit.plain.say(405, "invalid_request", "POST a JSON object here", (ALLOW,))
