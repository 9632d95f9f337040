"""x402 inside MCP: keys of `_meta`, and results of other servers that ask for payment (transports-v2/mcp.md).

Two bindings. The stable one asks by a tool's result that is an error; every client that pays knows it. The extension `org.x402/payment` of
2026-07-28 has a kind of result of its own, for requests whose client said that it knows it. Payments and receipts travel alike in both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from server.payments.x402.envelopes import UnreadableEnvelope, open_envelope
from server.payments.x402.payment_headers import READ_BYTES

PAYMENT_KEY: Final = "x402/payment"
RECEIPT_KEY: Final = "x402/payment-response"
IDEMPOTENCY_KEY: Final = "x402/idempotency-key"
# Not of the specification: the one place where Cloudflare's client looks for a challenge.
ERROR_KEY: Final = "x402/error"

# As the extension `org.x402/payment` has them.
PAYMENT_REQUIRED: Final = "payment_required"
PAYMENT_REQUIRED_FIELD: Final = "paymentRequired"
# Codes of JSON-RPC errors by which other servers ask for payment.
ERROR_CODES: Final = (402, -32042)


def find_challenge(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Find what a result asks to be paid, by whichever binding. None: it is an ordinary result."""
    if result.get("resultType") == PAYMENT_REQUIRED:
        return _challenge(result.get(PAYMENT_REQUIRED_FIELD))
    if result.get("isError") is not True:
        return None
    places = (
        result.get("structuredContent"),
        _first_text(result.get("content")),
        _member(result.get("_meta"), ERROR_KEY),
    )
    return next((found for place in places if (found := _challenge(place)) is not None), None)


def find_challenge_in_error(error: Mapping[str, Any]) -> dict[str, Any] | None:
    """Find what a JSON-RPC error asks to be paid."""
    if error.get("code") not in ERROR_CODES:
        return None
    data: object = error.get("data")
    return _challenge(data) or _challenge(_member(data, "x402"))


def find_receipt(result: Mapping[str, Any]) -> dict[str, Any] | None:
    return opened(_member(result.get("_meta"), RECEIPT_KEY))


def _first_text(content: object) -> object:
    if not isinstance(content, list) or not content:
        return None
    first = cast("list[object]", content)[0]
    text = _member(first, "text") if _member(first, "type") == "text" else None
    # A text that is not this object is what the tool says to its user.
    return text if isinstance(text, str) and text.startswith("{") else None


def _member(value: object, name: str) -> object:
    return cast("Mapping[str, object]", value).get(name) if isinstance(value, Mapping) else None


def _challenge(value: object) -> dict[str, Any] | None:
    found = opened(value)
    if found is None or "x402Version" not in found or not isinstance(found.get("accepts"), list):
        return None
    return found


def opened(value: object) -> dict[str, Any] | None:
    """Open a challenge or a receipt that somebody else's server sent; None where it is none."""
    try:
        return open_envelope(value, limit=READ_BYTES)
    except UnreadableEnvelope:
        return None
