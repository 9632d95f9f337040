"""A JSON Schema as people write one in settings: whole, as a table or as JSON text, or short, `{ city = "string", days = "integer?" }`.

Short, each argument has a word for its type: `?` behind it says that it may be left out, `[]` that there are several, and what stands
behind a colon describes it. A list of texts is a choice, and a table is the argument's own schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from server.lib.shortened import short_name

WORD: Final = re.compile(
    r"(string|integer|number|boolean|object|array)(\[\])?(\?)?(?:\s*:\s*(.*\S))?\s*", re.DOTALL
)
WORDS: Final = "string, integer, number, boolean, array or object"


class BadShortSchema(ValueError):
    """What is written is no schema; says what to write."""


def read_schema(written: Mapping[str, Any] | str) -> dict[str, Any]:
    """Raises `BadShortSchema`. Whether a whole one can be used is not looked at."""
    if isinstance(written, str):
        try:
            whole = msgspec.json.decode(written)
        except (ValueError, RecursionError):
            raise BadShortSchema('is not JSON; write it as a table, e.g. { city = "string" }') from None
        if not isinstance(whole, dict):
            raise BadShortSchema("is no JSON object")
        return cast("dict[str, Any]", whole)
    # `object` is no word for an argument by the name of `type`: whoever needs that writes the schema whole.
    if written.get("type") == "object":
        return dict(written)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, said in written.items():
        schema, optional = _property(name, said)
        properties[name] = schema
        if not optional:
            required.append(name)
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    return {**found, "additionalProperties": False}


def _property(name: str, said: object) -> tuple[dict[str, Any], bool]:
    """Its schema, and whether it may be left out."""
    if isinstance(said, str):
        word = WORD.fullmatch(said)
        if word is None:
            raise BadShortSchema(
                f'{short_name(name)}: is none of {WORDS}; write e.g. "string" or "integer?: how many"'
            )
        kind, several, optional, description = word.groups()
        schema: dict[str, Any] = {"type": kind}
        if several:
            schema = {"type": "array", "items": schema}
        if description:
            schema["description"] = description
        return schema, optional is not None
    if isinstance(said, list):
        choices = cast("list[object]", said)
        if not choices or not all(isinstance(choice, str) for choice in choices):
            raise BadShortSchema(
                f'{short_name(name)}: is no choice; write a list of texts, e.g. ["low", "high"]'
            )
        return {"type": "string", "enum": choices}, False
    if isinstance(said, Mapping):
        own = dict(cast("Mapping[str, Any]", said))
        return own, own.pop("optional", False) is True or "default" in own
    raise BadShortSchema(f'{short_name(name)}: is none of {WORDS}; write e.g. "string"')


def with_defaults(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments, and the defaults of those that were left out."""
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    usual = {
        name: cast("Mapping[str, Any]", own)["default"]
        for name, own in properties.items()
        if name not in arguments and isinstance(own, Mapping) and "default" in own
    }
    return {**usual, **arguments} if usual else arguments
