"""Mocks of servers that run: what is taken, what stays, what is different."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from server.agents.mock.imported_mock import Listing, copied, imported, merged, recorded
from server.agents.mock.mock_differences import MockDifference, differences
from server.agents.mock.mock_document import MockDocument, MockTool, parse_mock

TOOL: dict[str, Any] = {"name": "t", "description": "Does.", "inputSchema": {"type": "object"}}
LISTING = Listing(
    name="live",
    version="2",
    protocol_version="2025-06-18",
    tools=[{**TOOL, "_meta": {"io.ostiary/price": 1}, "newKey": 1}],
    resources=[{"uri": "w://a", "name": "a"}, {"uri": "w://b", "name": "b"}],
    contents={"w://a": {"uri": "w://a", "mimeType": "text/x", "text": "made", "_meta": {}}},
    templates=[{"uriTemplate": "w://{id}", "name": "t"}],
    prompts=[{"name": "p", "arguments": [{"name": "city", "required": True}]}],
)


def document(**fields: Any) -> MockDocument:
    return parse_mock(msgspec.json.encode(fields))


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_what_a_server_offers_is_a_mock() -> None:
    found, left_out = imported(LISTING)
    assert left_out == []
    assert plain(found) == {
        "name": "live",
        "version": "2",
        "protocolVersion": "2025-06-18",
        "tools": [TOOL],
        "resources": [
            {"uri": "w://a", "name": "a", "mimeType": "text/x", "text": "made"},
            {"uri": "w://b", "name": "b"},
        ],
        "resourceTemplates": [{"uriTemplate": "w://{id}", "name": "t"}],
        "prompts": [{"name": "p", "arguments": [{"name": "city", "required": True}]}],
    }


def test_what_cannot_be_offered_is_left_out_with_its_reason() -> None:
    bad = [
        {"name": "a b", "inputSchema": {"type": "object"}},
        {"name": "c", "inputSchema": {"type": 3}},
        TOOL,
        TOOL,
    ]
    found, left_out = imported(Listing(tools=bad, templates=[{"uriTemplate": "w://{", "name": "x"}]))
    assert [tool.name for tool in found.tools] == ["t"]
    assert found.resource_templates == ()
    for reason, why in zip(
        left_out, ("no tool name", "the tool c", "the tool t twice", "template"), strict=True
    ):
        assert why in reason


def test_scenarios_outlive_a_second_look_and_what_is_gone_stays_and_is_named() -> None:
    before = document(
        name="mine",
        tools=[{"name": "t", "enabled": False, "scenarios": [{"respond": "x"}]}, {"name": "gone"}],
        prompts=[{"name": "p", "text": "{{city}}", "arguments": [{"name": "city", "default": "Rome"}]}],
        resources=[{"uri": "w://a", "name": "old", "text": "old"}, {"uri": "w://z", "name": "z"}],
        resourceTemplates=[{"uriTemplate": "w://{id}", "name": "t", "json": 5}],
    )
    now, _ = imported(LISTING)
    found, gone = merged(before, now)
    (tool, other) = found.tools
    assert (tool.description, tool.enabled, tool.scenarios[0].respond) == ("Does.", False, "x")
    assert (found.name, other.name) == ("mine", "gone")
    assert plain(found.prompts[0]) == {
        "name": "p", "text": "{{city}}", "arguments": [{"name": "city", "required": True, "default": "Rome"}],
    }  # fmt: skip
    assert found.resources[0].text == "made"
    assert found.resource_templates[0].json == 5
    assert list(gone) == ["tool gone", "resource w://z"]
    assert merged(found, now)[0] == found


RESULT: dict[str, Any] = {
    "content": [{"type": "text", "text": "7"}],
    "isError": False,
    "resultType": "complete",
    "_meta": {},
}


@pytest.mark.parametrize(
    ("arguments", "when"),
    [
        ({"city": "Rome"}, {"city": "Rome"}),
        ({}, {"$schema": {"const": {}}}),
        ({"a.b": 1}, {"$schema": {"const": {"a.b": 1}}}),
        ({"a": {"in": [1]}}, {"$schema": {"const": {"a": {"in": [1]}}}}),
    ],
)
def test_a_call_is_a_scenario_for_its_arguments(arguments: dict[str, Any], when: Any) -> None:
    tool = msgspec.convert(TOOL, MockTool)
    found = recorded(MockDocument(), tool, arguments, RESULT)
    (scenario,) = found.tools[0].scenarios
    assert scenario.when == when
    assert scenario.result == {"content": RESULT["content"], "isError": False}
    again = recorded(found, tool, arguments, {**RESULT, "isError": True})
    assert [each.result["isError"] for each in again.tools[0].scenarios if isinstance(each.result, dict)] == [
        True
    ]


def test_a_recorded_call_comes_before_what_holds_for_all() -> None:
    before = document(
        tools=[{"name": "t", "scenarios": [{"when": {"a": 1}, "respond": "one"}, {"respond": "rest"}]}]
    )
    found = recorded(before, before.tools[0], {"a": 2}, RESULT)
    assert [scenario.when for scenario in found.tools[0].scenarios] == [{"a": 1}, {"a": 2}, msgspec.UNSET]


def test_a_copy_has_a_name_of_its_own() -> None:
    one = document(name="one", tools=[{"name": "t"}])
    assert copied(one, "two") == document(name="two", tools=[{"name": "t"}])
    assert copied(one, "") == one


def test_what_is_different_is_named_with_its_keys() -> None:
    one = document(
        tools=[{"name": "a", "input": {"x": "string"}}, {"name": "b"}, {"name": "c", "scenarios": [{}]}]
    )
    other = document(
        tools=[
            {"name": "a", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}},
            {"name": "c", "description": "C"},
            {"name": "d"},
        ],
        prompts=[{"name": "p"}],
    )  # fmt: skip
    assert differences(one, other) == [
        MockDifference("tool", "b", "removed"),
        MockDifference("tool", "c", "changed", ["description", "scenarios"]),
        MockDifference("tool", "d", "added"),
        MockDifference("prompt", "p", "added"),
    ]
    assert differences(one, other, answers=False)[1].keys == ["description"]
    assert differences(one, one) == []


def test_a_server_that_runs_is_compared_in_what_it_offers() -> None:
    now, _ = imported(LISTING)
    mine = document(
        tools=[{**TOOL, "scenarios": [{"respond": 1}]}],
        resources=[
            {"uri": "w://a", "name": "a", "mimeType": "text/x", "text": "mine"},
            {"uri": "w://b", "name": "b"},
        ],
        resourceTemplates=[{"uriTemplate": "w://{id}", "name": "t", "text": "x"}],
        prompts=[
            {"name": "p", "text": "x", "arguments": [{"name": "city", "required": True, "default": "Rome"}]}
        ],
    )
    assert differences(mine, now, answers=False) == []
