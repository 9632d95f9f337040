"""JSON objects as others send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from server.lib.surrogates import decode_mended

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def decode_object(body: bytes | str) -> dict[str, Any] | None:
    """Return `body` as a JSON object, or None where it is anything else."""
    try:
        return decode_mended(_decode, body.encode() if isinstance(body, str) else body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object of JSON as it is, and an empty one in place of anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """Return a list of JSON as it is, and an empty one in place of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def strings(value: object) -> tuple[str, ...]:
    """Return the texts among the first hundred items of a list; none of anything else."""
    if not isinstance(value, list):
        return ()
    items: list[object] = value[:100]  # pyright: ignore[reportUnknownVariableType]  # JSON
    return tuple(item for item in items if isinstance(item, str))


def positive(value: object) -> float | None:
    """Return a number above zero, which some servers write as a text; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e12 else None
