"""Schemas as settings write them."""

from __future__ import annotations

from typing import Any

import pytest

from server.agents.base.short_schema import BadShortSchema, read_schema, with_defaults


def test_a_word_for_each_argument_is_a_schema() -> None:
    assert read_schema(
        {
            "city": "string: Which city, as in: Berlin",
            "days": "integer?",
            "tags": "string[]?",
            "unit": ["c", "f"],
            "n": {"type": "integer", "minimum": 1, "optional": True},
            "m": {"type": "number", "default": 2},
        }
    ) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Which city, as in: Berlin"},
            "days": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "n": {"type": "integer", "minimum": 1},
            "m": {"type": "number", "default": 2},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    }
    assert read_schema({}) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_whole_schema_is_taken_as_it_is() -> None:
    whole = {"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1}
    assert read_schema(whole) == whole
    assert read_schema('{"type": "object", "required": ["a"]}') == {"type": "object", "required": ["a"]}


@pytest.mark.parametrize(
    "written", ["{", "[1]", {"a": "text"}, {"a": 3}, {"a": []}, {"a": ["x", 1]}, {"a": "strings"}]
)
def test_what_is_none_is_refused(written: Any) -> None:
    with pytest.raises(BadShortSchema):
        read_schema(written)


def test_what_is_left_out_has_its_default() -> None:
    schema = read_schema({"a": "string", "b": {"type": "integer", "default": 3}})
    assert with_defaults(schema, {"a": "x"}) == {"a": "x", "b": 3}
    assert with_defaults(schema, {"a": "x", "b": 4}) == {"a": "x", "b": 4}
