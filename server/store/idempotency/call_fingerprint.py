"""What makes a call this call: server, tool and arguments, as one digest. Under a key, because arguments can be guessed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


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
