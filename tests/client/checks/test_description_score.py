"""The rules by which tools are judged, each with a tool that keeps it and one that does not; and what they come to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from server.client.checks.description_rules import RULES, SERVER_RULES, ServerWords
from server.client.checks.description_score import score

GOOD: dict[str, Any] = {
    "name": "get_weather",
    "title": "Weather",
    "description": "Answers with the weather of a city as it is now. Use it when somebody asks about today.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name in English", "maxLength": 80},
            "days": {"type": "integer", "description": "How many", "minimum": 1, "maximum": 7},
            "unit": {"type": "string", "description": "One of C or F", "enum": ["C", "F"]},
            "tags": {"type": "array", "description": "Words", "maxItems": 3, "items": {"type": "string"}},
        },
        "required": ["city"],
        "additionalProperties": False,
        "examples": [{"city": "Berlin"}],
    },
    "outputSchema": {
        "type": "object",
        "properties": {"degrees": {"type": "number", "description": "In the unit that was asked for"}},
    },
    "annotations": {"readOnlyHint": True},
}
WORDS = ServerWords(description="Weather of all cities. " * 10)


def tool(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not None}


def with_input(**changes: Any) -> dict[str, Any]:
    schema = {**GOOD["inputSchema"], **changes}
    return tool(inputSchema={key: value for key, value in schema.items() if value is not None})


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "description": "x", "maxLength": 1}
    for _ in range(levels):
        schema = {"type": "object", "description": "x", "properties": {"inner": schema}}
    return schema


BROKEN = [
    ("name", tool(name="weather.get")),
    ("name", tool(name="w" * 65)),
    ("description", tool(description=None)),
    ("description", tool(description="  \n ")),
    ("description-length", tool(description="Use it.")),
    ("description-length", tool(description="Use it when it rains. " * 60)),
    ("description-when", tool(description="Answers with the weather of a city as it is right now.")),
    ("description-own", tool(description="Get weather. " + "get weather " * 4)),
    ("argument-types", with_input(properties={"city": {"description": "Its name"}})),
    ("argument-descriptions", with_input(properties={"city": {"type": "string", "maxLength": 9}})),
    ("argument-bounds", with_input(properties={"days": {"type": "integer", "description": "x", "minimum": 1}})),
    ("argument-bounds", with_input(properties={"tags": {"type": "array", "description": "x"}})),
    ("argument-enums", with_input(properties={"unit": {"type": "string", "maxLength": 1, "description": "One of C or F"}})),
    ("arguments-closed", with_input(additionalProperties=None)),
    ("argument-levels", with_input(properties={"city": deep(4)})),
    ("example", with_input(examples=None)),
    ("annotations", tool(annotations=None)),
    ("annotations", tool(annotations={"title": "Weather"})),
    ("title", tool(title=None)),
    ("output-schema", tool(outputSchema=None)),
    ("output-descriptions", tool(outputSchema={"type": "object", "properties": {"degrees": {"type": "number"}}})),
]  # fmt: skip


def test_a_tool_that_is_described_well_has_nothing_to_be_mended() -> None:
    found = score([GOOD], WORDS)
    assert (found.percent, found.findings, found.tools[0].percent, found.tools[0].findings) == (
        100,
        [],
        100,
        [],
    )


@pytest.mark.parametrize(("rule", "broken"), BROKEN, ids=lambda each: each if isinstance(each, str) else "")
def test_each_fault_is_found_by_its_rule_alone(rule: str, broken: dict[str, Any]) -> None:
    (found,) = score([broken], WORDS).tools
    assert found.percent < 100
    assert rule in {finding.rule for finding in found.findings}
    mended = {each.name: each.mend for each in RULES}
    for finding in found.findings:
        assert finding.words
        assert finding.tool == broken["name"]
        assert finding.mend == mended[finding.rule]


def test_every_rule_of_a_tool_is_broken_by_some_tool() -> None:
    assert {rule for rule, _ in BROKEN} == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("rule", "tools", "words"),
    [
        ("server-description", [GOOD], ServerWords(instructions="Weather.")),
        ("server-description", [GOOD], ServerWords()),
        (
            "tool-count",
            [tool(name=f"tool_{n}", description=f"{GOOD['description']} {n}") for n in range(41)],
            WORDS,
        ),
        ("tools-told-apart", [GOOD, tool(name="get_weather_2")], WORDS),
    ],
)
def test_faults_of_the_server_as_a_whole_are_found(
    rule: str, tools: list[dict[str, Any]], words: ServerWords
) -> None:
    found = score(tools, words)
    assert [finding.rule for finding in found.findings] == [rule]
    assert found.percent < 100
    assert all(not each.findings for each in found.tools)
    assert rule in {each.name for each in SERVER_RULES}


def test_what_a_server_says_of_itself_does_not_count_where_it_is_not_known() -> None:
    assert score([GOOD]).percent == 100


def test_an_example_of_the_settings_counts_as_one_of_the_schema() -> None:
    without = with_input(examples=None)
    assert score([without], WORDS, frozenset({"get_weather"})).percent == 100


def test_more_that_is_right_is_never_worth_less() -> None:
    worst: dict[str, Any] = {"name": "a.b", "inputSchema": {"type": "object", "properties": {"x": {}}}}
    order = ["name", "description", "title", "annotations", "outputSchema", "inputSchema"]
    percents = [score([worst]).percent]
    for key in order:
        worst = {**worst, key: GOOD[key]}
        percents.append(score([worst]).percent)
    assert percents == sorted(percents)
    assert percents[0] < 40
    assert percents[-1] == 100


def test_the_same_list_scores_the_same_in_any_order() -> None:
    one, other = tool(description=None), tool(name="other.tool", title=None)
    here, there = score([one, other], WORDS), score([other, one], WORDS)
    assert here.percent == there.percent
    assert sorted(msgspec.json.encode(each) for each in here.tools) == sorted(
        msgspec.json.encode(each) for each in there.tools
    )


@pytest.mark.parametrize(
    "hostile",
    [
        {"name": "x"},
        {"name": "x", "inputSchema": None, "outputSchema": [], "annotations": "yes", "description": 3},
        {"name": "x", "inputSchema": {"properties": {"a": None, "b": True, "c": {"type": ["null"]}}}},
        {"name": "x", "inputSchema": {"properties": {"a": {"$ref": "#"}}}},
        {"name": "x", "inputSchema": {"properties": {"a": {"$ref": "#/properties/a"}}}},
        {"name": "x", "inputSchema": {"properties": {str(n): {"$ref": "#"} for n in range(200)}}},
    ],
)
def test_schemas_that_make_no_sense_or_lead_back_to_themselves_are_scored_all_the_same(
    hostile: dict[str, Any],
) -> None:
    assert 0 <= score([hostile], ServerWords()).percent <= 100


def test_nothing_at_all_has_nothing_to_be_mended() -> None:
    assert score([]).percent == 100
