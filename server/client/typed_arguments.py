"""A tool's arguments as a person types them: `key=value`, read by the type that the tool's schema gives the key.

Whether the values are *right* is the server's to say; here a word only becomes the JSON that it must mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, cast

import msgspec

from server.client.client_errors import ClientError
from server.lib.shortened import short_name


class UnusableArguments(ClientError):
    """What was typed cannot be made into this tool's arguments."""


def from_words(tool: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words as the tool's arguments. Raises `UnusableArguments` naming the first word that does not fit."""
    name = str(tool.get("name"))
    schema = _mapping(tool.get("inputSchema"))
    properties = _mapping(schema.get("properties"))
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
    required = schema.get("required")
    missing = [key for key in _strings(required) if key not in arguments]
    if missing:
        raise UnusableArguments(f"{name} needs {' and '.join(missing)}", hint=usage(tool))
    return arguments


def usage(tool: Mapping[str, Any]) -> str:
    """The tool's arguments in one line, as they would be typed."""
    words = [f"{quote(key)}=…" if required else f"[{quote(key)}=…]" for key, required in names(tool)]
    return (
        f"{tool.get('name')} takes {' '.join(words)}" if words else f"{tool.get('name')} takes no arguments"
    )


def names(tool: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Each argument's name and whether it is required, required ones first."""
    schema = _mapping(tool.get("inputSchema"))
    required = _strings(schema.get("required"))
    pairs = [(key, key in required) for key in _mapping(schema.get("properties"))]
    return sorted(pairs, key=lambda pair: not pair[1])


def type_name(tool: Mapping[str, Any], key: str) -> str:
    schema = _mapping(tool.get("inputSchema"))
    property_schema = _mapping(schema.get("properties")).get(key)
    choices = _resolved(property_schema, schema).get("enum")
    if isinstance(choices, list) and choices:
        return " | ".join(str(choice) for choice in cast("list[Any]", choices)[:8])
    return " | ".join(_types(property_schema, schema)) or "any"


def describe(tool: Mapping[str, Any], key: str) -> str:
    """The first line of what the schema says about an argument."""
    properties = _mapping(_mapping(tool.get("inputSchema")).get("properties"))
    text = _mapping(properties.get(key)).get("description")
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
    """The JSON types a property may have; empty when the schema does not say."""
    schema = _resolved(property_schema, root)
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return _strings(cast("list[Any]", named))
    if "const" in schema or isinstance(schema.get("enum"), list):
        return list(dict.fromkeys(_type_of(value) for value in schema.get("enum", [schema.get("const")])))
    found: list[str] = []
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and depth:
            for branch in cast("list[Any]", branches):
                found.extend(name for name in _types(branch, root, depth - 1) if name not in found)
    return found


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """One local `$ref` followed; anything further away is the server's business."""
    found = _mapping(schema)
    reference = found.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = _mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
        return _mapping(target)
    return found


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    ):
        if isinstance(value, kind):
            return name
    return "object"


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _strings(value: Any) -> list[str]:
    return (
        [item for item in cast("list[Any]", value) if isinstance(item, str)]
        if isinstance(value, list)
        else []
    )
