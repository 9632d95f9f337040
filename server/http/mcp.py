"""`/mcp` over HTTP: POST, and the clear refusals of everything else, both eras on one endpoint. Raw ASGI.

    guard → preflight → who → verb → content type → body → classify → run → JSON, or a stream from the first event on

What a message means is server/mcp's, what a call does is calls.py's; here a request becomes the one and the answer of the
other becomes HTTP. Spec: basic/transports/streamable-http (2026-07-28), basic/transports (2025-11-25 and before).

Until the server keeps sessions, requests of the handshake era are each answered by themselves: no session id is given out,
and one that is sent names a session that is gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import trio

from auth.model import Principal
from server.http.exchange import Exchange, Lent, Outcome
from server.http.guard import Admitted, Denied
from server.http.refusal import Disconnected, Refused
from server.http.reply import Reply, Send, status_of
from server.http.sse import Emit, attend, stream
from server.mcp.errors import InsufficientScope, InternalError, InvalidRequest, SessionNotFound
from server.mcp.inbound import (
    Rejection,
    Route,
    Taken,
    classify,
    classify_item,
    names_lost_session,
    open_batch,
    revision_of,
)
from server.mcp.messages import Batch, Message, decode
from server.mcp.params import CallToolParams
from server.mcp.results import encode_error
from server.mcp.versions import Revision

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

# Larger than any message that a model writes; the connection layer stops reading there, too.
MAX_BODY_BYTES: Final = 2 * 1024 * 1024
# A store that cannot answer is rarely back sooner.
RETRY_AFTER_SECONDS: Final = 5
# Preflights are asked again after this; browsers cap it at two hours.
PREFLIGHT_SECONDS: Final = 7200

ALLOW: Final = (b"allow", b"POST, OPTIONS")
_ALLOWED_HEADERS: Final = (
    b"Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID, "
    b"X-Payment, Payment-Signature"
)
_PARAM_HEADER: Final = b"mcp-param-"
_TOKEN_BYTES: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+.^_`|~-")


class Refusal(Protocol):
    """The authorization server's answer instead of ours (401, 403)."""

    @property
    def status(self) -> int: ...
    @property
    def www_authenticate(self) -> str: ...
    @property
    def body(self) -> bytes: ...


Guard: TypeAlias = Callable[[Scope, Mapping[bytes, bytes]], Admitted | Denied]


class Authenticate(Protocol):
    """Called for every request, of any verb; it must not wait where it can be avoided."""

    async def __call__(
        self, authorization: str | None, *, origin: str, server: str, path: str
    ) -> Principal | Refusal: ...


class Forbid(Protocol):
    """The 403 that names all the scopes that an operation needs, in one challenge."""

    def __call__(self, scopes: frozenset[str], *, origin: str, server: str, path: str) -> Refusal: ...


class McpEndpoint:
    """`await endpoint(scope, receive, send)` for `/mcp` and `/mcp/`. `name` is the server's name in the configuration."""

    def __init__(
        self,
        *,
        name: str,
        lent: Lent,
        guard: Guard,
        authenticate: Authenticate,
        forbid: Forbid,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._name = name
        self._lent = lent
        self._guard = guard
        self._authenticate = authenticate
        self._forbid = forbid
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope["headers"])
        reply = Reply(send, accept=headers.get(b"accept"))
        reply.revision = revision_of(headers)
        try:
            await self._serve(scope, receive, reply, headers)
        except (Refused, Disconnected):
            raise  # the connection's own: what became of the body while it was read
        except Exception:
            request_id: str = scope["state"]["request_id"]
            self._lent.log.exception("mcp.crashed", request=request_id)
            await reply.refuse(InternalError(request_id), status=500)

    async def _serve(
        self, scope: Scope, receive: Receive, reply: Reply, headers: Mapping[bytes, bytes]
    ) -> None:
        admitted = self._guard(scope, headers)
        if isinstance(admitted, Denied):
            return await reply.refuse(InvalidRequest(admitted.reason), status=admitted.status)
        reply.cors = admitted.cors
        verb: str = scope["method"]
        if verb == "OPTIONS":
            return await reply.empty(204, _preflight(headers))
        authorization = headers.get(b"authorization")
        who = await self._authenticate(
            None if authorization is None else authorization.decode("latin-1"),
            origin=admitted.origin,
            server=self._name,
            path=scope["path"],
        )
        if not isinstance(who, Principal):
            return await _pass_on(reply, who)
        if verb == "POST":
            return await self._post(scope, receive, reply, headers, who, admitted.origin)
        # GET, HEAD and DELETE belong to sessions. Where one is named it is gone, and the client starts over; else there is
        # nothing here, at once: a stream that stays silent costs some clients seconds.
        if names_lost_session(headers):
            return await reply.refuse(SessionNotFound("unknown session"))
        return await reply.refuse(InvalidRequest("POST a JSON-RPC message here"), status=405, extra=(ALLOW,))

    async def _post(
        self,
        scope: Scope,
        receive: Receive,
        reply: Reply,
        headers: Mapping[bytes, bytes],
        who: Principal,
        origin: str,
    ) -> None:
        if not _is_json(headers.get(b"content-type")):
            return await reply.refuse(InvalidRequest("the content type must be application/json"), status=415)
        if not (reply.takes_json or reply.takes_events):
            error = InvalidRequest("the answer is application/json or text/event-stream")
            return await reply.refuse(error, status=406)
        message = await self._message(receive)
        if message is None:
            return None
        if isinstance(message, InvalidRequest):
            return await reply.refuse(message, status=413, extra=((b"connection", b"close"),))
        request_id: str = scope["state"]["request_id"]
        still_allowed = partial(self._still_allowed, headers.get(b"authorization"), origin, scope["path"])
        begin = partial(
            Exchange, principal=who, lent=self._lent, headers=headers, still_allowed=still_allowed
        )
        if isinstance(message, Batch):
            return await self._batch(message, headers, reply, begin, request_id)
        verdict = classify(message, headers)
        del message  # the whole body hangs on it, and a stream may last for days
        reply.revision = verdict.revision
        if isinstance(verdict, Rejection):
            return await reply.refuse(verdict.error, verdict.id)
        if isinstance(verdict, Taken):
            return await reply.empty(202)
        if verdict.method.streams and not reply.takes_events:
            error = InvalidRequest(f"{verdict.method.name} is answered with text/event-stream")
            return await reply.refuse(error, verdict.id, status=406)
        exchange = begin(verdict, call_id=request_id)
        if verdict.method.streams:
            end = partial(_end_at, scope["state"]["draining"], exchange)
            outcome = await attend(exchange.run, reply, gone=partial(_wait_gone, receive), alongside=end)
        elif self._returns_at_once(verdict):
            outcome = await exchange.run()
        else:
            gone = partial(_wait_gone, receive) if verdict.revision.modern else None
            outcome = await stream(exchange.run, reply, gone=gone)
        if outcome is not None:
            await self._finish(reply, outcome, origin, scope["path"])
        return None

    async def _finish(self, reply: Reply, outcome: Outcome, origin: str, path: str) -> None:
        error = outcome.error
        if error is None:
            await reply.finish(200, outcome.body)
        elif isinstance(error, InsufficientScope) and not reply.streaming:
            refusal = self._forbid(error.scopes, origin=origin, server=self._name, path=path)
            await _pass_on(reply, refusal)
        else:
            await reply.finish(status_of(error, reply.revision), outcome.body)

    async def _batch(
        self,
        batch: Batch,
        headers: Mapping[bytes, bytes],
        reply: Reply,
        begin: Callable[..., Exchange],
        request_id: str,
    ) -> None:
        revision = open_batch(batch, headers)
        if isinstance(revision, Rejection):
            reply.revision = revision.revision
            return await reply.refuse(revision.error)
        reply.revision = revision
        answers = await stream(partial(_answer_batch, batch, revision, begin, request_id), reply, gone=None)
        if not answers:
            return await reply.empty(202)
        return await reply.finish(200, b"[%s]" % b",".join(answers))

    def _returns_at_once(self, route: Route) -> bool:
        if not route.method.waits:
            return True
        return isinstance(route.params, CallToolParams) and self._lent.calls.quick(route.params.name)

    async def _still_allowed(self, authorization: bytes | None, origin: str, path: str) -> bool:
        text = None if authorization is None else authorization.decode("latin-1")
        found = await self._authenticate(text, origin=origin, server=self._name, path=path)
        return isinstance(found, Principal)

    async def _message(self, receive: Receive) -> Message | Batch | InvalidRequest | None:
        """What the body says; `InvalidRequest` when it is too large to be asked, None when the client left first."""
        body = bytearray()
        more = True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            piece: bytes = event.get("body", b"")
            more = event.get("more_body", False)
            if len(body) + len(piece) > self._max_body_bytes:
                return InvalidRequest(f"the body is larger than {self._max_body_bytes} bytes")
            if not more and not body:
                return decode(piece)
            body += piece
        return decode(bytes(body))


async def _answer_batch(
    batch: Batch, revision: Revision, begin: Callable[..., Exchange], request_id: str, _emit: Emit
) -> Sequence[bytes]:
    """The answers in the order of the requests, which run side by side. Nothing else is sent meanwhile."""
    answers: list[bytes | None] = [None] * len(batch.items)

    async def run(place: int, exchange: Exchange) -> None:
        answers[place] = (await exchange.run()).body

    async with trio.open_nursery() as nursery:
        for place, item in enumerate(batch.items):
            verdict = classify_item(item, revision)
            if isinstance(verdict, Rejection):
                answers[place] = encode_error(verdict.id, verdict.error)
            elif isinstance(verdict, Route):
                nursery.start_soon(run, place, begin(verdict, call_id=f"{request_id}.{place}"))
    return [answer for answer in answers if answer is not None]


def _headers(pairs: Sequence[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """One value per name. What was sent twice is joined, and so is no valid value of a header that has one."""
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    joined: dict[bytes, bytes] = {}
    for name, value in pairs:
        joined[name] = joined[name] + b", " + value if name in joined else value
    return joined


def _is_json(content_type: bytes | None) -> bool:
    return content_type is not None and (
        content_type == b"application/json"
        or content_type.partition(b";")[0].strip().lower() == b"application/json"
    )


def _preflight(headers: Mapping[bytes, bytes]) -> Sequence[tuple[bytes, bytes]]:
    if b"origin" not in headers:
        return (ALLOW,)
    allowed = [_ALLOWED_HEADERS]
    # `*` does not cover headers of credentialed requests, so each is named; which ones a tool wants, its schema says.
    for name in headers.get(b"access-control-request-headers", b"").lower().split(b",")[:64]:
        name = name.strip()
        if name.startswith(_PARAM_HEADER) and _TOKEN_BYTES.issuperset(name):
            allowed.append(name)
    return (
        (b"access-control-allow-methods", b"POST, GET, DELETE, OPTIONS"),
        (b"access-control-allow-headers", b", ".join(allowed)),
        (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
    )


async def _pass_on(reply: Reply, refusal: Refusal) -> None:
    extra: list[tuple[bytes, bytes]] = []
    if refusal.www_authenticate:
        extra.append((b"www-authenticate", refusal.www_authenticate.encode("latin-1")))
    if refusal.status == 503:
        extra.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    await reply.finish(refusal.status, refusal.body, extra)


async def _wait_gone(receive: Receive) -> None:
    await receive()  # once the body has come, the disconnect is all that can


async def _end_at(draining: trio.Event, exchange: Exchange) -> None:
    await draining.wait()
    exchange.end()
