"""Which calls may be made, and what an answer is held against."""

from __future__ import annotations

from typing import Any

import pytest

from server.client.checks.call_examples import (
    DeclaredExample,
    broken_promise,
    examples_of,
    misfit,
    reason_to_skip,
)

OUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("tool", "safe", "tries_all", "called"),
    [
        ({}, False, False, False),
        ({}, True, False, True),
        ({}, False, True, True),
        ({"annotations": {"readOnlyHint": True}}, False, False, True),
        ({"annotations": {"readOnlyHint": True}, "_meta": {"io.ostiary/tier": "write"}}, False, False, False),
        ({"_meta": {"io.ostiary/tier": "read"}}, False, False, True),
        ({"annotations": {"readOnlyHint": True}, "_meta": {"io.ostiary/price": {}}}, False, False, False),
        ({"_meta": {"io.ostiary/price": {}}}, False, True, True),
        ({"_meta": {"io.ostiary/tier": "financial"}}, False, True, False),
        ({"_meta": {"io.ostiary/tier": "financial"}}, True, False, True),
    ],
)
def test_only_what_cannot_do_harm_is_called_unasked(
    tool: dict[str, Any], safe: bool, tries_all: bool, called: bool
) -> None:
    example = DeclaredExample(arguments={}, safe=safe)
    assert (reason_to_skip(tool, example, tries_all=tries_all) is None) is called


def test_an_example_of_the_settings_takes_the_place_of_the_schemas() -> None:
    tool = {"inputSchema": {"examples": [{"a": 1}, "no arguments", {"a": 2}]}}
    assert [each.arguments for each in examples_of(tool, None)] == [{"a": 1}, {"a": 2}]
    own = DeclaredExample(arguments={"a": 3})
    assert examples_of(tool, own) == [own]
    assert examples_of({}, None) == []


@pytest.mark.parametrize(
    ("tool", "result", "said"),
    [
        ({}, {"content": []}, None),
        ({}, {}, "its answer has no content"),
        (
            {},
            {"isError": True, "content": [{"type": "text", "text": "no\nsuch city"}]},
            "it failed: no such city",
        ),
        ({}, {"isError": True}, "it failed: it does not say why"),
        ({"outputSchema": OUT}, {"content": [], "structuredContent": {"n": 1}}, None),
        (
            {"outputSchema": OUT},
            {"content": []},
            "its answer has no structuredContent",
        ),
    ],
)
def test_an_answer_is_held_against_what_was_promised(
    tool: dict[str, Any], result: dict[str, Any], said: str | None
) -> None:
    found = broken_promise(tool, result)
    assert (found is None) == (said is None) and (said or "") in (found or "")


def test_what_is_wrong_is_said_without_the_value() -> None:
    said = broken_promise({"outputSchema": OUT}, {"structuredContent": {"n": "hunter2"}})
    assert said is not None
    assert said.startswith("its answer is not what its outputSchema promises: n: ")
    assert "hunter2" not in said
    wrong = misfit({"inputSchema": OUT}, {"n": "hunter2"})
    assert wrong is not None
    assert "hunter2" not in wrong
    assert misfit({"inputSchema": OUT}, {"n": 1}) is None


def test_a_schema_that_is_none_or_lies_elsewhere_is_a_fault_of_the_tool() -> None:
    assert "usable" in str(broken_promise({"outputSchema": {"type": 3}}, {"structuredContent": 1}))
    elsewhere = {"$ref": "https://attacker.example/schema.json"}
    assert "usable" in str(broken_promise({"outputSchema": elsewhere}, {"structuredContent": 1}))
