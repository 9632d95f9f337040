"""Type hints to JSON Schema 2020-12. The way back, from JSON to hinted values, is convert.py.

A class with fields is written where it is used, because many models read that best; one that contains itself goes to
`$defs`.
"""

from __future__ import annotations

import collections
import collections.abc
import inspect
import typing
from typing import Any, Literal

from . import foreign
from .docstring import described, parameters_of
from .errors import Misuse
from .hints import MISSING, fields_of, is_record, is_union, loaded, strip
from .param import with_notes
from .plain import plain
from .standard import standard

Schema = dict[str, Any]

SCALARS: dict[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
LISTS = (
    list,
    collections.deque,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
MAPPINGS = (
    dict,
    collections.abc.Mapping,
    collections.abc.MutableMapping,
    collections.OrderedDict,
    collections.defaultdict,
)


def is_anything(hint: Any) -> bool:
    return hint is Any or hint is object or hint is inspect.Parameter.empty


class Schemas:
    """Builds the schemas of one tool, which share `defs`. `answers`: they are of what is sent, not of what is taken."""

    def __init__(self, *, answers: bool = False) -> None:
        self.answers = answers
        self.defs: dict[str, Schema] = {}
        self._open: list[type] = []
        self._names: dict[type, str] = {}

    def of(self, hint: Any, where: str) -> Schema:
        """Raises `Misuse`, which begins with `where`."""
        bare, notes, _ = strip(hint)
        return with_notes(self._bare(bare, where), notes, where)

    def closed(self, schema: Schema) -> Schema:
        """A schema that stands by itself."""
        if not self.defs:
            return schema
        return {**schema, "$defs": self.defs}

    def _bare(self, hint: Any, where: str) -> Schema:
        if is_anything(hint):
            return {}
        if hint is None:
            return {"type": "null"}
        if isinstance(hint, type) and hint in SCALARS:
            return {"type": SCALARS[hint]}
        if is_union(hint):
            return self._union(hint, where)
        origin = typing.get_origin(hint)
        if origin is Literal:
            return choices([plain(value) for value in typing.get_args(hint)])
        kind = origin or hint
        enum = loaded("enum", "Enum")
        if enum is not None and isinstance(kind, type) and issubclass(kind, enum):
            return _described(kind, choices(names_of(kind)))
        row = standard(kind)
        if row is not None:
            return dict(row.schema)
        if kind in (bytes, bytearray):
            return {"type": "string", "contentEncoding": "base64"}
        if foreign.is_foreign(kind) or foreign.is_checked(kind):
            return self._foreign(hint)
        if is_record(kind):
            return self._record(kind, where)
        return self._collection(kind, typing.get_args(hint), where)

    def _union(self, hint: Any, where: str) -> Schema:
        options: list[Schema] = []
        for member in typing.get_args(hint):
            option = self.of(member, where)
            if option not in options:
                options.append(option)
        if {} in options:
            return {}
        return options[0] if len(options) == 1 else {"anyOf": options}

    def _collection(self, kind: Any, args: tuple[Any, ...], where: str) -> Schema:
        if kind is tuple:
            return self._tuple(args, where)
        if kind in SETS or kind in LISTS:
            schema: Schema = {"type": "array"}
            items = self.of(args[0], f"{where}[]") if args else {}
            if items:
                schema["items"] = items
            if kind in SETS:
                schema["uniqueItems"] = True
            return schema
        if kind in MAPPINGS:
            return self._mapping(args, where)
        name = getattr(kind, "__name__", None) or str(kind)
        raise Misuse(
            f"{where}: the type {name} has no form in JSON. Use str, int, float, bool, list, dict, Literal, an Enum, "
            "a dataclass or a TypedDict, or give the tool a schema of its own"
        )

    def _tuple(self, args: tuple[Any, ...], where: str) -> Schema:
        if not args:
            return {"type": "array"}
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self.of(args[0], f"{where}[]")}
        args = () if args == ((),) else args
        items = [self.of(arg, f"{where}[{index}]") for index, arg in enumerate(args)]
        # Not `"items": false`, which some clients cannot read: nothing is left for it to say.
        schema: Schema = {"type": "array", "minItems": len(items), "maxItems": len(items)}
        return {**schema, "prefixItems": items} if items else schema

    def _mapping(self, args: tuple[Any, ...], where: str) -> Schema:
        schema: Schema = {"type": "object"}
        if len(args) == 2:
            keys = self.of(args[0], f"{where} (its keys)")
            if "enum" in keys:
                schema["propertyNames"] = keys
            values = self.of(args[1], f"{where} (its values)")
            if values:
                schema["additionalProperties"] = values
        return schema

    def _record(self, record: type, where: str) -> Schema:
        if record in self._open:
            return {"$ref": f"#/$defs/{self._name(record)}"}
        self._open.append(record)
        told = parameters_of(inspect.getdoc(record))
        properties: dict[str, Schema] = {}
        for field in fields_of(record):
            schema = self.of(field.hint, f"{where}.{field.name}")
            if field.default is not MISSING:
                schema = with_default(schema, field.default)
            properties[field.name] = described(schema, told.get(field.name))
        self._open.pop()
        schema = _described(record, {"type": "object", "properties": properties})
        # What is sent always has all its fields; only a TypedDict leaves some out.
        always = self.answers and not hasattr(record, "__required_keys__")
        required = [field.name for field in fields_of(record) if field.required or always]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        if record not in self._names:
            return schema
        self.defs[self._names[record]] = schema
        return {"$ref": f"#/$defs/{self._names[record]}"}

    def _name(self, record: type) -> str:
        if record not in self._names:
            self._names[record] = self._free(record.__name__)
            self.defs[self._names[record]] = {}  # its place; filled when the record is done
        return self._names[record]

    def _free(self, name: str) -> str:
        number, wanted = 1, name
        while name in self.defs:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def _foreign(self, kind: Any) -> Schema:
        schema, definitions = foreign.schema_of(kind, answers=self.answers)
        renamed = {
            name: name if self.defs.get(name) in (None, {}, definition) else self._free(name)
            for name, definition in definitions.items()
        }
        for name, definition in definitions.items():
            self.defs[renamed[name]] = _with_references(definition, renamed)
        return _with_references(schema, renamed)


def _with_references(value: Any, renamed: dict[str, str]) -> Any:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in typing.cast("dict[str, Any]", value).items():
            if key == "$ref" and isinstance(item, str) and item.startswith("#/$defs/"):
                name = item[len("#/$defs/") :]
                found[key] = f"#/$defs/{renamed.get(name, name)}"
            else:
                found[key] = _with_references(item, renamed)
        return found
    if isinstance(value, list):
        return [_with_references(item, renamed) for item in typing.cast("list[Any]", value)]
    return value


def choices(values: list[Any]) -> Schema:
    types = {SCALARS.get(type(value)) for value in values}
    schema: Schema = {"enum": values}
    return {"type": types.pop(), **schema} if len(types) == 1 and None not in types else schema


def names_of(enum: Any) -> list[Any]:
    """How the members of an enum are written: by their values if all of those are plain, else by their names."""
    values = [member.value for member in enum]
    if all(type(value) in SCALARS for value in values):
        return values
    return [member.name for member in enum]


def with_default(schema: Schema, default: Any) -> Schema:
    """With the default, where it can be shown."""
    try:
        value = plain(default)
    except TypeError:
        return schema
    if value is None and not _allows_null(schema):
        return schema
    return {**schema, "default": value}


def _allows_null(schema: Schema) -> bool:
    return not schema or schema.get("type") == "null" or {"type": "null"} in schema.get("anyOf", [])


def _described(record: type, schema: Schema) -> Schema:
    text: str | None = record.__doc__
    # The text that dataclasses, named tuples and enums are given by Python says nothing.
    generated = (f"{record.__name__}(", "An enumeration.", "dict(", "Alias for", "Create a collection")
    if text is None or text.startswith(generated) or not text.strip():
        return schema
    return described(schema, inspect.cleandoc(text).split("\n\n")[0])
