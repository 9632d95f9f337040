"""Arguments that say as a text what the schema wants as a number, a boolean, a list or an object: `"5"`, `"true"`, `"[1, 2]"`.

Only where the schema wants no text there, and only where nothing is lost: a text that JSON would not write so is left as it is, and told
to be wrong by whoever checks it next. Pure; never raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, cast

import msgspec

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?").fullmatch
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "True": True, "false": False, "False": False}
# Deeper than any schema that a model fills in.
MOST_DEPTH: Final = 32
# A text as long as this is no number, and is not read as JSON for the sake of it.
MOST_CHARACTERS: Final = 1024 * 1024


def coerced(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    return _object(schema, arguments, MOST_DEPTH)


def _object(schema: Mapping[str, Any], value: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    known: Mapping[str, Any] = (
        cast("Mapping[str, Any]", properties) if isinstance(properties, Mapping) else {}
    )
    return {name: _value(known.get(name, rest), each, depth) for name, each in value.items()}


def _value(schema: Any, value: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or not depth:
        return value
    node = cast("Mapping[str, Any]", schema)
    if isinstance(value, str):
        return _said(_kinds(node), node, value, depth)
    if isinstance(value, dict):
        return _object(node, cast("dict[str, Any]", value), depth - 1)
    if isinstance(value, list):
        items = node.get("items")
        return [_value(items, each, depth - 1) for each in cast("list[Any]", value)]
    return value


def _said(kinds: frozenset[str], schema: Mapping[str, Any], text: str, depth: int) -> Any:
    if not kinds or "string" in kinds or len(text) > MOST_CHARACTERS:
        return text
    if "integer" in kinds and _INTEGER(text):
        return int(text)
    if "number" in kinds and _NUMBER(text):
        return _number(text)
    if "boolean" in kinds and text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[:1] in ("[", "{"):
        return _document(kinds, schema, text, depth)
    return text


def _number(text: str) -> Any:
    """The text, where a float would be another number than it says."""
    if _INTEGER(text):
        return int(text)
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else text


def _document(kinds: frozenset[str], schema: Mapping[str, Any], text: str, depth: int) -> Any:
    try:
        value: Any = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    if (
        isinstance(value, list if text[0] == "[" else dict)
        and ("array" if text[0] == "[" else "object") in kinds
    ):
        return _value(schema, value, depth - 1)
    return text


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The types that a value may be of; none where that is not said, or where a text of these constants may be one."""
    if "enum" in schema or "const" in schema or "$ref" in schema:
        return frozenset()
    said = schema.get("type")
    if isinstance(said, str):
        return frozenset({said})
    if isinstance(said, list):
        return frozenset(each for each in cast("list[Any]", said) if isinstance(each, str))
    branches = schema.get("anyOf")
    if not isinstance(branches, list):
        return frozenset()
    found: set[str] = set()
    for branch in cast("list[Any]", branches):
        kinds = _kinds(cast("Mapping[str, Any]", branch)) if isinstance(branch, Mapping) else frozenset[str]()
        if not kinds:
            return frozenset()
        found |= kinds
    return frozenset(found)
