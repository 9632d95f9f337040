"""Arguments made of a schema: they fit it wherever that can be guessed, and are made of any schema at all."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from server.client.samples.sample_arguments import sample, stated

OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("properties", "made"),
    [
        ({"a": {"type": "string"}}, {"a": "text"}),
        ({"a": {"type": "string", "minLength": 6}}, {"a": "textxx"}),
        ({"a": {"type": "string", "maxLength": 2}}, {"a": "te"}),
        ({"a": {"type": "string", "format": "date"}}, {"a": "2026-01-31"}),
        ({"a": {"type": "string", "enum": ["x", "y"]}}, {"a": "x"}),
        ({"a": {"type": "string", "examples": ["Berlin"]}}, {"a": "Berlin"}),
        ({"a": {"const": 7}}, {"a": 7}),
        ({"a": {"type": "integer"}}, {"a": 1}),
        ({"a": {"type": "integer", "minimum": 10}}, {"a": 10}),
        ({"a": {"type": "integer", "exclusiveMinimum": 10}}, {"a": 11}),
        ({"a": {"type": "number", "maximum": -2}}, {"a": -2}),
        ({"a": {"type": "number", "exclusiveMaximum": 0}}, {"a": -0.5}),
        ({"a": {"type": ["null", "boolean"]}}, {"a": False}),
        ({"a": {"type": "null"}}, {"a": None}),
        ({"a": {"type": "array", "items": {"type": "integer"}, "minItems": 2}}, {"a": [1, 1]}),
        ({"a": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}, {"a": 1}),
        (
            {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}},
            {"a": {"b": "text"}},
        ),
        ({"a": {"$ref": "#/$defs/city"}}, {"a": "text"}),
    ],
)
def test_what_is_required_is_made_up_to_fit(properties: dict[str, Any], made: dict[str, Any]) -> None:
    schema = {**OBJECT, "properties": properties, "required": ["a"], "$defs": {"city": {"type": "string"}}}
    assert sample(schema) == made
    assert jsonschema_rs.validator_for(schema).is_valid(made)


def test_what_is_not_required_is_left_out_unless_it_has_a_default() -> None:
    schema = {**OBJECT, "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 4}}}
    assert sample(schema) == {"b": 4}


def test_an_example_goes_before_anything_made_up() -> None:
    schema = {
        **OBJECT,
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "examples": [{"a": "Rome"}],
    }
    assert sample(schema) == {"a": "Rome"}
    assert sample(schema, {"a": "Oslo"}) == {"a": "Oslo"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": 3, "properties": [], "required": "a"},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]},
        {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}, "required": ["a"]},
        {
            "properties": {"a": {"type": "array", "minItems": 10**9, "items": {"$ref": "#/properties/a"}}},
            "required": ["a"],
        },
        {"properties": {"a": {"type": "string", "minLength": 10**12}}, "required": ["a"]},
        {"properties": {"a": {"type": "integer", "minimum": "low"}}, "required": ["a", 3]},
        {"allOf": [{"properties": {}}], "enum": [5]},
    ],
)
def test_a_schema_that_makes_no_sense_makes_something_small(schema: dict[str, Any]) -> None:
    assert len(str(sample(schema))) < 1_000_000


def test_what_is_stated_holds_nothing_that_was_made_up() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "order": {"type": "string"},
            "day": {"enum": ["Friday", "Saturday"]},
            "kind": {"const": "refund"},
            "room": {"type": "string", "examples": ["attic"]},
            "why": {"type": "string", "default": "late"},
            "at": {
                "type": "object",
                "properties": {"floor": {"type": "integer", "default": 3}, "x": {"type": "integer"}},
                "required": ["x"],
            },
            "again": {"$ref": "#"},
        },
        "required": ["order", "day", "kind", "room", "at"],
    }
    found = stated(schema)
    found.pop("again")
    assert found == {"kind": "refund", "room": "attic", "why": "late", "at": {"floor": 3}}
    assert stated({**schema, "examples": [{"order": "A7"}]}) == {"order": "A7"}
    assert stated(schema, {"order": "B8"}) == {"order": "B8"}
