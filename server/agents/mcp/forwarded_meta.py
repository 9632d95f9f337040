"""The parts of `_meta` that go through a gateway. From a caller to an upstream: keys that the settings name, and never what is between the
caller and us. From an upstream back to callers: all that is its own, and nothing that would be taken for ours or the protocol's.

Trace context is what the protocol itself lets pass from hop to hop (SEP-414); `baggage` says of callers what their own house put there, and
goes on only where it is named. Keys of the protocol, of payments and of ours never do, whatever is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from server.lib.shortened import short_name
from server.mcp.further_members import OURS

NOT_PASSED: Final = OURS
_NOT_PASSED_NAMES: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
_TRACEPARENT: Final = "traceparent"
_TRACESTATE: Final = "tracestate"
TRACE_CONTEXT: Final = (_TRACEPARENT, _TRACESTATE)
_TRACE: Final = 36  # characters of a traceparent that name the trace
# What W3C's recommendation bids carry on (8,192 bytes of baggage); more is no context of a call.
VALUE_BYTES: Final = 8 * 1024
CARRIED_BYTES: Final = 16 * 1024
_TOKEN: Final = "progressToken"


class _Came(msgspec.Struct):
    meta: dict[str, Raw] = msgspec.field(default_factory=dict[str, Raw], name="_meta")


_decode: Final = msgspec.json.Decoder(_Came).decode


def passed_on(meta: Mapping[str, Any] | UnsetType | None) -> Mapping[str, Any] | None:
    """Return what is left of an upstream's."""
    if meta is None or meta is UNSET or not meta:
        return None
    kept = {
        key: value
        for key, value in meta.items()
        if key not in _NOT_PASSED_NAMES and not key.startswith(NOT_PASSED)
    }
    return kept or None


def meta_problems(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write)."""
    found = [
        ("meta", f"{short_name(word)!r} is between a caller and this server, and never goes on; leave it out")
        for word in words
        if word == _TOKEN or word.startswith(NOT_PASSED)
    ]
    found += [
        ("meta", f"{short_name(word)!r} selects nothing; write a key, or a prefix with /* behind it")
        for word in words
        if "*" in word and (not word.endswith("/*") or "*" in word[:-1] or word == "/*")
    ]
    return found


class CarriedMeta:
    """The keys that the settings name. `of` is for every call."""

    def __init__(self, words: Sequence[str]) -> None:
        self._names = frozenset(word for word in words if not word.endswith("/*"))
        self._prefixes = tuple(word[:-1] for word in words if word.endswith("/*"))

    def of(self, came: Raw | None, traceparent: str | None = None) -> Mapping[str, Any] | None:
        """Return what goes on; None: nothing does. `traceparent`: of the call itself where it is traced here, in place of its caller's."""
        if traceparent is not None and _TRACEPARENT in self._names:
            # What else came of the caller's belongs to that trace, or to another that nobody goes on with.
            theirs = dict(self.of(came) or {})
            written = bytes(theirs.get(_TRACEPARENT, b""))  # with the quote before it
            if written[1 : 1 + _TRACE] != traceparent[:_TRACE].encode():
                theirs.pop(_TRACESTATE, None)
            return {**theirs, _TRACEPARENT: traceparent}
        if came is None:
            return None
        try:
            given = _decode(came).meta
        except (msgspec.MsgspecError, RecursionError):  # it was taken all the same: in the handshake era
            return None
        names, prefixes = self._names, self._prefixes
        found = {
            key: value
            for key, value in given.items()
            if (key in names or (prefixes and key.startswith(prefixes)))
            and not key.startswith(NOT_PASSED)
            and len(value) <= VALUE_BYTES
        }
        if not found or sum(map(len, found.values())) > CARRIED_BYTES:
            return None
        return found
