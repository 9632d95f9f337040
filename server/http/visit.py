"""A request at an MCP endpoint before it is looked into: who may come in, and what is known of who did.

    guard → preflight → who

Every endpoint that speaks MCP over HTTP has the same threshold, whatever lies behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl

import trio

from auth.model import Principal
from auth.tokens.dpop import Presented
from server.exchange import Outcome
from server.http.guard import Admitted, Denied
from server.http.reply import Reply, status_of
from server.mcp.errors import InsufficientScope, InvalidRequest
from server.mcp.messages import Batch, Message, decode

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
    b"X-Payment, Payment-Signature, X-API-Key, X-Ostiary-Tools, DPoP"
)
_TOOLS_HEADER: Final = b"x-ostiary-tools"
_PROOF_HEADER: Final = b"dpop"
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
        self,
        authorization: str | None,
        *,
        origin: str,
        server: str,
        path: str,
        api_key: str | None,
        address: str,
        tools: str | None,
        proof: Presented | None,
    ) -> Principal | Refusal: ...


class Forbid(Protocol):
    """The 403 that names all the scopes that an operation needs, in one challenge."""

    def __call__(self, scopes: frozenset[str], *, origin: str, server: str, path: str) -> Refusal: ...


class Threshold:
    """`name` is the server's name in the configuration."""

    def __init__(
        self,
        *,
        name: str,
        guard: Guard,
        authenticate: Authenticate,
        forbid: Forbid,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.name: Final = name
        self.guard: Final = guard
        self.authenticate = authenticate
        self.forbid: Final = forbid
        self.max_body_bytes: Final = max_body_bytes

    async def admit(
        self, scope: Scope, receive: Receive, reply: Reply, headers: Mapping[bytes, bytes]
    ) -> Visit | None:
        """None: it was answered already."""
        admitted = self.guard(scope, headers)
        if isinstance(admitted, Denied):
            return await reply.refuse(InvalidRequest(admitted.reason), status=admitted.status)
        reply.cors = admitted.cors
        if scope["method"] == "OPTIONS":
            return await reply.empty(204, _preflight(headers))
        who = await self.ask(scope, headers, admitted.origin)
        if not isinstance(who, Principal):
            return await _pass_on(reply, who)
        return Visit(self, scope, receive, reply, headers, who, admitted.origin)

    async def ask(
        self, scope: Scope, headers: Mapping[bytes, bytes], origin: str, *, again: bool = False
    ) -> Principal | Refusal:
        """Who calls, by what the request shows. `again`: it was asked before, of the same request."""
        authorization, api_key = headers.get(b"authorization"), headers.get(b"x-api-key")
        tools: str | None = None
        if _TOOLS_HEADER in headers or scope.get("query_string"):
            tools = _tools(scope, headers)
        proof: Presented | None = None
        if _PROOF_HEADER in headers:
            proof = Presented(headers[_PROOF_HEADER].decode("latin-1"), scope["method"], again)
        return await self.authenticate(
            None if authorization is None else authorization.decode("latin-1"),
            origin=origin,
            server=self.name,
            path=scope["path"],
            api_key=None if api_key is None else api_key.decode("latin-1"),
            address=_address(scope),
            tools=tools,
            proof=proof,
        )


class Visit:
    """One request of somebody who was let in, and the way to answer it."""

    __slots__ = ("_origin", "_receive", "_threshold", "headers", "principal", "reply", "scope")

    def __init__(
        self,
        threshold: Threshold,
        scope: Scope,
        receive: Receive,
        reply: Reply,
        headers: Mapping[bytes, bytes],
        principal: Principal,
        origin: str,
    ) -> None:
        self._threshold = threshold
        self._receive = receive
        self._origin = origin
        self.scope = scope
        self.reply = reply
        self.headers = headers
        self.principal = principal

    @property
    def request_id(self) -> str:
        return self.scope["state"]["request_id"]

    @property
    def draining(self) -> trio.Event:
        return self.scope["state"]["draining"]

    @property
    def address(self) -> str:
        """Where the caller is, as far as it can be told."""
        return _address(self.scope)

    async def still_allowed(self) -> bool:
        """Whether the caller would be let in again, now."""
        return isinstance(
            await self._threshold.ask(self.scope, self.headers, self._origin, again=True), Principal
        )

    async def message(self) -> Message | Batch | None:
        """What was posted. None: it was refused already, or the client left before it had said it all."""
        if not _is_json(self.headers.get(b"content-type")):
            error = InvalidRequest("the content type must be application/json")
            return await self.reply.refuse(error, status=415)
        body = bytearray()
        more, limit = True, self._threshold.max_body_bytes
        while more:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                return None
            piece: bytes = event.get("body", b"")
            more = event.get("more_body", False)
            if len(body) + len(piece) > limit:
                error = InvalidRequest(f"the body is larger than {limit} bytes")
                return await self.reply.refuse(error, status=413, extra=((b"connection", b"close"),))
            if not more and not body:
                return decode(piece)
            body += piece
        return decode(bytes(body))

    async def wait_gone(self) -> None:
        """Returns when the client has left."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def finish(self, outcome: Outcome) -> None:
        reply, error = self.reply, outcome.error
        if error is None:
            await reply.finish(200, outcome.body)
        elif isinstance(error, InsufficientScope) and not reply.streaming:
            threshold = self._threshold
            refusal = threshold.forbid(
                error.scopes, origin=self._origin, server=threshold.name, path=self.scope["path"]
            )
            await _pass_on(reply, refusal)
        else:
            await reply.finish(status_of(error, reply.revision), outcome.body)


def joined(pairs: Sequence[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """One value per name. What was sent twice is joined, and so is no valid value of a header that has one."""
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    values: dict[bytes, bytes] = {}
    for name, value in pairs:
        values[name] = values[name] + b", " + value if name in values else value
    return values


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _tools(scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
    """What the request says of the tools it wants to know of: by header, in its address, or both, which then both bound it."""
    written = [headers.get(_TOOLS_HEADER, b"").decode("latin-1")]
    # The connection layer bounds the address; a parameter that is not ours says nothing.
    for name, value in parse_qsl(scope.get("query_string", b"").decode("latin-1")):
        if name == "tools":
            written.append(value)
    return ";".join(text for text in written if text.strip()) or None


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
