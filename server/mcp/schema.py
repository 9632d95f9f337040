"""A tool's JSON Schemas: compiled once when the tool is registered, then asked on every call.

Never fetches a `$ref`: the compiler runs offline, always, and a schema that needs another document is refused by name.
Also here: which arguments a client repeats in `Mcp-Param-*` headers (`x-mcp-header`).
Spec: basic/index "JSON Schema", server/tools (2026-07-28).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import getitem
from typing import Any, Final, cast

import jsonschema_rs
import msgspec
from jsonschema_rs import ValidationErrorKind as Kind
from msgspec import UNSET

from server.mcp.errors import HeaderMismatch
from server.mcp.inbound_messages import Headers, mirrors
from server.mcp.messages import Tool

# A schema larger than this is not read by any model, and is not worth compiling.
MAX_SCHEMA_BYTES: Final = 256 * 1024
# As many faults as a model can put right in one go.
MAX_PROBLEMS: Final = 20
MAX_REASON: Final = 300
# The compiler looks for every fault before it tells of the first, some microseconds for each value and, under `anyOf`, for each
# of its branches. So arguments of more values than this are told that they do not fit, but not where.
MAX_EXPLAINED: Final = 1000

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_INTEGER: Final = re.compile(rb"(-?\d{1,16})(?:\.0+)?").fullmatch
_LARGEST_INTEGER: Final = 2**53 - 1
_MIRRORED_TYPES: Final = ("string", "integer", "boolean")
# Keywords whose value is data, not a schema; and those whose value maps names to schemas.
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class BadTool(ValueError):
    """A tool that cannot be offered; the text says what to change."""


class ArgumentProblem(msgspec.Struct, frozen=True):
    """What is wrong with one argument. Never holds its value."""

    field: str
    reason: str


class Mirror(msgspec.Struct, frozen=True):
    """An argument that the client repeats in a header."""

    path: tuple[str, ...]
    header: bytes


class ToolSchema:
    """Raises `BadTool` when the tool cannot be offered."""

    __slots__ = ("_input", "_output", "mirrored", "promises")

    def __init__(self, tool: Tool) -> None:
        if not _NAME(tool.name):
            raise BadTool(f"{tool.name[:80]!r} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ . -")
        if tool.input_schema.get("type") != "object":
            raise BadTool(f'the tool {tool.name}: inputSchema must have "type": "object" at its root')
        self._input: Final = _compile(tool.name, "inputSchema", tool.input_schema)
        self._output: Final = (
            None if tool.output_schema is UNSET else _compile(tool.name, "outputSchema", tool.output_schema)
        )
        self.promises: Final = self._output is not None  # that its answer has a shape
        self.mirrored: Final = _mirrored(tool)

    def problems(self, arguments: Mapping[str, Any]) -> tuple[ArgumentProblem, ...]:
        """Empty when the arguments are as the schema wants them."""
        try:
            if self._input.is_valid(arguments):
                return ()
            if _has_more_values(arguments, MAX_EXPLAINED):
                return (ArgumentProblem("", "do not fit the schema, and are too many to say which"),)
            found = (
                problem
                for error in self._input.iter_errors(arguments)
                for problem in _problems(error, arguments)
            )
            return tuple(islice(found, MAX_PROBLEMS))
        except (
            ValueError,
            RecursionError,
        ):  # the first is how the compiler says that it does not go that deep
            return (ArgumentProblem("", "are nested too deeply"),)

    def conforms(self, structured: Any) -> bool:
        """Whether a structured answer is what the tool promised; one that promised nothing always keeps it."""
        if self._output is None:
            return True
        return structured is not UNSET and self._output.is_valid(msgspec.to_builtins(structured))

    def check_headers(self, arguments: Mapping[str, Any], headers: Headers) -> None:
        """Raises `HeaderMismatch` when a header does not repeat its argument."""
        for mirror in self.mirrored:
            value: Any = arguments
            for step in mirror.path:
                value = cast("Mapping[str, Any]", value).get(step) if isinstance(value, Mapping) else None
            header = headers.get(mirror.header)
            if value is None and header is None:
                continue
            if value is None or header is None or not _repeats(header, value):
                raise HeaderMismatch(
                    f"{mirror.header.decode()} is missing, malformed, or is not the argument {'.'.join(mirror.path)}"
                )


def _compile(name: str, which: str, schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    try:
        if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
            raise BadTool(f"the tool {name}: {which} is larger than {MAX_SCHEMA_BYTES // 1024} KiB")
        # `mask` keeps argument values out of every message.
        return jsonschema_rs.validator_for(dict(schema), offline=True, mask="the value")
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, BadTool):
            raise
        raise BadTool(f"the tool {name}: {which} is not a usable JSON Schema: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Why a schema is none, and where in it, as far as the compiler tells."""
    if not isinstance(error, jsonschema_rs.ValidationError) or not error.instance_path:
        return str(error).partition("\n")[0][:MAX_REASON]
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in error.instance_path)
    pointer = "".join(f"/{step}" for step in steps)
    return f"at {pointer[:MAX_REASON]}: {error.message[:MAX_REASON]}"


def _problems(
    error: jsonschema_rs.ValidationError, arguments: Mapping[str, Any]
) -> Iterator[ArgumentProblem]:
    where = _dotted(error.instance_path)
    match error.kind:
        case Kind.Required(property=missing):
            yield ArgumentProblem(_join(where, str(missing)), "is required")
        case Kind.AdditionalProperties(unexpected=names) | Kind.UnevaluatedProperties(unexpected=names):
            for name in names:
                yield ArgumentProblem(_join(where, name[:MAX_REASON]), "is not a known argument")
        case Kind.FalseSchema() if error.schema_path[-1:] == ["additionalProperties"]:
            # How the compiler puts it where no argument is known at all; it names none of them.
            for name in reduce(getitem, error.instance_path, cast("Any", arguments)):
                yield ArgumentProblem(_join(where, name[:MAX_REASON]), "is not a known argument")
        case Kind.FalseSchema():
            yield ArgumentProblem(where, "is not allowed")
        case Kind.AnyOf(context=branches) | Kind.OneOfNotValid(context=branches):
            meant = _meant(branches, error.instance_path)
            if meant is None:
                yield ArgumentProblem(where, error.message[:MAX_REASON])
                return
            for inner in meant:
                yield from _problems(inner, arguments)
        case _:
            yield ArgumentProblem(where, error.message[:MAX_REASON])


def _meant(
    branches: Sequence[Sequence[jsonschema_rs.ValidationError]], path: Sequence[str | int]
) -> Sequence[jsonschema_rs.ValidationError] | None:
    """The faults by the one branch that a value was meant for: that of its type, and of those the one whose constants it has."""
    fitting = [
        faults
        for faults in branches
        if not any(isinstance(fault.kind, Kind.Type) and fault.instance_path == path for fault in faults)
    ]
    if len(fitting) > 1:
        fitting = [
            faults
            for faults in fitting
            if not any(isinstance(fault.kind, Kind.Constant | Kind.Enum) for fault in faults)
        ]
    return fitting[0] if len(fitting) == 1 else None


def _has_more_values(arguments: Mapping[str, Any], limit: int) -> bool:
    """Looks at no more of them than that."""
    level: list[Any] = [arguments]
    count = -1  # they are not one of their values
    while level and count <= limit:
        value = level.pop()
        if isinstance(value, Mapping):
            level += islice(cast("Mapping[str, Any]", value).values(), limit)
        elif isinstance(value, list):
            level += islice(cast("list[Any]", value), limit)
        count += 1
    return count > limit or len(level) > limit


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else _join(text, step)
    return text[:MAX_REASON]


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _mirrored(tool: Tool) -> tuple[Mirror, ...]:
    found: list[Mirror] = []
    for path, schema, reachable in _subschemas(tool.input_schema, (), True):
        if "x-mcp-header" not in schema:
            continue
        name = schema["x-mcp-header"]
        where = f"the tool {tool.name}: x-mcp-header of {'.'.join(path) or 'the root'}"
        if not isinstance(name, str) or not _TOKEN(name):
            raise BadTool(f"{where} is not a header name")
        if not reachable or not path:
            raise BadTool(f"{where} is not on a property that is reached through `properties` alone")
        if schema.get("type") not in _MIRRORED_TYPES:
            raise BadTool(f'{where} needs "type": string, integer or boolean')
        header = f"mcp-param-{name.lower()}".encode()
        if any(other.header == header for other in found):
            raise BadTool(f"{where}: {name} is used twice")
        found.append(Mirror(path, header))
    return tuple(found)


def _subschemas(
    schema: Any, path: tuple[str, ...], reachable: bool
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any], bool]]:
    """Every subschema, and whether `properties` alone lead to it. Depth is bounded: the compiler has taken it."""
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            yield from _subschemas(item, path, False)
    if not isinstance(schema, Mapping):
        return
    node = cast("Mapping[str, Any]", schema)
    yield path, node, reachable
    for keyword, value in node.items():
        if keyword in _DATA:
            continue
        if keyword in _NAMED and isinstance(value, Mapping):
            for name, inner in cast("Mapping[str, Any]", value).items():
                yield from _subschemas(inner, (*path, name), reachable and keyword == "properties")
        else:
            yield from _subschemas(value, path, False)


def _repeats(header: bytes, value: object) -> bool:
    if isinstance(value, bool):
        return header.strip() == (b"true" if value else b"false")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON Schema takes 42.0 for an integer, and so does the header
    if isinstance(value, int):
        number = _INTEGER(header.strip())
        return number is not None and abs(value) <= _LARGEST_INTEGER and int(number[1]) == value
    return isinstance(value, str) and mirrors(header, value)
