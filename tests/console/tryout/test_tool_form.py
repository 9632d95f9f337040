"""A form made of a schema, and the arguments that come back: what a person leaves as it is comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest

from server.console.tryout.tool_form import MAX_FIELDS, TryField, fields_of, filled, refilled, sampled


def posted_of(fields: tuple[TryField, ...]) -> dict[str, str]:
    """What a browser sends of an untouched form."""
    found: dict[str, str] = {}
    for field in fields:
        if field.kind == "group":
            found |= posted_of(field.fields)
        else:
            found[field.name] = field.value.replace("\n", "\r\n")
    return found


def one(schema: dict[str, Any], *, required: bool = False, value: Any = ...) -> TryField:
    whole = {"properties": {"x": schema}, "required": ["x"] if required else []}
    (field,) = fields_of(whole, {} if value is ... else {"x": value})
    return field


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string", "maxLength": 20}, "text"),
        ({"type": "string", "format": "date"}, "text"),
        ({"type": "string"}, "long"),
        ({"type": "integer"}, "integer"),
        ({"type": "number"}, "number"),
        ({"type": ["number", "null"]}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"enum": ["a", 2, None]}, "choice"),
        ({"const": 3}, "choice"),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "choice"),
        ({"type": "array", "items": {"type": "integer"}}, "list"),
        ({"type": "array", "items": {"type": "object"}}, "json"),
        ({"type": "array"}, "json"),
        ({"type": "object"}, "json"),
        ({"type": "object", "properties": {"y": {"type": "string"}}}, "group"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "json"),
        ({}, "json"),
        (True, "json"),
        ({"$ref": "#/$defs/missing"}, "json"),
    ],
)
def test_each_kind_of_schema_has_a_kind_of_field(schema: Any, kind: str) -> None:
    assert one(schema).kind == kind


@pytest.mark.parametrize(
    "value",
    [
        {
            "s": "two\nlines",
            "n": 2.5,
            "i": -3,
            "b": False,
            "c": 2,
            "l": ["a", "b"],
            "o": {"d": {"e": "x"}},
            "j": [{"k": None}],
        },
        {"c": "a", "l": []},
        {"s": " kept ", "o": {"d": {"e": "<b>\"'&amp;"}}},
        {"s": "x", "i": 12345678901234567, "n": 1e300, "odd key/~%": "y"},
    ],
)
def test_a_form_that_is_left_as_it_is_gives_back_what_it_was_filled_with(value: dict[str, Any]) -> None:
    schema = {
        "properties": {
            "s": {"type": "string"},
            "n": {"type": "number"},
            "i": {"type": "integer"},
            "b": {"type": "boolean"},
            "c": {"enum": ["a", 2, None]},
            "l": {"type": "array", "items": {"type": "string"}},
            "o": {
                "type": "object",
                "properties": {"d": {"type": "object", "properties": {"e": {"type": "string"}}}},
            },
            "j": {"type": "array", "items": {"type": "object"}},
            "odd key/~%": {"type": "string"},
        },
        "required": list(value),
    }
    fields = fields_of(schema, value)
    assert filled(fields, posted_of(fields)).problems == {}
    assert filled(fields, posted_of(fields)).arguments == value
    assert refilled(fields, posted_of(fields))[0].key == fields[0].key


# What cannot be understood of what was typed, and the fact that is told.
MISFITS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "integer"}, "", "needed"),
    ({"type": "integer"}, "two", "no number"),
    ({"type": "integer"}, "2.5", "whole number"),
    ({"type": "integer"}, "true", "no number"),
    ({"type": "number"}, "NaN", "no number"),
    ({"type": "boolean"}, "1", "yes or no"),
    ({"enum": ["a"]}, "1", "choices"),
    ({"enum": ["a"]}, "-1", "choices"),
    ({"enum": ["a"]}, "9" * 40, "choices"),
    ({"type": "array", "items": {"type": "integer"}}, "1\nx", "no number"),
    ({"type": "object"}, "{", "no JSON: Input data was truncated"),
    ({"type": "object"}, "[" * 20_000, "nested too deeply"),
]


@pytest.mark.parametrize(("schema", "typed", "fact"), MISFITS)
def test_what_cannot_be_understood_is_told_at_its_field(
    schema: dict[str, Any], typed: str, fact: str
) -> None:
    field = one(schema, required=True)
    found = filled([field], {field.name: typed})
    assert list(found.problems) == [field.name] and fact in found.problems[field.name]
    assert found.arguments == {}


def test_what_is_left_empty_is_left_out_and_missed_where_it_is_needed() -> None:
    schema = {"properties": {name: {"type": "string"} for name in "ab"}, "required": ["b"]}
    found = filled(fields_of(schema, {}), {})
    assert (found.arguments, found.problems) == ({}, {"a/b": "is needed"})


def test_a_sample_is_shown_and_never_sent() -> None:
    schema = {"properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}}
    (field,) = sampled(fields_of(schema, {}), fields_of(schema, {"a": {"b": "x"}}))
    assert (field.fields[0].sample, field.fields[0].value) == ("x", "")
    assert filled([field], {}).arguments == {}


def test_only_fields_that_were_asked_for_are_looked_at() -> None:
    field = one({"type": "string"})
    assert filled([field], {"a/other": "x", "x": "y", "form_token": "z"}).arguments == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {str(n): {"type": "string"} for n in range(5000)}},
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}, "d": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": [], "required": 3},
        {"properties": {"a": {"enum": []}, "b": {"enum": list(range(5000))}}},
    ],
)
def test_a_form_is_bounded_whatever_the_schema(schema: dict[str, Any]) -> None:
    def count(fields: tuple[TryField, ...]) -> int:
        return sum(1 + count(field.fields) for field in fields)

    assert count(fields_of(schema, {})) <= MAX_FIELDS


def test_names_are_ids_without_blanks_and_never_the_same() -> None:
    keys = ["a b", "a+b", "a/b", "a%20b", "ä", "a\tb", ""]
    fields = fields_of({"properties": {key: {"type": "string"} for key in keys}}, {})
    names = [field.name for field in fields]
    assert len(set(names)) == len(keys)
    assert all(name.isascii() and not any(c.isspace() for c in name) for name in names)
