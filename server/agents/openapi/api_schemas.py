"""Schemas of an OpenAPI document as JSON Schema 2020-12 that stands by itself: what they refer to comes along as `$defs`.

So a schema that refers to itself is no difficulty, and one that is used in many places is there once. The dialect of 3.0
(`nullable`, exclusive bounds that are true or false) is written as JSON Schema does. In a request there are no properties that
are read only, in an answer none that are write only. Spec: OpenAPI 3.0.4 §4.7.24, 3.1.1 §4.8.24.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from server.agents.base.first_cycle import first_cycle
from server.agents.openapi.openapi_document import ApiDocument, BadApi, pointer

MAX_DEFINITIONS: Final = 1_000
MAX_DEPTH: Final = 100

Direction: TypeAlias = Literal["request", "answer"]

# Of no use to whoever fills in arguments, or not JSON Schema.
_DROPPED: Final = frozenset(
    {
        "discriminator", "xml", "externalDocs", "example", "nullable", "readOnly", "writeOnly", "deprecated",
        "$schema", "$id", "$anchor", "$comment", "$vocabulary",
    }
)  # fmt: skip
_UNREADABLE: Final = frozenset({"$dynamicRef", "$dynamicAnchor", "$recursiveRef"})
_ONE: Final = frozenset(
    {
        "items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else",
        "unevaluatedItems", "unevaluatedProperties", "contentSchema", "additionalItems",
    }
)  # fmt: skip
_SEVERAL: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_HERE: Final = "#/$defs/"
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.-]")


class _Definition(msgspec.Struct, frozen=True, kw_only=True):
    """`problem`: why it cannot be written."""

    schema: Any = None
    size: int = 0
    names: frozenset[str] = frozenset()  # of definitions that it refers to
    in_place: frozenset[str] = frozenset()  # of those that apply to the very value that it does
    problem: str = ""


class SchemaWriter:
    """The writer of one document's schemas for one direction; each definition once, however many tools refer to it."""

    def __init__(self, document: ApiDocument, direction: Direction) -> None:
        self._document = document
        self._hidden = "readOnly" if direction == "request" else "writeOnly"
        self._names: dict[str, str] = {}  # of references
        self._taken: set[str] = set()
        # Named, and not written yet: they refer to each other in long chains.
        self._rest: list[tuple[str, str]] = []
        self._definitions: dict[str, _Definition] = {}

    def write(self, schema: object) -> Any:
        """Write a schema without what it refers to. Raises `BadApi`."""
        return self._write(schema, 0)

    def whole(self, written: Any, *, most: int) -> dict[str, Any]:
        """Return a written schema with all that it refers to, as a document of its own of at most so many bytes. Raises
        `BadApi`."""
        self._write_rest()
        root: dict[str, Any] = {"not": {}} if written is False else {} if written is True else written
        needed = self._needed(root, most)
        if isinstance(root.get("$ref"), str):
            # Some clients look for a type at the root.
            root = {**needed[_name_in(root["$ref"])].schema, **_without_ref(root)}
        if not needed:
            return root
        return {**root, "$defs": {name: needed[name].schema for name in sorted(needed)}}

    def _needed(self, root: Any, most: int) -> Mapping[str, _Definition]:
        found: dict[str, _Definition] = {}
        size = len(msgspec.json.encode(root))
        rest = list(_references(root))
        while rest:
            name = rest.pop()
            definition = self._definitions.get(name)
            if definition is None or name in found:
                continue  # data that only looks like a reference
            if definition.problem:
                raise BadApi(definition.problem)
            found[name] = definition
            size += definition.size
            rest += definition.names
            if size > most or len(found) > MAX_DEFINITIONS:
                raise BadApi(f"a schema in it, with all that it refers to, is larger than {most // 1024} KiB")
        _check_ends(found)
        return found

    def _write_rest(self) -> None:
        while self._rest:
            name, reference = self._rest.pop()
            try:
                schema = self._write(self._document.at(reference), 1)
                self._definitions[name] = _Definition(
                    schema=schema,
                    size=len(msgspec.json.encode(schema)) + len(name),
                    names=frozenset(_references(schema)),
                    in_place=frozenset(_in_place(schema)),
                )
            except (BadApi, ValueError, RecursionError) as problem:
                self._definitions[name] = _Definition(problem=str(problem))

    def _write(self, schema: object, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise BadApi(f"a schema in it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(schema, bool):
            return schema  # 3.1: anything, or nothing
        if not isinstance(schema, Mapping):
            raise BadApi("a schema in it is not a table")
        table = cast("Mapping[str, Any]", schema)
        reference = table.get("$ref")
        if isinstance(reference, str):
            named = {"$ref": _HERE + self._define(reference)}
            if not self._document.since_31:
                return named  # 3.0: what stands beside a reference is passed over
            return {**named, **self._keywords(_without_ref(table), depth)}
        return self._keywords(table, depth)

    def _define(self, reference: str) -> str:
        name = self._names.get(reference)
        if name is not None:
            return name
        usual = _PLAIN.sub("_", (pointer(reference) or ["root"])[-1])[:60] or "schema"
        name, number = usual, 2
        while name in self._taken:
            name, number = f"{usual}_{number}", number + 1
        self._names[reference] = name
        self._taken.add(name)
        self._rest.append((name, reference))
        return name

    def _keywords(self, table: Mapping[str, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in table.items():
            if key in _UNREADABLE:
                raise BadApi(f"a schema in it has {key}, which is not read")
            if key in _DROPPED or key.startswith("x-"):
                continue
            if key in _ONE and isinstance(value, Mapping | bool):
                found[key] = self._write(cast("object", value), depth + 1)
            elif key in _SEVERAL and isinstance(value, list):
                found[key] = [self._write(each, depth + 1) for each in cast("list[object]", value)]
            elif key in _NAMED and isinstance(value, Mapping):
                named = cast("Mapping[str, Any]", value)
                found[key] = {
                    name: self._write(each, depth + 1)
                    for name, each in named.items()
                    if key != "properties" or not self._is_hidden(each)
                }
            else:
                found[key] = value
        self._drop_hidden(table, found)
        if "example" in table and "examples" not in found:
            found["examples"] = [table["example"]]
        if not self._document.since_31:
            _from_30(table, found)
        return found

    def _drop_hidden(self, table: Mapping[str, Any], found: dict[str, Any]) -> None:
        properties, required = table.get("properties"), found.get("required")
        if isinstance(properties, Mapping) and isinstance(required, list):
            named = cast("Mapping[str, Any]", properties)
            kept = [
                name
                for name in cast("list[Any]", required)
                if name not in named or not self._is_hidden(named[name])
            ]
            found["required"] = kept
            if not kept:
                del found["required"]

    def _is_hidden(self, schema: object) -> bool:
        return isinstance(schema, Mapping) and cast("Mapping[str, Any]", schema).get(self._hidden) is True


def _check_ends(definitions: Mapping[str, _Definition]) -> None:
    """Refuse a schema that is what it refers to, and that is it again: it could be checked for ever. Raises `BadApi`."""
    looped = first_cycle({name: definition.in_place for name, definition in definitions.items()})
    if looped is not None:
        raise BadApi(f"the schema {looped[:80]!r} in it is defined by itself alone")


def _references(schema: Any) -> Iterator[str]:
    rest: list[Any] = [schema]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            table = cast("dict[str, Any]", each)
            if isinstance(table.get("$ref"), str):
                yield _name_in(table["$ref"])
            rest += table.values()
        elif isinstance(each, list):
            rest += cast("list[Any]", each)


def _name_in(reference: str) -> str:
    return reference.removeprefix(_HERE)


def _in_place(schema: object) -> set[str]:
    """Return the definitions that apply to the very value that this schema does."""
    found: set[str] = set()
    rest: list[object] = [schema]
    while rest:
        each = rest.pop()
        if not isinstance(each, Mapping):
            continue
        table = cast("Mapping[str, Any]", each)
        if isinstance(table.get("$ref"), str):
            found.add(_name_in(table["$ref"]))
        for key in _SEVERAL - {"prefixItems"}:
            rest += cast("list[object]", table.get(key) or [])
        rest += [table[key] for key in ("not", "if", "then", "else") if key in table]
        rest += cast("Mapping[str, object]", table.get("dependentSchemas") or {}).values()
    return found


def _without_ref(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$ref"}


def _from_30(table: Mapping[str, Any], found: dict[str, Any]) -> None:
    for exclusive, bound in _BOUNDS:
        if isinstance(found.get(exclusive), bool) and found.pop(exclusive) and bound in found:
            found[exclusive] = found.pop(bound)
    if table.get("nullable") is not True:
        return
    kind = found.get("type")
    if isinstance(kind, str):
        found["type"] = [kind, "null"]
        if isinstance(found.get("enum"), list) and None not in found["enum"]:
            found["enum"] = [*found["enum"], None]
    elif any(key in found for key in _SEVERAL):
        inner = dict(found)
        found.clear()
        found["anyOf"] = [inner, {"type": "null"}]
