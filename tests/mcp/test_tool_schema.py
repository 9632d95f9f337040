"""Which tools can be offered, and what is said about arguments that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.mcp.messages import Tool
from server.mcp.schema import MAX_EXPLAINED, MAX_PROBLEMS, BadTool, Mirror, ToolSchema


def compiled(schema: dict[str, Any], **more: Any) -> ToolSchema:
    return ToolSchema(Tool(name="tool", input_schema=schema, **more))


def fields(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    return [problem.field for problem in compiled(schema).problems(arguments)]


@pytest.mark.requirement("tools.name")
@pytest.mark.parametrize("name", ["a", "A_b.c-9", "x" * 64])
def test_a_name_of_the_allowed_characters_is_taken(name: str) -> None:
    assert ToolSchema(Tool(name=name, input_schema={"type": "object"})).problems({}) == ()


@pytest.mark.requirement("tools.name")
@pytest.mark.parametrize("name", ["", "x" * 129, "a b", "a/b", "é", "a\n", "a,b"])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(BadTool, match="is no tool name"):
        ToolSchema(Tool(name=name, input_schema={"type": "object"}))


@pytest.mark.requirement("tools.schema")
@pytest.mark.requirement("rpc.schema-dialect")
@pytest.mark.requirement("rpc.schema-ref")
@pytest.mark.requirement("rpc.schema-bounds")
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"type": ["object", "null"]},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "$schema": "https://dialect.example/unknown"},
        {"type": "object", "$ref": "#/$defs/missing"},
        {"type": "object", "properties": {"a": {"$ref": "https://schemas.example/a.json"}}},
        {"type": "object", "description": "x" * 300_000},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_by_the_tools_name(schema: dict[str, Any]) -> None:
    with pytest.raises(BadTool, match=r"^the tool tool: "):
        compiled(schema)


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        ({"x": {"type": "strin"}}, "/properties/x/type"),
        ({"a/b~": {"enum": 3}}, "/properties/a~1b~0/enum"),
        ({"x": {"anyOf": [{}, {"pattern": "("}]}}, "/properties/x/anyOf/1/pattern"),
    ],
)
def test_a_schema_that_is_none_is_told_where(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(BadTool) as refused:
        compiled({"type": "object", "properties": properties})
    begin = f"the tool tool: inputSchema is not a usable JSON Schema: at {place}: the value is not "
    assert str(refused.value).startswith(begin)


@pytest.mark.requirement("rpc.schema-ref")
def test_a_schema_in_a_file_is_never_read(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "integer"}')
    for which in ("input", "output"):
        schemas: dict[str, Any] = {
            "input_schema": {"type": "object"},
            f"{which}_schema": {"type": "object", "$ref": file.as_uri()},
        }
        with pytest.raises(BadTool, match=f"{which}.*JSON Schema"):
            ToolSchema(Tool(name="tool", **schemas))


@pytest.mark.requirement("rpc.schema-dialect")
def test_older_dialects_and_references_inside_the_schema_work() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/number"}},
        "definitions": {"number": {"type": "integer"}},
    }
    assert fields(schema, {"a": 1}) == []
    assert fields(schema, {"a": "x"}) == ["a"]


def test_each_wrong_argument_is_named_where_it_stands() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 3},
            "days": {"type": "array", "items": {"type": "object", "required": ["date"]}},
        },
        "required": ["city", "country"],
        "additionalProperties": False,
    }
    arguments = {"city": "long", "days": [{"date": 1}, {}], "extra": 1, "more": 2}
    assert set(fields(schema, arguments)) == {"city", "country", "days[1].date", "extra", "more"}


ADDRESS = {
    "type": "object",
    "properties": {"zip": {"type": "string", "maxLength": 5}, "city": {"type": "string"}},
    "required": ["zip"],
    "additionalProperties": False,
}
OR_NOT = {"anyOf": [ADDRESS, {"type": "null"}]}
CAT = {
    "type": "object",
    "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
    "required": ["kind"],
}
DOG = {
    "type": "object",
    "properties": {"kind": {"enum": ["dog"]}, "tail": {"type": "number"}},
    "required": ["kind"],
}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize(
    ("schema", "value", "named"),
    [
        (OR_NOT, {"zip": 1}, ["p.zip"]),
        (OR_NOT, {"zip": "123456", "town": 1, "city": 2}, ["p.city", "p.town", "p.zip"]),
        (OR_NOT, {}, ["p.zip"]),
        (OR_NOT, 7, ["p"]),
        (
            {"anyOf": [{"type": "object", "properties": {"a": OR_NOT}}, {"type": "null"}]},
            {"a": {}},
            ["p.a.zip"],
        ),
        ({"anyOf": [{"type": "array", "items": OR_NOT}, ADDRESS]}, [{"zip": "1"}, {"zip": 1}], ["p[1].zip"]),
        ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}, "abc", ["p"]),
        ({"anyOf": [CAT, DOG]}, {"kind": "cat", "lives": "x"}, ["p.lives"]),
        ({"anyOf": [CAT, DOG]}, {"kind": "dog", "tail": "x"}, ["p.tail"]),
        ({"anyOf": [CAT, DOG]}, {"kind": "cow"}, ["p"]),
    ],
)
def test_where_a_value_may_be_one_of_several_the_fault_is_named_in_the_one_that_was_meant(
    schema: dict[str, Any], value: Any, named: list[str], keyword: str
) -> None:
    schema = msgspec.json.decode(msgspec.json.encode(schema).replace(b'"anyOf"', b'"%s"' % keyword.encode()))
    found = fields({"type": "object", "properties": {"p": schema}}, {"p": value})
    assert sorted(found) == named


def test_a_tool_without_arguments_names_what_it_does_not_take() -> None:
    assert fields({"type": "object", "additionalProperties": False}, {"a": 1, "b": 2}) == ["a", "b"]
    inner = {"type": "object", "additionalProperties": False}
    assert fields({"type": "object", "properties": {"x": inner, "y": False}}, {"x": {"a": 1}, "y": 2}) == [
        "x.a",
        "y",
    ]


def test_reasons_never_repeat_a_value() -> None:
    schema = {
        "type": "object",
        "properties": {"pin": {"type": "string", "pattern": "^[0-9]+$", "maxLength": 4}},
    }
    problems = compiled(schema).problems({"pin": "hunter2-hunter2"})
    assert len(problems) == 2
    assert "hunter2" not in repr(problems)


def test_no_more_problems_are_told_than_anybody_reads() -> None:
    schema = {"type": "object", "additionalProperties": False}
    assert len(fields(schema, {str(number): number for number in range(1000)})) == MAX_PROBLEMS


LISTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "string"}},
        "either": {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "array", "items": {"type": "null"}},
            ]
        },
    },
}


def test_faults_beyond_what_anybody_reads_are_not_looked_for() -> None:
    # Looking for all of them takes a minute here, and nobody else is answered meanwhile.
    many = [1] * (300 * MAX_EXPLAINED)
    for arguments in ({"items": many}, {"either": many}, {"items": [many, many]}):
        (problem,) = compiled(LISTED).problems(arguments)
        assert "too many" in problem.reason
    (problem,) = compiled(LISTED).problems({"either": [1] * (MAX_EXPLAINED - 1)})
    assert problem.field == "either"
    assert compiled(LISTED).problems({"items": ["x"] * (2 * MAX_EXPLAINED)}) == ()


def test_arguments_that_are_nested_deeper_than_a_schema_can_look_are_refused_by_that_name() -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    (problem,) = compiled(LISTED).problems({"items": deep})
    assert problem.reason == "are nested too deeply"


def test_large_integers_are_compared_exactly() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**60}}}
    assert fields(schema, {"n": 2**60}) == []
    assert fields(schema, {"n": 2**60 + 1}) == ["n"]
    assert fields(schema, {"n": 10**40}) == ["n"]


@pytest.mark.requirement("tools.output")
def test_an_answer_conforms_to_what_was_promised() -> None:
    schema = compiled({"type": "object"}, output_schema={"type": "array", "items": {"type": "integer"}})
    assert schema.conforms([1, 2])
    assert schema.conforms((1, 2))
    assert not schema.conforms(["x"])
    assert not schema.conforms(msgspec.UNSET)
    assert compiled({"type": "object"}).conforms(msgspec.UNSET)


def mirrored(properties: dict[str, Any], **more: Any) -> tuple[Mirror, ...]:
    return compiled({"type": "object", "properties": properties, **more}).mirrored


@pytest.mark.requirement("headers.mirror-schema")
def test_a_header_is_found_at_any_depth_of_properties() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "integer", "x-mcp-header": "Deep"}}}
    assert mirrored({"a": inner, "c": {"type": "boolean", "x-mcp-header": "Flat"}}) == (
        Mirror(("a", "b"), b"mcp-param-deep"),
        Mirror(("c",), b"mcp-param-flat"),
    )


def test_a_property_or_a_value_that_is_merely_called_so_is_no_header() -> None:
    assert mirrored({"x-mcp-header": {"type": "string"}, "a": {"default": {"x-mcp-header": "x"}}}) == ()


STRING = {"type": "string", "x-mcp-header": "Name"}


@pytest.mark.requirement("headers.mirror-schema")
@pytest.mark.parametrize(
    ("properties", "more"),
    [
        ({"a": {"type": "number", "x-mcp-header": "N"}}, {}),
        ({"a": {"type": ["string", "null"], "x-mcp-header": "N"}}, {}),
        ({"a": {"x-mcp-header": "N"}}, {}),
        ({"a": {"type": "string", "x-mcp-header": ""}}, {}),
        ({"a": {"type": "string", "x-mcp-header": "a b"}}, {}),
        ({"a": {"type": "string", "x-mcp-header": "a:b"}}, {}),
        ({"a": {"type": "string", "x-mcp-header": 4}}, {}),
        ({"a": STRING, "b": {"type": "string", "x-mcp-header": "NAME"}}, {}),
        ({"a": {"type": "array", "items": STRING}}, {}),
        ({"a": {"oneOf": [STRING]}}, {}),
        ({"a": {"type": "object", "additionalProperties": STRING}}, {}),
        ({}, {"anyOf": [{"properties": {"a": STRING}}]}),
        ({}, {"not": {"properties": {"a": STRING}}}),
        ({"a": {"$ref": "#/$defs/s"}}, {"$defs": {"s": STRING}}),
        ({}, {"patternProperties": {"^a": STRING}}),
        ({}, {"x-mcp-header": "Root"}),
    ],
)
def test_a_header_that_clients_would_drop_the_tool_for_is_refused(
    properties: dict[str, Any], more: dict[str, Any]
) -> None:
    with pytest.raises(BadTool, match="x-mcp-header"):
        mirrored(properties, **more)
