"""When a scenario applies: what is asked of the arguments, made into one JSON Schema, which has bounds on the time that it takes.

`{"city": "Berlin"}` is equality, `{"days": {"above": 3}}` a comparison, `{"place.country": {"exists": true}}` looks inside, and a list is any of
several. `{"$schema": {…}}` is a JSON Schema of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import jsonschema_rs
from msgspec import UNSET, UnsetType

When: TypeAlias = dict[str, Any] | list[dict[str, Any]] | UnsetType
SCHEMA: Final = "$schema"
STEPS: Final = 16  # of a path


class BadCondition(ValueError):
    """A condition that cannot be meant; says why."""


class Undecidable(ValueError):
    """Nobody can say whether it holds: the arguments are nested deeper than anybody looks, or hold what is no text."""


_OPERATORS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "equals": lambda wanted: {"const": wanted},
        "not": lambda wanted: {"not": {"const": wanted}},
        "in": lambda wanted: {"enum": wanted},
        "matches": lambda wanted: {"type": "string", "pattern": wanted},
        "contains": lambda wanted: {
            "anyOf": [
                {"type": "array", "contains": {"const": wanted}},
                *([{"type": "string", "pattern": _literal(wanted)}] if isinstance(wanted, str) else []),
            ]
        },
        "above": lambda wanted: {"type": "number", "exclusiveMinimum": wanted},
        "below": lambda wanted: {"type": "number", "exclusiveMaximum": wanted},
        "atLeast": lambda wanted: {"type": "number", "minimum": wanted},
        "atMost": lambda wanted: {"type": "number", "maximum": wanted},
    }
)
EXISTS: Final = "exists"
OPERATORS: Final = frozenset({*_OPERATORS, EXISTS})


class Condition:
    """Raises `BadCondition`. `linear`: its patterns are asked in a time that grows with the text alone, whatever is in it; they look
    neither ahead nor behind then."""

    def __init__(self, when: When, *, linear: bool = False) -> None:
        self._validator: jsonschema_rs.Validator | None = None
        if when is UNSET or when == {}:
            return
        schema = {"anyOf": [_schema(each) for each in when]} if isinstance(when, list) else _schema(when)
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


def _schema(when: Mapping[str, Any]) -> dict[str, Any]:
    if set(when) == {SCHEMA}:
        own = when[SCHEMA]
        if not isinstance(own, dict):
            raise BadCondition("`when` has a $schema that is no JSON Schema")
        return cast("dict[str, Any]", own)
    return {"allOf": [_at(path, wanted) for path, wanted in when.items()]}


def _at(path: str, wanted: Any) -> dict[str, Any]:
    steps = path.split(".")
    if not all(steps) or len(steps) > STEPS:
        raise BadCondition(f'`when` names the argument "{path[:60]}", which is no path')
    operators: Mapping[str, Any] = {"equals": wanted}
    if isinstance(wanted, dict) and wanted and wanted.keys() <= OPERATORS:  # pyright: ignore[reportUnknownMemberType]
        operators = cast("Mapping[str, Any]", wanted)
    checks = [_OPERATORS[name](value) for name, value in operators.items() if name != EXISTS]
    there = _reached(steps, {"allOf": checks} if checks else {})
    if operators.get(EXISTS, True) is not False:
        return there
    if checks:
        raise BadCondition(f'`when` compares "{path[:60]}", which is not to exist')
    return {"not": there}


def _reached(steps: list[str], then: dict[str, Any]) -> dict[str, Any]:
    for step in reversed(steps):
        then = {"type": "object", "required": [step], "properties": {step: then}}
    return then


def _literal(text: str) -> str:
    """A pattern for exactly this, in a JSON Schema."""
    return "".join(f"\\{c}" if c in r"\^$.|?*+()[]{}-/" else c for c in text)
