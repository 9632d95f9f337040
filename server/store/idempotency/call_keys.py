"""What makes a call this call: the key that its caller gives it, or server, tool and arguments as one digest, and the one text under which
the same call is known again. Digests are under a key of ours, because arguments can be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

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


class NotComparable(ValueError):
    """Arguments that nothing can be compared with: lists in lists without an end."""


def canonical(value: object) -> bytes:
    """JSON with the keys of every object sorted, and nothing else about it changed: texts are not normalised, for a tool may tell
    them apart, and 1.0 is not 1. Raises `NotComparable`."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):
        raise NotComparable("the arguments are nested too deeply") from None


def fingerprint(key: bytes, server: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """Lower-case hex. Raises `NotComparable`."""
    return hmac.new(key, canonical([server, tool, arguments]), hashlib.sha256).hexdigest()
