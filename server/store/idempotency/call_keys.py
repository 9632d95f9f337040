"""Keys that callers give their calls, and the one text under which the same call is known again."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, TypeGuard

import msgspec

# Beside `_meta["x402/idempotency-key"]` (server/mcp/method_params.py).
IDEMPOTENCY_HEADER: Final = b"idempotency-key"
# In the `_meta` of an answer that was given before.
REPLAYED: Final = "io.ostiary/replayed"
# The same over plain HTTP, as buyers' programs know it.
IDEMPOTENT: Final = (b"x-x402-idempotent", b"replay")
# What is said, for programs, of a call that is not made again.
REPEAT: Final = "io.ostiary/repeat"
LONGEST_KEY: Final = 128
# Nothing else is a key; whoever brings something else is told so.
A_KEY: Final = "An idempotency key is a text of 1 to 128 visible characters without blanks: the same one for the same call."

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def is_key(text: object) -> TypeGuard[str]:
    return (
        isinstance(text, str)
        and 0 < len(text) <= LONGEST_KEY
        and text.isascii()
        and text.isprintable()
        and " " not in text
    )


def call_key(secret: bytes, *, caller: str, server: str, tool: str, fingerprint: str, key: str | None) -> str:
    """The same text for the same call: of its key, or else of its arguments."""
    what = ("same", caller, fingerprint) if key is None else ("key", caller, server, tool, key)
    return hmac.new(secret, _encode(what), hashlib.sha256).hexdigest()
