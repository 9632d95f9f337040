from __future__ import annotations

from typing import Any

import pytest

from server.client.typed_arguments import UnusableArguments, describe, from_words, names, type_name, usage
from server.mcp.request_headers import header_value, parameter_headers

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "what to say\nat length"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "loud": {"type": "boolean"},
        "tags": {"type": "array"},
        "place": {"$ref": "#/$defs/Place"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "colour": {"enum": ["red", "green"]},
        "level": {"enum": [1, 2]},
        "open": {},
    },
    "required": ["text"],
    "$defs": {"Place": {"type": "object"}},
}
TOOL = {"name": "say", "inputSchema": SCHEMA}
CLOSED = {"name": "say", "inputSchema": {**SCHEMA, "additionalProperties": False}}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=5", "5"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("text=true", "true"),
        ('text={"a": 1}', '{"a": 1}'),
        ("count=5", 5),
        ("count=-5", -5),
        ("share=5", 5),
        ("share=0.5", 0.5),
        ("share=1e3", 1000.0),
        ("loud=true", True),
        ("loud=false", False),
        ('tags=["a", 1]', ["a", 1]),
        ('place={"city": "Ulm"}', {"city": "Ulm"}),
        ("maybe=5", 5),
        ("maybe=null", None),
        ("either=5", 5),
        ("either=five", "five"),
        ("colour=red", "red"),
        ("level=2", 2),
        ("open=5", "5"),
        ("unlisted=5", "5"),
    ],
)
def test_a_word_becomes_the_value_that_the_schema_means(word: str, value: object) -> None:
    key = word.partition("=")[0]
    found = from_words(TOOL, [word] if key == "text" else ["text=x", word])[key]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("count=five", "count takes an integer, not “five”"),
        ("count=5.5", "count takes an integer, not “5.5”"),
        ("count=true", "count takes an integer, not “true”"),
        ("share=much", "share takes a number, not “much”"),
        ("loud=yes", "loud takes true or false, not “yes”"),
        ("tags=a,b", "tags takes a JSON list, not “a,b”"),
        ("place=Ulm", "place takes a JSON object, not “Ulm”"),
        ("maybe=x", "maybe takes an integer or a null, not “x”"),
        ("level=[[", "level takes an integer, not “[[”"),
        ("loose", "“loose” is not key=value"),
        ("=5", "“=5” is not key=value"),
        ("text=twice", "text is given twice"),
    ],
)
def test_a_word_that_does_not_fit_is_named(word: str, said: str) -> None:
    with pytest.raises(UnusableArguments) as refused:
        from_words(TOOL, ["text=x", word])
    assert str(refused.value) == said


def test_an_unknown_argument_is_refused_only_where_the_schema_is_closed() -> None:
    assert from_words(TOOL, ["text=x", "other=1"])["other"] == "1"
    with pytest.raises(UnusableArguments, match="say has no argument other"):
        from_words(CLOSED, ["text=x", "other=1"])


def test_a_missing_argument_is_told_with_all_that_the_tool_takes() -> None:
    with pytest.raises(UnusableArguments, match="say needs text") as refused:
        from_words(TOOL, [])
    assert refused.value.hint == usage(TOOL)
    assert usage(TOOL).startswith("say takes text=… [count=…] [share=…]")
    assert usage({"name": "now"}) == "now takes no arguments"


def test_a_tool_describes_its_arguments_required_ones_first() -> None:
    tool = {"name": "x", "inputSchema": {**SCHEMA, "required": ["loud"]}}
    assert names(tool)[0] == ("loud", True)
    assert type_name(TOOL, "colour") == "red | green"
    assert type_name(TOOL, "maybe") == "integer | null"
    assert type_name(TOOL, "place") == "object"
    assert type_name(TOOL, "open") == "any"
    assert describe(TOOL, "text") == "what to say"


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {"properties": []},
        {"properties": {"a": 5}},
        {"properties": {"a": {"$ref": "#/a/b"}}},
        {"properties": {"a": {"$ref": "https://a.example/x"}}},
        {"required": "text"},
        {"properties": {"a": {"type": 5}}},
    ],
)
def test_a_schema_that_makes_no_sense_leaves_words_as_strings(schema: Any) -> None:
    tool = {"name": "odd", "inputSchema": schema}
    assert from_words(tool, ["a=1"]) == {"a": "1"}
    assert type_name(tool, "a") == "any"


def test_a_reference_to_itself_ends() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "integer"}]}},
    }
    assert from_words({"name": "x", "inputSchema": schema}, ["a=1"]) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("echo", "echo"),
        ("with space", "with space"),
        (" edge", "=?base64?IGVkZ2U=?="),
        ("ü", "=?base64?w7w=?="),
        ("a\nb", "=?base64?YQpi?="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        ("", "=?base64??="),
    ],
)
def test_a_value_that_no_header_could_carry_is_encoded(text: str, header: str) -> None:
    assert header_value(text) == header


def test_arguments_are_repeated_in_headers_where_the_schema_asks() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "size": {"type": "integer", "x-mcp-header": "Size"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "big": {"type": "integer", "x-mcp-header": "Big"},
            "plain": {"type": "string"},
            "bad": {"type": "string", "x-mcp-header": "two words"},
            "missing": {"type": "string", "x-mcp-header": "Missing"},
            "deep": {"properties": {"er": {"type": "string", "x-mcp-header": "Deeper"}}},
        }
    }
    arguments = {
        "region": "Köln",
        "size": 42,
        "dry": False,
        "big": 2**60,
        "plain": "x",
        "bad": "x",
        "missing": None,
        "deep": {"er": "x"},
    }
    assert parameter_headers(schema, arguments) == {
        "Mcp-Param-Region": "=?base64?S8O2bG4=?=",
        "Mcp-Param-Size": "42",
        "Mcp-Param-Dry": "false",
        "Mcp-Param-Deeper": "x",
    }
    assert parameter_headers(None, arguments) == {}
