"""The answers of identity over HTTP: always JSON, never cached where there is a secret, open to pages of any origin (CORS)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from auth.keys.signing_keys import etag
from auth.values.compact_json import json_bytes
from auth.values.http_messages import WireReply, WireRequest
from auth.values.oauth_errors import OAuthRefusal

Headers = tuple[tuple[str, str], ...]

# These endpoints take nothing from a cookie, so any page may call them; /authorize and the pages have no such headers.
CORS: Final[Headers] = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Expose-Headers", "WWW-Authenticate, DPoP-Nonce, Retry-After, ETag"),
)
PREFLIGHT: Final[Headers] = (
    ("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, MCP-Protocol-Version, DPoP"),
    ("Access-Control-Max-Age", "86400"),
)
JSON: Final[Headers] = (("Content-Type", "application/json"), ("X-Content-Type-Options", "nosniff"))
NO_STORE: Final[Headers] = (("Cache-Control", "no-store"), ("Pragma", "no-cache"))
_ANSWERED: Final[Headers] = JSON + NO_STORE + CORS
DOCUMENT_SECONDS: Final = 300


def answer(body: Mapping[str, Any]) -> WireReply:
    return WireReply(status=200, headers=_ANSWERED, body=json_bytes(body))


def empty() -> WireReply:
    return WireReply(status=200, headers=NO_STORE + CORS)


def refuse(refusal: OAuthRefusal, *, basic: bool = False) -> WireReply:
    """Answer with an error (RFC 6749 §5.2). A 401 names Basic only to a client that used it."""
    more: Headers = ()
    if refusal.status == 401 and basic:
        more += (("WWW-Authenticate", 'Basic realm="token endpoint", charset="UTF-8"'),)
    if refusal.retry_after_seconds is not None:
        more += (("Retry-After", str(refusal.retry_after_seconds)),)
    return _error(refusal.status, refusal.error, refusal.description, more)


def _error(status: int, error: str, description: str, more: Headers = ()) -> WireReply:
    body = {"error": error, "error_description": description}
    return WireReply(status=status, headers=_ANSWERED + more, body=json_bytes(body))


def document(request: WireRequest, body: bytes, *, kind: Headers = JSON) -> WireReply:
    """Answer with a public document, or 304 to somebody who has it; it may be cached, and is never refused for being asked too often."""
    tag = etag(body)
    headers = (*CORS, ("Cache-Control", f"public, max-age={DOCUMENT_SECONDS}"), ("ETag", tag))
    held = request.headers.get("if-none-match", "")
    if tag in {one.strip().removeprefix("W/") for one in held.split(",")}:
        return WireReply(status=304, headers=headers)
    return WireReply(status=200, headers=kind + headers, body=body)


def not_found() -> WireReply:
    return _error(404, "not_found", "no such document here")


def preflight(methods: Iterable[str]) -> WireReply:
    return WireReply(
        status=204, headers=CORS + PREFLIGHT + (("Access-Control-Allow-Methods", ", ".join(methods)),)
    )


def wrong_method(methods: Iterable[str]) -> WireReply:
    return _error(405, "invalid_request", "wrong method", (("Allow", ", ".join(methods)),))
