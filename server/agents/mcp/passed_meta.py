"""What of an upstream's `_meta` is passed on: all that is its own, and nothing that would be taken for ours or the protocol's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, UnsetType

# About the exchange between it and us, or words by which our own settings, prices and payments are read.
NOT_PASSED: Final = ("io.modelcontextprotocol/", "io.ostiary/", "x402/", "org.x402/", "agents-x402/")
_NOT_PASSED_NAMES: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})


def passed_on(meta: Mapping[str, Any] | UnsetType | None) -> Mapping[str, Any] | None:
    if meta is None or meta is UNSET or not meta:
        return None
    kept = {
        key: value
        for key, value in meta.items()
        if key not in _NOT_PASSED_NAMES and not key.startswith(NOT_PASSED)
    }
    return kept or None
