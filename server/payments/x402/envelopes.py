"""How an object of the protocol travels: as itself, as JSON, or as JSON in base64; opened here, whoever packed it.

All of it is bounded, and what could be read in two ways is not read: a key that is there twice, or in two spellings, means one thing to
one program and another to the next. What the object says is for whoever asked.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

# Of the JSON. A payment has about a kilobyte, and what the server's extensions had it bring back.
ENVELOPE_BYTES: Final = 16 * 1024
DEPTH: Final = 32
VALUES: Final = 4096
# What every program can hold in an integer of its own.
_MOST_INTEGER: Final = 2**63

_BLANKS: Final = re.compile(r"\s+")
_URL_SAFE: Final = str.maketrans("-_", "+/")


class UnreadableEnvelope(ValueError):
    """What came is no object, or one that cannot be read safely. The text continues a sentence about it."""


def pack(value: Mapping[str, Any]) -> str:
    """JSON in base64: the standard alphabet, with padding, on one line."""
    return binascii.b2a_base64(msgspec.json.encode(value), newline=False).decode("ascii")


def open_envelope(value: object, *, limit: int = ENVELOPE_BYTES, values: int = VALUES) -> dict[str, Any]:
    """A copy of the object, made of plain dicts, lists, texts, numbers and None. Raises `UnreadableEnvelope`."""
    if isinstance(value, str):
        return _from_text(value, limit, values)
    if isinstance(value, Mapping):
        found = cast("dict[str, Any]", _Copy(values).of(cast("object", value), 0))
        if len(msgspec.json.encode(found)) > limit:
            raise UnreadableEnvelope(f"is longer than {limit // 1024} KiB")
        return found
    raise UnreadableEnvelope("is neither an object nor a text that holds one")


def without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """Without keys that hold null, here and in the objects within. Some programs write null for what they leave out, and strict ones
    refuse it."""
    found: dict[str, Any] = {}
    for key, each in value.items():
        if isinstance(each, Mapping):
            found[key] = without_nulls(cast("Mapping[str, Any]", each))
        elif each is not None:
            found[key] = each
    return found


def _from_text(text: str, limit: int, values: int) -> dict[str, Any]:
    if len(text) > limit * 4 // 3 + 16:
        raise UnreadableEnvelope(f"is longer than {limit // 1024} KiB")
    text = text.strip()
    if not text.startswith("{"):
        try:
            text = _unpacked(text).decode("utf-8")
        except (ValueError, binascii.Error):
            raise UnreadableEnvelope("is neither JSON nor JSON in base64") from None
    if len(text.encode("utf-8", "surrogatepass")) > limit:
        raise UnreadableEnvelope(f"is longer than {limit // 1024} KiB")
    try:
        found: object = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except UnreadableEnvelope:
        raise
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise UnreadableEnvelope("is not JSON") from None
    if not isinstance(found, dict):
        raise UnreadableEnvelope("holds no object")
    return cast("dict[str, Any]", _Copy(values).of(cast("object", found), 0))


def _unpacked(text: str) -> bytes:
    """Of both alphabets, with padding or without: it means the same. Raises `ValueError`."""
    plain = _BLANKS.sub("", text).translate(_URL_SAFE).rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnreadableEnvelope("says something twice")
    return found


def _no_constant(_: str) -> float:
    raise UnreadableEnvelope("is not JSON")


def _too_deep() -> UnreadableEnvelope:
    return UnreadableEnvelope(f"is nested more than {DEPTH} levels deep")


class _Copy:
    """One walk over a value, which ends before it can become long."""

    def __init__(self, values: int) -> None:
        self._values = self._left = values

    def of(self, value: object, depth: int) -> object:
        self._left -= 1
        if self._left < 0:
            raise UnreadableEnvelope(f"holds more than {self._values} values")
        if depth > DEPTH:
            raise _too_deep()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _whole(value)
        if isinstance(value, int):
            if not -_MOST_INTEGER <= value < _MOST_INTEGER:
                raise UnreadableEnvelope("holds a number that not every program can read")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise UnreadableEnvelope("holds a number that is none")
            return float(value)
        if isinstance(value, Mapping):
            return self._object(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            return [self.of(each, depth + 1) for each in cast("list[object]", value)]
        raise UnreadableEnvelope("holds something that is not JSON")

    def _object(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise UnreadableEnvelope("holds something that is not JSON")
            found[_whole(key)] = self.of(each, depth + 1)
        return found


def _whole(text: str) -> str:
    """Without half characters, for which there are no bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UnreadableEnvelope("holds half a character") from None
    return text
