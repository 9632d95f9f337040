"""Arguments that say as a text what is wanted as something else."""

from __future__ import annotations

from typing import Any

import pytest

from server.mcp.lenient_arguments import coerced

KINDS: dict[str, Any] = {
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "sure": {"type": "boolean"},
    "name": {"type": "string"},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "ids": {"type": "array", "items": {"type": "integer"}},
    "place": {"type": "object", "properties": {"zip": {"type": "integer"}}},
    "size": {"enum": [1, 2]},
    "any": {},
}
SCHEMA = {"type": "object", "properties": KINDS, "additionalProperties": {"type": "boolean"}}

TAKEN = [
    ("count", "5", 5),
    ("count", "-12", -12),
    ("share", "0.25", 0.25),
    ("share", "3", 3),
    ("share", "1e3", 1000.0),
    ("sure", "true", True),
    ("sure", "False", False),
    ("maybe", "7", 7),
    ("ids", "[1, 2]", [1, 2]),
    ("ids", ["1", 2], [1, 2]),
    ("ids", '["1"]', [1]),
    ("place", '{"zip": "10115"}', {"zip": 10115}),
    ("place", {"zip": "10115"}, {"zip": 10115}),
    ("more", "true", True),
]
LEFT = [
    ("count", "5.0"),
    ("count", "5.5"),
    ("count", "05"),
    ("count", " 5"),
    ("count", "٥"),
    ("count", "9" * 400),
    ("share", "0.1234567890123456789"),
    ("share", "1e999"),
    ("share", "nan"),
    ("sure", "yes"),
    ("sure", "1"),
    ("name", "5"),
    ("either", "5"),
    ("ids", "[1,"),
    ("ids", "{}"),
    ("ids", "[" * 100_000),
    ("place", "[]"),
    ("size", "1"),
    ("any", "5"),
    ("count", None),
    ("count", True),
]


@pytest.mark.parametrize(("name", "given", "taken"), TAKEN)
def test_a_text_is_taken_for_what_it_says(name: str, given: Any, taken: Any) -> None:
    found = coerced(SCHEMA, {name: given})[name]
    assert (found, type(found)) == (taken, type(taken))


@pytest.mark.parametrize(("name", "given"), LEFT, ids=[f"{n}-{str(v)[:12]}" for n, v in LEFT])
def test_what_would_lose_something_or_may_be_a_text_is_left(name: str, given: Any) -> None:
    assert coerced(SCHEMA, {name: given})[name] is given


def test_a_document_in_a_document_is_read_only_so_deep() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    value: Any = []
    for _ in range(100):
        value = [value]
    assert coerced({"properties": {"deep": schema}}, {"deep": value}) == {"deep": value}
