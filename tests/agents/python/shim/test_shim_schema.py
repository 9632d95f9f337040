"""Hints to JSON Schema, and checked JSON back to what the hints promise."""

# ruff: noqa: UP007, UP017, UP045 - the older spellings are what is tested, too
from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import io
import pathlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import jsonschema_rs
import msgspec
import pytest

from server.agents.python.shim.ostiary.convert import convert, from_text
from server.agents.python.shim.ostiary.errors import Misuse, Unfit
from server.agents.python.shim.ostiary.offers import Prompt, Resource, Tool
from server.agents.python.shim.ostiary.param import Param
from server.agents.python.shim.ostiary.plain import plain
from server.agents.python.shim.ostiary.schema import Schemas


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Shade(enum.Enum):
    LIGHT = (255, 255)
    DARK = (0, 0)


UserId = NewType("UserId", int)


class Spot(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Plain:
    """A plain thing.

    Attributes:
        name: What it is called.
    """

    name: str
    tags: list[str] = field(default_factory=list)
    colour: Colour = Colour.RED


@dataclass
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


class Loose(TypedDict, total=False):
    a: int


class Mixed(Loose):
    b: str
    c: NotRequired[bool]


class Record(msgspec.Struct):
    name: str
    inner: Spot | None = None


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    item: T


NULL = {"type": "null"}
HINTS: list[tuple[Any, dict[str, Any], list[tuple[Any, Any]]]] = [
    (str, {"type": "string"}, [("a", "a")]),
    (int, {"type": "integer"}, [(1, 1), (3.0, 3)]),
    (float, {"type": "number"}, [(1, 1.0), (0.5, 0.5)]),
    (bool, {"type": "boolean"}, [(True, True)]),
    (None, NULL, [(None, None)]),
    (Any, {}, [([1], [1])]),
    (object, {}, [({"a": 1}, {"a": 1})]),
    (UserId, {"type": "integer"}, [(5, 5)]),
    (Optional[str], {"anyOf": [{"type": "string"}, NULL]}, [(None, None), ("a", "a")]),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, [(1, 1), ("1", "1")]),
    (Union[float, int], {"anyOf": [{"type": "number"}, {"type": "integer"}]}, [(1, 1), (1.5, 1.5)]),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, [("b", "b")]),
    (Literal[1, "a"], {"enum": [1, "a"]}, [(1, 1)]),
    (Colour, {"type": "string", "enum": ["red", "blue"]}, [("blue", Colour.BLUE)]),
    (Shade, {"type": "string", "enum": ["LIGHT", "DARK"]}, [("DARK", Shade.DARK)]),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [([1], [1])]),
    (list, {"type": "array"}, [([1, "a"], [1, "a"])]),
    (Sequence[dt.date], {"type": "array", "items": {"type": "string", "format": "date"}}, [(["2026-01-02"], [dt.date(2026, 1, 2)])]),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, [(["a"], {"a"})]),
    (frozenset[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [([1], frozenset([1]))]),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [([1, 2], (1, 2))]),
    (tuple[int, str], {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}]}, [([1, "a"], (1, "a"))]),
    (tuple[()], {"type": "array"}, [([], ())]),
    (collections.deque[int], {"type": "array", "items": {"type": "integer"}}, [([1], collections.deque([1]))]),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, [({"a": 1}, {"a": 1})]),
    (Mapping[int, Any], {"type": "object"}, [({"1": "a"}, {1: "a"})]),
    (dict[Colour, bool], {"type": "object", "propertyNames": {"type": "string", "enum": ["red", "blue"]}, "additionalProperties": {"type": "boolean"}}, [({"red": True}, {Colour.RED: True})]),
    (dict, {"type": "object"}, [({}, {})]),
    (dt.datetime, {"type": "string", "format": "date-time"}, [("2026-01-02T03:04:05Z", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc))]),
    (dt.time, {"type": "string", "format": "time"}, [("03:04:05", dt.time(3, 4, 5))]),
    (dt.timedelta, {"type": "number"}, [(1.5, dt.timedelta(seconds=1.5))]),
    (uuid.UUID, {"type": "string", "format": "uuid"}, [("12345678123456781234567812345678", uuid.UUID("12345678123456781234567812345678"))]),
    (decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string"}]}, [(1.1, decimal.Decimal("1.1")), ("2.20", decimal.Decimal("2.20"))]),
    (pathlib.Path, {"type": "string"}, [("a/b", pathlib.Path("a/b"))]),
    (bytes, {"type": "string", "contentEncoding": "base64"}, [("aGk=", b"hi")]),
    (Spot, {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}, "required": ["x"], "additionalProperties": False}, [({"x": 1}, Spot(1, 0))]),
    (Plain, {"type": "object", "properties": {"name": {"type": "string", "description": "What it is called."}, "tags": {"type": "array", "items": {"type": "string"}}, "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"}}, "description": "A plain thing.", "required": ["name"], "additionalProperties": False}, [({"name": "n", "colour": "blue"}, Plain("n", [], Colour.BLUE))]),
    (Mixed, {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "boolean"}}, "required": ["b"], "additionalProperties": False}, [({"b": "x"}, {"b": "x"})]),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}, [(1, 1)]),
    (Annotated[str, Param("a name", title="Name", min_length=1, max_length=9, pattern="^a", examples=["ab"])], {"type": "string", "title": "Name", "description": "a name", "pattern": "^a", "examples": ["ab"], "minLength": 1, "maxLength": 9}, [("ab", "ab")]),
    (Annotated[list[int], Param(min_length=1)], {"type": "array", "items": {"type": "integer"}, "minItems": 1}, [([1], [1])]),
    (Annotated[float, Param(gt=0, lt=1, multiple_of=0.5)], {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.5}, [(0.5, 0.5)]),
    (Annotated[int, msgspec.Meta(ge=1, le=5, description="by msgspec")], {"type": "integer", "description": "by msgspec", "minimum": 1, "maximum": 5}, [(2, 2)]),
    (Annotated[Optional[str], Param(header="Region")], {"type": "string", "x-mcp-header": "Region"}, [("eu", "eu")]),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "schema", "values"), HINTS, ids=[str(row[0]) for row in HINTS])
def test_a_hint_has_its_schema_and_values_that_fit_it_become_what_it_says(
    hint: Any, schema: dict[str, Any], values: list[tuple[Any, Any]]
) -> None:
    assert Schemas().of(hint, "here") == schema
    validator = jsonschema_rs.validator_for(schema)
    for given, made in values:
        assert validator.is_valid(given)
        result = convert(given, hint)
        assert result == made
        assert type(result) is type(made)


@pytest.mark.parametrize(
    ("hint", "value", "problem"),
    [
        (dt.date, "soon", "not a date"),
        (dt.date, 5, "not a date"),
        (uuid.UUID, "x", "not a UUID"),
        (decimal.Decimal, "x", "not a Decimal"),
        (bytes, "?", "not base64"),
        (int, True, "not integer"),
        (int, 1.5, "not integer"),
        (str, 1, "not a string"),
        (Colour, "green", "not one of red, blue"),
        (Literal[1], True, "not one of 1"),
        (list[int], ["a"], "[0]: not integer"),
        (tuple[int, int], [1], "not 2 items"),
        (dict[str, Plain], {"a": {"name": "n", "tags": [1]}}, "a.tags[0]: not a string"),
        (Plain, {}, "name: missing"),
        (Plain, {"name": "n", "other": 1}, "other: unknown"),
        (Checked, {"low": 2, "high": 1}, "low is above high"),
        (Optional[Plain], {"name": 1}, "name: not a string"),
        (Tree, {"value": 1, "children": [{"value": "x"}]}, "children[0].value: not integer"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(hint: Any, value: Any, problem: str) -> None:
    with pytest.raises(Unfit) as raised:
        convert(value, hint)
    assert str(raised.value) == problem


def test_the_first_of_several_records_that_fits_is_made() -> None:
    assert convert({"low": 1, "high": 2}, Union[Plain, Checked]) == Checked(1, 2)


def test_a_record_that_contains_itself_is_defined_once() -> None:
    def grow(tree: Tree) -> Tree: ...  # type: ignore[empty-body]

    tool = Tool(grow)
    schema = tool.wire["inputSchema"]
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid({"tree": {"value": 1, "children": [{"value": 2}]}})
    assert not validator.is_valid({"tree": {"value": 1, "children": [{"value": "x"}]}})
    assert tool.arguments({"tree": {"value": 1, "children": [{"value": 2}]}}) == {"tree": Tree(1, [Tree(2)])}
    output = tool.wire["outputSchema"]
    assert output["type"] == "object"
    assert jsonschema_rs.validator_for(output).is_valid(plain(Tree(1, [Tree(2)])))


def test_structs_bring_their_own_schema_and_conversion() -> None:
    def keep(record: Record, others: list[Record] = []) -> Record: ...  # type: ignore[empty-body] # noqa: B006

    tool = Tool(keep)
    schema = tool.wire["inputSchema"]
    validator = jsonschema_rs.validator_for(schema)
    given = {"record": {"name": "a", "inner": [1, 2]}, "others": [{"name": "b"}]}
    assert validator.is_valid(given)
    assert not validator.is_valid({"record": {"name": 1}})
    made = tool.arguments(given)
    assert made == {"record": Record("a", Spot(1, 2)), "others": [Record("b")]}
    assert plain(made) == {"record": {"name": "a", "inner": (1, 2)}, "others": [{"name": "b", "inner": None}]}
    with pytest.raises(Unfit, match="record: Expected `str`, got `int`"):
        tool.arguments({"record": {"name": 1}})
    assert tool.wire["outputSchema"]["$ref"] == "#/$defs/Record"
    assert tool.wire["outputSchema"]["type"] == "object"


def test_a_generic_struct_is_what_it_is_made_of() -> None:
    hint = Box[int]
    schema = Schemas()
    assert jsonschema_rs.validator_for(schema.closed(schema.of(hint, ""))).is_valid({"item": 1})
    assert convert({"item": 1}, hint) == Box(1)
    with pytest.raises(Unfit, match="Expected `int`"):
        convert({"item": "x"}, hint)


def test_two_types_of_one_name_have_two_definitions() -> None:
    other = msgspec.defstruct("Record", [("size", int)])
    schemas = Schemas()
    first, second = schemas.of(Record, ""), schemas.of(other, "")
    assert (first, second) == ({"$ref": "#/$defs/Record"}, {"$ref": "#/$defs/Record_2"})
    assert set(schemas.defs) >= {"Record", "Record_2"}


def test_a_docstring_describes_the_tool_and_its_parameters_in_every_manner() -> None:
    def google(a: int, b: int, c: Annotated[int, "by hint"]) -> None:
        """Does a thing,
        on two lines.

        Not shown.

        Args:
            a (int): The first
                of them.
            b: The second.
            c: overruled

        Returns:
            d: nothing
        """

    def numpy(a: int, b: int, c: Annotated[int, "by hint"]) -> None:
        """Does a thing, on two lines.

        Parameters
        ----------
        a : int
            The first
            of them.
        b
            The second.

        Returns
        -------
        d
            nothing
        """

    def sphinx(a: int, b: int, c: Annotated[int, "by hint"]) -> None:
        """Does a thing, on two lines.

        :param a: The first
            of them.
        :param int b: The second.
        :returns: nothing
        """

    for function in (google, numpy, sphinx):
        wire = Tool(function).wire
        assert wire["description"] == "Does a thing, on two lines."
        told = {name: schema["description"] for name, schema in wire["inputSchema"]["properties"].items()}
        assert told == {"a": "The first of them.", "b": "The second.", "c": "by hint"}


def test_a_tool_without_arguments_takes_none() -> None:
    def nothing() -> None: ...

    assert Tool(nothing).wire == {"name": "nothing", "inputSchema": {"type": "object", "additionalProperties": False}}  # fmt: skip


def test_parameters_without_hints_take_anything_and_defaults_are_shown() -> None:
    def loose(a, b=1, c: Optional[int] = None, d: Colour = Colour.RED, e=io, **rest): ...  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, ANN202

    schema = Tool(loose).wire["inputSchema"]
    assert schema == {
        "type": "object",
        "properties": {
            "a": {},
            "b": {"default": 1},
            "c": {"anyOf": [{"type": "integer"}, NULL], "default": None},
            "d": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "e": {},
        },
        "required": ["a"],
    }
    assert Tool(loose).arguments({"a": [1], "z": 2}) == {"a": [1], "z": 2}


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object"}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "allOf": [{"anyOf": [{"required": ["name"]}]}],
    "additionalProperties": False,
}


def test_schemas_of_the_author_are_passed_on_unaltered_and_in_their_order() -> None:
    def by_name(name: str = "", address: Any = None) -> None: ...

    def as_one(arguments: dict[str, Any]) -> None: ...

    def as_rest(**everything: Any) -> None: ...

    for function in (by_name, as_one, as_rest):
        tool = Tool(function, input_schema=SCHEMA, output_schema={"type": "array", "items": {}})
        assert msgspec.json.encode(tool.wire["inputSchema"]) == msgspec.json.encode(SCHEMA)
        assert tool.wire["outputSchema"] == {"type": "array", "items": {}}
        made = tool.arguments({"name": "a"})
        assert made == ({"arguments": {"name": "a"}} if function is as_one else {"name": "a"})


def test_what_an_open_schema_lets_in_and_the_function_does_not_take_is_left_out() -> None:
    def by_name(name: str) -> None: ...

    tool = Tool(by_name, input_schema={"type": "object", "properties": {"name": {}}, "required": ["name"]})
    assert tool.arguments({"name": "a", "more": 1}) == {"name": "a"}


@pytest.mark.parametrize(
    ("returns", "schema"),
    [
        (str, None),
        (int, None),
        (None, None),
        (dict, None),
        (dict[str, Any], None),
        (list[str], None),
        (Optional[Plain], None),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[Spot], "wrapped"),
        (Mixed, "object"),
        (Annotated[Spot, "where"], "object"),
    ],
    ids=str,
)
def test_only_results_with_a_shape_have_an_output_schema(returns: Any, schema: Any) -> None:
    def function() -> None: ...

    function.__annotations__["return"] = returns
    tool = Tool(function)
    if isinstance(schema, str):
        assert tool.shape == schema
        assert tool.wire["outputSchema"]["type"] == "object"
        if schema == "wrapped":
            assert tool.wire["outputSchema"]["required"] == ["result"]
    else:
        assert tool.wire.get("outputSchema") == schema


def test_a_header_is_for_simple_values_alone() -> None:
    def list_it(x: Annotated[list[str], Param(header="X")]) -> None: ...

    with pytest.raises(Misuse, match="str, int or bool"):
        Tool(list_it)
    with pytest.raises(Misuse, match="letters, digits and dashes"):
        Param(header="a b")


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({"readOnly": True}, "'readOnly' is no annotation; did you mean read_only"),
        ({"readonly": True}, "did you mean read_only"),
        ({"read-only-hint": True}, "did you mean read_only"),
        ({"destructivehint": True}, "did you mean destructive"),
        ({"idempotant": True}, "did you mean idempotent"),
        ({"openWorld": True}, "did you mean open_world"),
        ({"read_only": True, "zzz": 1}, "'zzz' is no annotation; there are read_only, destructive"),
        ({"read_only": "yes"}, "the annotation readOnlyHint cannot be 'yes'"),
        ({"destructive": None}, "the annotation destructiveHint cannot be None"),
    ],
)
def test_a_misspelt_annotation_is_refused_with_the_right_one(annotations: Any, why: str) -> None:
    def look() -> None: ...

    with pytest.raises(Misuse, match=rf"look\(\).*{why}|look.*{why}"):
        Tool(look, annotations=annotations)


def test_annotations_are_written_as_python_or_the_wire_has_them() -> None:
    def look() -> None: ...

    tool = Tool(look, annotations={"read_only": True, "openWorldHint": False, "title": "Look"})
    assert tool.wire["annotations"] == {"readOnlyHint": True, "openWorldHint": False, "title": "Look"}
    resource = Resource(
        "a://b", look, annotations={"audience": ["user"], "last_modified": "2026-01-01T00:00:00Z"}
    )
    assert resource.wire["annotations"] == {"audience": ["user"], "lastModified": "2026-01-01T00:00:00Z"}
    with pytest.raises(Misuse, match="'audiance' is no annotation; did you mean audience"):
        Resource("a://b", look, annotations={"audiance": ["user"]})


def test_a_param_as_a_default_is_refused_with_the_right_way() -> None:
    def wrong(x: int = Param(ge=1)) -> None: ...  # type: ignore[assignment]

    with pytest.raises(Misuse, match=r"write x: Annotated"):
        Tool(wrong)


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str, "1", "1"),
        (Any, "1", "1"),
        (int, "1", 1),
        (float, "1.5", 1.5),
        (bool, "Yes", True),
        (bool, "0", False),
        (Optional[int], "4", 4),
        (Union[str, int], "4", 4),
        (Union[str, int], "four", "four"),
        (Literal[1, "a"], "1", 1),
        (Colour, "blue", Colour.BLUE),
        (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
        (list[int], "[1, 2]", [1, 2]),
        (Spot, '{"x": 1}', Spot(1)),
    ],
    ids=str,
)
def test_a_text_stands_for_the_value_of_its_hint(hint: Any, text: str, value: Any) -> None:
    made = from_text(text, hint)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("hint", "problem"),
    [(int, "not a whole number"), (bool, "neither true nor false"), (Colour, "not one of red, blue"), (list[int], "not JSON"), (dt.date, "not a date")],
    ids=str,
)  # fmt: skip
def test_a_text_that_stands_for_nothing_is_refused(hint: Any, problem: str) -> None:
    with pytest.raises(Unfit, match=problem):
        from_text("x", hint)


def test_a_prompt_has_its_parameters_as_arguments() -> None:
    def review(code: Annotated[str, Param("what to review", title="Code")], strict: bool = False) -> str:
        """Asks for a review.

        Args:
            strict: With all rules.
        """
        return code

    assert Prompt(review).wire == {
        "name": "review",
        "description": "Asks for a review.",
        "arguments": [
            {"name": "code", "title": "Code", "description": "what to review", "required": True},
            {"name": "strict", "description": "With all rules.", "required": False},
        ],
    }
