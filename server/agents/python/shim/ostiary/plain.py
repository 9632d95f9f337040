"""Python values as JSON: what `json.dumps` can write, from dataclasses, enums, sets, dates and the like."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from . import foreign
from .hints import is_named_tuple, loaded
from .standard import standard

# Deep enough for every sensible answer, and far from the interpreter's own limit.
MAX_DEPTH = 200


def plain(value: Any, depth: int = 0) -> Any:
    """Raises `TypeError` at what has no form in JSON."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if depth > MAX_DEPTH:
        raise TypeError("a value nested this deeply (or in itself) cannot be sent")
    depth += 1
    if isinstance(value, dict):
        return {_key(key): plain(item, depth) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if is_named_tuple(type(value)):
        return {name: plain(item, depth) for name, item in zip(value._fields, value)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if _is_enum(value):
        return plain(value.value, depth)
    if isinstance(value, (str, int, float)):
        return value
    if foreign.is_foreign(type(value)):
        return foreign.write(value)
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), depth) for field in dataclasses.fields(value)}
    row = standard(type(value))
    if row is not None:
        return row.write(value)
    if isinstance(value, (bytes, bytearray)):
        import base64

        return base64.b64encode(value).decode("ascii")
    if foreign.is_checked(type(value)):
        return foreign.write(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be turned into JSON")


def to_text(value: Any) -> str:
    """A value that is plain already, as a person or a model reads it. Raises `ValueError` at NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def utf8(text: str) -> bytes:
    """With U+FFFD for half a character, which has no UTF-8: of a text that was cut, of a strange file name."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # By way of UTF-16, where two halves that belong together are the one character that they are.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def _is_enum(value: Any) -> bool:
    base = loaded("enum", "Enum")
    return base is not None and isinstance(value, base)


def _key(key: Any) -> str:
    if isinstance(key, str) and not _is_enum(key):
        return key
    key = plain(key)
    if key is None or isinstance(key, (bool, int, float)):
        return to_text(key)
    if isinstance(key, str):
        return key
    raise TypeError(f"a key of type {type(key).__name__} cannot be turned into JSON")
