"""When a scenario applies: what is asked of the arguments, made into one JSON Schema, which has bounds on the time that it takes.

`{"city": "Berlin"}` is equality, `{"days": {"above": 3}}` a comparison, `{"place.country": {"exists": true}}` looks inside, and a list is any of
several. `{"$schema": {…}}` is a JSON Schema of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

import jsonschema_rs
from msgspec import UNSET, UnsetType

When: TypeAlias = dict[str, Any] | list[dict[str, Any]] | UnsetType
SCHEMA: Final = "$schema"
STEPS: Final = 16  # of a path


class BadCondition(ValueError):
    """A condition that cannot be meant; says why."""


class Undecidable(ValueError):
    """Nobody can say whether it holds: the arguments are nested deeper than anybody looks, or hold what is no text."""


Doubt: TypeAlias = Literal["as written", "fits", "fails"]

_COMPARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "above": "exclusiveMinimum",
        "below": "exclusiveMaximum",
        "atLeast": "minimum",
        "atMost": "maximum",
    }
)
EXISTS: Final = "exists"
OPERATORS: Final = frozenset({"equals", "not", "in", "matches", "contains", *_COMPARED, EXISTS})


class Condition:
    """Raises `BadCondition`. `linear`: its patterns are asked in a time that grows with the text alone, whatever is in it; they look
    neither ahead nor behind then. `doubt`: what is said of an argument of another type than it is compared with, which a tool may take
    for what was meant (`"5"` for 5): that the condition holds, or does not, or whatever JSON Schema makes of it."""

    def __init__(self, when: When, *, linear: bool = False, doubt: Doubt = "as written") -> None:
        self._validator: jsonschema_rs.Validator | None = None
        if when is UNSET or when == {}:
            return
        schema = (
            {"anyOf": [_schema(each, doubt) for each in when]}
            if isinstance(when, list)
            else _schema(when, doubt)
        )
        try:
            patterns = jsonschema_rs.RegexOptions() if linear else None
            self._validator = jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns)
        except (ValueError, TypeError, RecursionError) as error:
            raise BadCondition(f"`when` cannot be asked: {str(error).partition(chr(10))[0][:300]}") from error

    def holds(self, arguments: Mapping[str, Any]) -> bool:
        try:
            return self.decided(arguments)
        except Undecidable:
            return False

    def decided(self, arguments: Mapping[str, Any]) -> bool:
        """The same, for whoever must not take one for the other. Raises `Undecidable`."""
        try:
            return self._validator is None or self._validator.is_valid(dict(arguments))
        except (ValueError, RecursionError) as error:
            raise Undecidable from error


def _schema(when: Mapping[str, Any], doubt: Doubt) -> dict[str, Any]:
    if set(when) == {SCHEMA}:
        own = when[SCHEMA]
        if not isinstance(own, dict):
            raise BadCondition("`when` has a $schema that is no JSON Schema")
        return cast("dict[str, Any]", own)
    return {"allOf": [_at(path, wanted, doubt) for path, wanted in when.items()]}


def _at(path: str, wanted: Any, doubt: Doubt) -> dict[str, Any]:
    steps = path.split(".")
    if not all(steps) or len(steps) > STEPS:
        raise BadCondition(f'`when` names the argument "{path[:60]}", which is no path')
    operators: Mapping[str, Any] = {"equals": wanted}
    if isinstance(wanted, dict) and wanted and wanted.keys() <= OPERATORS:  # pyright: ignore[reportUnknownMemberType]
        operators = cast("Mapping[str, Any]", wanted)
    checks = [_check(name, value, doubt) for name, value in operators.items() if name != EXISTS]
    if operators.get(EXISTS, True) is not False:
        return _reached(steps, {"allOf": checks} if checks else {}, doubt)
    if checks:
        raise BadCondition(f'`when` compares "{path[:60]}", which is not to exist')
    return {"not": _reached(steps, {}, _turned(doubt))}


def _check(operator: str, wanted: Any, doubt: Doubt) -> dict[str, Any]:
    match operator:
        case "not":
            return {"not": _check("equals", wanted, _turned(doubt))}
        case "equals" | "in":
            several: Any = [wanted] if operator == "equals" else wanted
            if doubt == "as written" or not several or not isinstance(several, list):
                return {"enum": several}
            values = cast("list[Any]", several)
            return _doubted({"anyOf": [_equal(each, doubt) for each in values]}, _types_of(values), doubt)
        case "matches":
            return _doubted({"type": "string", "pattern": wanted}, {"string"}, doubt)
        case "contains":
            inside = _doubted(_equal(wanted, doubt), _types_of([wanted]), doubt)
            ways: list[dict[str, Any]] = [{"type": "array", "contains": inside}]
            if isinstance(wanted, str):
                ways.append({"type": "string", "pattern": _literal(wanted)})
            return _doubted({"anyOf": ways}, {str(way["type"]) for way in ways}, doubt)
        case _:
            return _doubted({"type": "number", _COMPARED[operator]: wanted}, {"number"}, doubt)


def _equal(wanted: Any, doubt: Doubt) -> dict[str, Any]:
    if doubt == "as written" or not wanted or not isinstance(wanted, list | dict):
        return {"const": wanted}
    if isinstance(wanted, dict):
        members = cast("dict[str, Any]", wanted)
        return {
            "type": "object",
            "required": list(members),
            "properties": {name: _check("equals", each, doubt) for name, each in members.items()},
            "additionalProperties": False,
        }
    items = cast("list[Any]", wanted)
    return {
        "type": "array",
        "minItems": len(items),
        "maxItems": len(items),
        "prefixItems": [_check("equals", each, doubt) for each in items],
    }


def _turned(doubt: Doubt) -> Doubt:
    """The other way round, for what a `not` stands before."""
    return "fails" if doubt == "fits" else "fits" if doubt == "fails" else doubt


def _reached(steps: list[str], then: dict[str, Any], doubt: Doubt) -> dict[str, Any]:
    for step in reversed(steps[1:]):
        then = _doubted({"type": "object", "required": [step], "properties": {step: then}}, {"object"}, doubt)
    return {"type": "object", "required": [steps[0]], "properties": {steps[0]: then}}


def _doubted(check: dict[str, Any], types: set[str], doubt: Doubt) -> dict[str, Any]:
    """Return the check for an argument that may have another type than these. Null means that nothing was given, and is none."""
    if doubt == "as written" or not types:
        return check
    known = {"type": sorted({*types, "null"})}
    return {"anyOf": [check, {"not": known}]} if doubt == "fits" else {"allOf": [check, known]}


def _types_of(values: list[Any]) -> set[str]:
    return {_type_of(each) for each in values} - {""}


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return ""


def _literal(text: str) -> str:
    """A pattern for exactly this, in a JSON Schema."""
    return "".join(f"\\{c}" if c in r"\^$.|?*+()[]{}-/" else c for c in text)
