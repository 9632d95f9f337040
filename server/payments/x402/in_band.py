"""x402 inside MCP: keys of `_meta`, and results that ask for payment (transports-v2/mcp.md).

Two bindings. The stable one asks by a tool's result that is an error; every client that pays knows it. The extension `org.x402/payment` of
2026-07-28 has a kind of result of its own, for requests whose client said that it knows it. Payments and receipts travel alike in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from server.payments.x402.envelopes import UnreadableEnvelope, open_envelope
from server.payments.x402.payment_headers import READ_BYTES

PAYMENT_KEY: Final = "x402/payment"
RECEIPT_KEY: Final = "x402/payment-response"
IDEMPOTENCY_KEY: Final = "x402/idempotency-key"
# Not of the specification: the one place where Cloudflare's client looks for a challenge.
ERROR_KEY: Final = "x402/error"

EXTENSION: Final = "org.x402/payment"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
PAYMENT_REQUIRED: Final = "payment_required"
PAYMENT_REQUIRED_FIELD: Final = "paymentRequired"
# Codes of JSON-RPC errors by which other servers ask for payment.
ERROR_CODES: Final = (402, -32042)


def payment_in(meta: Mapping[str, Any] | None) -> object | None:
    """What a request brings as its payment: an object, or a text (`read_payment` takes both)."""
    return meta.get(PAYMENT_KEY) if meta else None


def challenge_result(
    challenge: Mapping[str, Any], *, structured: bool = True, receipt: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A tool's result that asks for payment. `receipt` is of a payment that could not be settled.

    `structured` False: for a tool that declares an output schema. Clients check `structuredContent` against that, some of them in errors
    as well, and would show their user a broken tool instead of its price; all of them read the text where there is nothing else."""
    meta: dict[str, Any] = {ERROR_KEY: dict(challenge)}
    if receipt is not None:
        meta[RECEIPT_KEY] = dict(receipt)
    found: dict[str, Any] = {
        "content": [{"type": "text", "text": msgspec.json.encode(challenge).decode("utf-8")}],
        "isError": True,
        "_meta": meta,
    }
    if structured:
        found["structuredContent"] = dict(challenge)
    return found


def knows_extension(meta: Mapping[str, Any] | None) -> bool:
    """Whether this very request said so; nobody else may be sent `extension_result`."""
    found: object = meta
    for key in (CAPABILITIES_KEY, "extensions", EXTENSION):
        if not isinstance(found, Mapping):
            return False
        found = cast("Mapping[str, object]", found).get(key)
    return isinstance(found, Mapping)


def extension_result(
    challenge: Mapping[str, Any], *, receipt: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"resultType": PAYMENT_REQUIRED, PAYMENT_REQUIRED_FIELD: dict(challenge)}
    if receipt is not None:
        found["_meta"] = {RECEIPT_KEY: dict(receipt)}
    return found


# ── from the other side ──────────────────────────────────────────────────────────────────────────────────────────────


def find_challenge(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a result of another server asks to be paid, by whichever binding, or None: then it is an ordinary result."""
    if result.get("resultType") == PAYMENT_REQUIRED:
        return _challenge(result.get(PAYMENT_REQUIRED_FIELD))
    if result.get("isError") is not True:
        return None
    places: list[object] = [result.get("structuredContent"), _first_text(result.get("content"))]
    meta: object = result.get("_meta")
    if isinstance(meta, Mapping):
        places.append(cast("Mapping[str, object]", meta).get(ERROR_KEY))
    return next((found for place in places if (found := _challenge(place)) is not None), None)


def find_challenge_in_error(error: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same of a JSON-RPC error."""
    if error.get("code") not in ERROR_CODES:
        return None
    data: object = error.get("data")
    within: object = None
    if isinstance(data, Mapping):
        data = cast("Mapping[str, object]", data)
        within = data.get("x402")
    return _challenge(data) or _challenge(within)


def find_receipt(result: Mapping[str, Any]) -> dict[str, Any] | None:
    meta: object = result.get("_meta")
    return _opened(cast("Mapping[str, object]", meta).get(RECEIPT_KEY)) if isinstance(meta, Mapping) else None


def _first_text(content: object) -> object:
    if not isinstance(content, list) or not content:
        return None
    first = cast("list[object]", content)[0]
    if not isinstance(first, Mapping):
        return None
    block = cast("Mapping[str, object]", first)
    text = block.get("text")
    # A text that is not this object is what the tool says to its user.
    return text if block.get("type") == "text" and isinstance(text, str) and text.startswith("{") else None


def _challenge(value: object) -> dict[str, Any] | None:
    found = _opened(value)
    if found is None or "x402Version" not in found or not isinstance(found.get("accepts"), list):
        return None
    return found


def _opened(value: object) -> dict[str, Any] | None:
    if not isinstance(value, Mapping | str):
        return None
    try:
        return open_envelope(cast("object", value), limit=READ_BYTES)
    except UnreadableEnvelope:
        return None
