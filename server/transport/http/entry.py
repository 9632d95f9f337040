"""The threshold of an MCP endpoint: who may come in, by what the head of a request says.

    guard → preflight → who

Every endpoint that speaks MCP over HTTP has the same one, whatever lies behind it (mcp_request.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import parse_qsl

from server.lib.log.logger import Logger
from server.mcp.loads import Loads
from server.store.limits.endpoint_gate import Gate
from server.transport.admission.bearer_check import Admission
from server.transport.http.allowed_hosts import ForeignRequest, OwnRequest
from server.transport.http.handler import Pairs, Scope

if TYPE_CHECKING:
    from server.calls.shown_prices import Storefront

# Larger than any message that a model writes; the connection layer stops reading there, too.
MAX_BODY_BYTES: Final = 2 * 1024 * 1024
# Preflights are asked again after this; browsers cap it at two hours.
PREFLIGHT_SECONDS: Final = 7200

ALLOW: Final = (b"allow", b"POST, OPTIONS")
_ALLOWED_HEADERS: Final = (
    b"Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID, "
    b"X-Payment, Payment-Signature, Idempotency-Key, X-API-Key, X-Ostiary-Tools, DPoP"
)
# By the version of x402 whose payments they bring; the newer one is looked at first.
PAYMENT_HEADERS: Final[Mapping[int, bytes]] = MappingProxyType({2: b"payment-signature", 1: b"x-payment"})
TOOLS_HEADER: Final = b"x-ostiary-tools"
PROOF_HEADER: Final = b"dpop"
_PARAM_HEADER: Final = b"mcp-param-"
_TOKEN_BYTES: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+.^_`|~-")

Guard: TypeAlias = Callable[[Scope, Mapping[bytes, bytes]], OwnRequest | ForeignRequest]


class Threshold:
    """`name` is the server's name in the configuration. `loads`: those of the process. `storefront`: where it sells something; and
    `sells_to_all`: to whoever pays, also without a login. `gate`: how often somebody may come."""

    def __init__(
        self,
        *,
        name: str,
        guard: Guard,
        doorkeeper: Admission,
        log: Logger,
        max_body_bytes: int = MAX_BODY_BYTES,
        loads: Loads | None = None,
        storefront: Storefront | None = None,
        sells_to_all: bool = False,
        gate: Gate | None = None,
    ) -> None:
        self.name: Final = name
        self.guard: Final = guard
        self.doorkeeper = doorkeeper
        self.log: Final = log
        self.max_body_bytes: Final = max_body_bytes
        self.loads: Final = loads or Loads(max_body_bytes)
        self.storefront: Final = storefront
        self.sells_to_all: Final = sells_to_all
        self.gate: Final = gate


def joined(pairs: Sequence[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """Return one value per name. Values sent twice are joined, and so are no valid value of a header that has one."""
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    values: dict[bytes, bytes] = {}
    for name, value in pairs:
        values[name] = values[name] + b", " + value if name in values else value
    return values


def wanted_tools(scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
    """Return the tools that a request wants to know of: by header, in its address, or both, which then both bound it."""
    written = [headers.get(TOOLS_HEADER, b"").decode("latin-1")]
    # The connection layer bounds the address; a parameter that is not ours says nothing.
    for name, value in parse_qsl(scope.get("query_string", b"").decode("latin-1")):
        if name == "tools":
            written.append(value)
    return ";".join(text for text in written if text.strip()) or None


def is_json(content_type: bytes | None) -> bool:
    return content_type is not None and (
        content_type == b"application/json"
        or content_type.partition(b";")[0].strip().lower() == b"application/json"
    )


def preflight(headers: Mapping[bytes, bytes]) -> Pairs:
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
