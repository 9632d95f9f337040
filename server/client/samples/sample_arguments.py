"""Arguments for a tool, made from its schema: what its author gave as an example, else the smallest thing that may fit.

A sample is to be looked at and changed by a person. Whether it fits is for a validator to say; a schema can ask for what nobody guesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from server.lib.json_objects import items, mapping

# Deeper than this nothing is made up: a schema may lead back to itself.
MAX_DEPTH: Final = 6
# Nor more than so many values.
MAX_VALUES: Final = 500
# Of one tool.
MAX_EXAMPLES: Final = 8
# The shortest list or text that a schema asks for is made as long as this at most.
MAX_LENGTH: Final = 64
# A reference may lead to another one.
_STEPS: Final = 8

_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "somebody@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uri-reference": "/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def declared(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return whole sets of arguments that a tool's schema gives as its `examples`."""
    given = items(schema.get("examples"))
    return [cast("Mapping[str, Any]", each) for each in given if isinstance(each, dict)][:MAX_EXAMPLES]


def sample(schema: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return `given`, or else the first declared example, or else every argument that is required, and those that have a default."""
    whole = given if given is not None else next(iter(declared(schema)), None)
    made = _Maker(schema).value(schema, MAX_DEPTH) if whole is None else whole
    return dict(mapping(made))


def stated(schema: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return `given`, or else only what the schema itself states: its first example, constants, defaults and examples of arguments.
    Nothing is made up."""
    whole = given if given is not None else next(iter(declared(schema)), None)
    return _Maker(schema).stated(schema, MAX_DEPTH) if whole is None else dict(whole)


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where a local `$ref` leads; anything else as it is."""
    found = mapping(schema)
    for _ in range(_STEPS):
        reference = found.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return found
        target: Any = root
        for step in reference[1:].split("/")[1:]:
            target = mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
        beside = {key: value for key, value in found.items() if key != "$ref"}
        found = {**mapping(target), **beside}
    return {}


def type_of(schema: Mapping[str, Any]) -> str:
    """Return the type that a value of it most likely has; empty where nothing is said."""
    named = schema.get("type")
    if isinstance(named, str):
        return named
    if isinstance(named, list):
        names = [name for name in items(named) if isinstance(name, str)]
        return next((name for name in names if name != "null"), names[0] if names else "")
    for keyword, name in (("properties", "object"), ("items", "array"), ("pattern", "string")):
        if keyword in schema:
            return name
    return ""


class _Maker:
    """The maker of one sample, of so many values at most."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_VALUES

    def value(self, written: Any, depth: int) -> Any:
        self._left -= 1
        schema = resolved(written, self._root)
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("examples", "enum"):
            if values := items(schema.get(key)):
                return values[0]
        for key in ("oneOf", "anyOf", "allOf"):
            if (branches := items(schema.get(key))) and depth and "properties" not in schema:
                return self.value(self._first_meant(branches), depth - 1)
        match type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._list(schema, depth)
            case "integer":
                return round(_number(schema, step=1))
            case "number":
                return _number(schema, step=0.5)
            case "boolean":
                return False
            case "null":
                return None
            case _:
                return _text(schema)

    def stated(self, written: Any, depth: int) -> dict[str, Any]:
        schema = resolved(written, self._root)
        needed = items(schema.get("required"))
        found: dict[str, Any] = {}
        for name, each in mapping(schema.get("properties")).items():
            self._left -= 1
            if not depth or self._left <= 0:
                break
            inner = resolved(each, self._root)
            examples = items(inner.get("examples"))
            if "default" in inner:
                found[name] = inner["default"]
            elif name in needed and "const" in inner:
                found[name] = inner["const"]
            elif name in needed and examples:
                found[name] = examples[0]
            elif "properties" in inner and (members := self.stated(inner, depth - 1)):
                found[name] = members
        return found

    def _first_meant(self, branches: Sequence[Any]) -> Any:
        """Return the first branch that does not say that there is nothing."""
        meant = (each for each in branches if resolved(each, self._root).get("type") != "null")
        return next(meant, branches[0])

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        needed = items(schema.get("required"))
        made: dict[str, Any] = {}
        for name, inner in mapping(schema.get("properties")).items():
            if not depth or self._left <= 0:
                break
            if name in needed or "default" in resolved(inner, self._root):
                made[name] = self.value(inner, depth - 1)
        return made

    def _list(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        made: list[Any] = []
        # One at least, so that whoever reads it sees what belongs there.
        while depth and self._left > 0 and len(made) < max(1, _whole(schema.get("minItems"))):
            made.append(self.value(schema.get("items"), depth - 1))
        return made


def _number(schema: Mapping[str, Any], *, step: float) -> float:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if _is_number(low):
        return cast("float", low)
    if _is_number(above):
        return cast("float", above) + step
    if _is_number(high) and cast("float", high) < 1:
        return cast("float", high)
    if _is_number(below) and cast("float", below) <= 1:
        return cast("float", below) - step
    return 1


def _text(schema: Mapping[str, Any]) -> str:
    least, most = _whole(schema.get("minLength")), schema.get("maxLength")
    text = _FORMATS.get(str(schema.get("format")), "text").ljust(least, "x")
    return text[:most] if isinstance(most, int) and 0 <= most < len(text) else text


def _whole(value: Any) -> int:
    return min(value, MAX_LENGTH) if isinstance(value, int) and value > 0 else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
