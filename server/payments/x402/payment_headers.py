"""x402 over HTTP: which header carries what, in both versions of the protocol (transports-v2/http.md, transports-v1/http.md).

The status is always for whoever answers. Version 1 has no header for its challenge: that is the body of the 402.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from server.payments.x402.envelopes import open_envelope, pack
from server.payments.x402.requirements import V1, V2

PAYMENT_REQUIRED: Final = "PAYMENT-REQUIRED"
PAYMENT_SIGNATURE: Final = "PAYMENT-SIGNATURE"
PAYMENT_RESPONSE: Final = "PAYMENT-RESPONSE"
X_PAYMENT: Final = "X-PAYMENT"
X_PAYMENT_RESPONSE: Final = "X-PAYMENT-RESPONSE"

# Of a challenge or a receipt that somebody else's server sent.
READ_BYTES: Final = 64 * 1024

# Which bring a payment, of either version, as they are looked for among those of a request.
PAYMENT_HEADERS: Final = (PAYMENT_SIGNATURE.lower().encode("ascii"), X_PAYMENT.lower().encode("ascii"))
# An empty object, in base64: who sends it over MCP has nothing to pay yet, and says by it that it comes to pay, not to log in.
NOTHING_YET: Final = "e30="
# By the version of the payment.
RECEIPTS: Final = MappingProxyType({V2: PAYMENT_RESPONSE, V1: X_PAYMENT_RESPONSE})


def challenge_header(challenge: Mapping[str, Any]) -> tuple[str, str]:
    """Return the header of a challenge of version 2."""
    return PAYMENT_REQUIRED, pack(challenge)


def payment_header(payment: Mapping[str, Any]) -> tuple[str, str]:
    """Return the header of a payment as a payer sends it, by its version."""
    name = X_PAYMENT if payment.get("x402Version") == V1 else PAYMENT_SIGNATURE
    return name, pack(payment)


def receipt_header(receipt: Mapping[str, Any], version: int) -> tuple[str, str]:
    return RECEIPTS[version], pack(receipt)


def read_challenge_header(text: str) -> dict[str, Any]:
    """Read a challenge. Raises `UnreadableEnvelope`."""
    return open_envelope(text, limit=READ_BYTES)
