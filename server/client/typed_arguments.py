"""A tool's arguments as a person types them: `key=value`, read by the type that the tool's schema gives the key.

Whether the values are *right* is the server's to say; here a word only becomes the JSON that it must mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final, cast

import msgspec

from server.client.client_errors import ClientError
from server.client.samples.sample_arguments import resolved
from server.lib.json_objects import items, mapping
from server.lib.shortened import short_name

# Python's booleans are whole numbers, too.
_KINDS: Final = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))


class UnusableArguments(ClientError):
    """Words that cannot be made into this tool's arguments."""


def from_words(tool: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Read `key=value` words as the tool's arguments. Raises `UnusableArguments` naming the first word that does not fit."""
    name = str(tool.get("name"))
    schema = mapping(tool.get("inputSchema"))
    properties = mapping(schema.get("properties"))
    closed = schema.get("additionalProperties") is False
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UnusableArguments(f"“{short_name(word)}” is not key=value", hint=usage(tool))
        if key in arguments:
            raise UnusableArguments(f"{key} is given twice", hint="a list is written as JSON: key='[1, 2]'")
        if key not in properties and closed:
            raise UnusableArguments(f"{name} has no argument {key}", hint=usage(tool))
        arguments[key] = _typed(key, value, _types(properties.get(key), schema))
    if missing := [key for key in _strings(schema.get("required")) if key not in arguments]:
        raise UnusableArguments(f"{name} needs {' and '.join(missing)}", hint=usage(tool))
    return arguments


def usage(tool: Mapping[str, Any]) -> str:
    """Return the tool's arguments in one line, as they would be typed."""
    words = [f"{quote(key)}=…" if required else f"[{quote(key)}=…]" for key, required in names(tool)]
    return f"{tool.get('name')} takes {' '.join(words) or 'no arguments'}"


def names(tool: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return each argument's name and whether it is required, required ones first."""
    schema = mapping(tool.get("inputSchema"))
    required = _strings(schema.get("required"))
    pairs = [(key, key in required) for key in mapping(schema.get("properties"))]
    return sorted(pairs, key=lambda pair: not pair[1])


def type_name(tool: Mapping[str, Any], key: str) -> str:
    schema = mapping(tool.get("inputSchema"))
    property_schema = mapping(schema.get("properties")).get(key)
    if choices := items(resolved(property_schema, schema).get("enum")):
        return " | ".join(str(choice) for choice in choices[:8])
    return " | ".join(_types(property_schema, schema)) or "any"


def describe(tool: Mapping[str, Any], key: str) -> str:
    """Return the first line of what the schema says about an argument."""
    properties = mapping(mapping(tool.get("inputSchema")).get("properties"))
    text = mapping(properties.get(key)).get("description")
    return text.strip().partition("\n")[0] if isinstance(text, str) else ""


def _typed(key: str, value: str, types: Sequence[str]) -> Any:
    if not types or types == ["string"]:
        return value
    if "null" in types and value == "null":
        return None
    if "boolean" in types and value in ("true", "false"):
        return value == "true"
    for name, kind in (("integer", int), ("number", float), ("array", list), ("object", dict)):
        if name in types:
            found = _json(value)
            # JSON's true is no number, though Python's is.
            fits = isinstance(found, (int, float) if kind is float else kind)
            if fits and not isinstance(found, bool):
                return cast("Any", found)
    if "string" in types:
        return value
    wanted = {"array": "a JSON list", "object": "a JSON object", "boolean": "true or false"}
    spoken = " or ".join(wanted.get(name, f"{'an' if name[0] in 'aio' else 'a'} {name}") for name in types)
    raise UnusableArguments(f"{key} takes {spoken}, not “{value[:60]}”")


def _types(property_schema: Any, root: Mapping[str, Any], depth: int = 4) -> list[str]:
    """Return the JSON types a property may have; none when the schema does not say."""
    schema = resolved(property_schema, root)
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return _strings(named)
    if "const" in schema or isinstance(schema.get("enum"), list):
        return list(dict.fromkeys(_type_of(value) for value in schema.get("enum", [schema.get("const")])))
    found: list[str] = []
    for keyword in ("anyOf", "oneOf"):
        for branch in items(schema.get(keyword)) if depth else ():
            found.extend(name for name in _types(branch, root, depth - 1) if name not in found)
    return found


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "object")


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _strings(value: Any) -> list[str]:
    return [item for item in items(value) if isinstance(item, str)]
