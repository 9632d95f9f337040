"""A form for a tool's arguments, made from its JSON Schema, and the arguments that come back. Works without script.

Texts, numbers, yes and no, choices, lists of these and objects within objects have fields of their own; whatever else a schema has is a text
area for JSON, and so can be all arguments together. Whether they fit is the tool's own schema's to say, as for every call. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import quote

import msgspec

from server.client.samples.sample_arguments import resolved, type_of
from server.lib.json_objects import mapping
from server.lib.shortened import short_reason

# A form has room for no more fields in one POST; what a schema has beyond them is for JSON.
MAX_FIELDS: Final = 60
MAX_DEPTH: Final = 3
MAX_OPTIONS: Final = 200
MAX_LABEL: Final = 120
MAX_HINT: Final = 400
# A text that may be longer than this is written on several lines.
LONG_TEXT: Final = 200

Kind: TypeAlias = Literal["text", "long", "number", "integer", "boolean", "choice", "list", "json", "group"]
Scalar: TypeAlias = Literal["text", "number", "integer", "boolean"]

_SCALARS: Final[Mapping[str, Scalar]] = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
}


class TryField(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is what it is posted as; `key` the member that it becomes. `options` are what a choice stands for, `of` what a list has."""

    name: str
    key: str
    kind: Kind
    label: str
    required: bool
    hint: str = ""
    value: str = ""
    options: tuple[Any, ...] = ()
    titles: tuple[str, ...] = ()
    of: Scalar = "text"
    fields: tuple[TryField, ...] = ()
    sample: str = ""  # shown where nothing is written yet; never sent


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """What was posted. `problems`: by the name of the field, what cannot be understood of it."""

    arguments: Mapping[str, Any]
    problems: Mapping[str, str]


def fields_of(
    schema: Mapping[str, Any], values: Mapping[str, Any], *, prefix: str = "a"
) -> tuple[TryField, ...]:
    """Filled in with `values`."""
    left = [MAX_FIELDS]
    return tuple(_fields(schema, schema, values, prefix, 1, left))


def filled(fields: Sequence[TryField], posted: Mapping[str, str]) -> Filled:
    """Fields that were left empty are left out, unless they are needed."""
    problems: dict[str, str] = {}
    return Filled(arguments=_members(fields, posted, problems), problems=problems)


def refilled(fields: Sequence[TryField], posted: Mapping[str, str]) -> tuple[TryField, ...]:
    """The same fields as somebody has just filled them in."""
    return tuple(
        msgspec.structs.replace(
            field, value=posted.get(field.name, ""), fields=refilled(field.fields, posted)
        )
        for field in fields
    )


def sampled(fields: Sequence[TryField], samples: Sequence[TryField]) -> tuple[TryField, ...]:
    """Give the fields the values of others, of one schema with them, as samples."""
    values = {each.name: each for each in samples}
    return tuple(
        msgspec.structs.replace(
            field,
            sample=values[field.name].value if field.name in values else "",
            fields=sampled(field.fields, values[field.name].fields if field.name in values else ()),
        )
        for field in fields
    )


# ── a schema becomes fields ──────────────────────────────────────────────────────────────────────────────────────────


def _fields(
    schema: Mapping[str, Any],
    root: Mapping[str, Any],
    values: Mapping[str, Any],
    prefix: str,
    depth: int,
    left: list[int],
) -> Iterator[TryField]:
    required = schema.get("required")
    needed = cast("list[Any]", required) if isinstance(required, list) else []
    properties = mapping(schema.get("properties"))
    for key, written in sorted(properties.items(), key=lambda pair: pair[0] not in needed):
        if left[0] <= 0:
            return
        left[0] -= 1
        yield _field(key, written, root, values, prefix, depth, left, key in needed)


def _field(
    key: str,
    written: Any,
    root: Mapping[str, Any],
    values: Mapping[str, Any],
    prefix: str,
    depth: int,
    left: list[int],
    required: bool,
) -> TryField:
    schema = _without_null(resolved(written, root), root)
    name = f"{prefix}/{quote(key, safe='')}"  # it is an id on the page as well, which has no blanks
    title, described = schema.get("title"), mapping(written).get("description") or schema.get("description")
    said: dict[str, Any] = {
        "name": name,
        "key": key,
        "required": required,
        "label": (title if isinstance(title, str) and title.strip() else key)[:MAX_LABEL],
        "hint": described[:MAX_HINT] if isinstance(described, str) else "",
    }
    value = values.get(key)
    there = key in values
    if (choice := _choice(schema)) is not None:
        options, titles = choice
        chosen = next((str(at) for at, each in enumerate(options) if there and each == value), "")
        return TryField(**said, kind="choice", options=options, titles=titles, value=chosen)
    kind = type_of(schema)
    if kind == "object" and mapping(schema.get("properties")) and depth < MAX_DEPTH:
        inner = tuple(_fields(schema, root, mapping(value), name, depth + 1, left))
        return TryField(**said, kind="group", fields=inner)
    if kind == "array" and (of := _SCALARS.get(type_of(resolved(schema.get("items"), root)))) is not None:
        items = cast("list[Any]", value) if isinstance(value, list) else []
        if not any(isinstance(each, str) and ("\n" in each or not each) for each in items):
            return TryField(**said, kind="list", of=of, value="\n".join(_shown(each) for each in items))
    if (scalar := _SCALARS.get(kind)) is not None and "anyOf" not in schema and "oneOf" not in schema:
        text = _shown(value) if there and value is not None else ""
        most = schema.get("maxLength")
        short = isinstance(most, int) and most <= LONG_TEXT
        formatted = "format" in schema or "pattern" in schema
        if scalar == "text" and ("\n" in text or len(text) > LONG_TEXT or not (short or formatted)):
            return TryField(**said, kind="long", value=text)
        return TryField(**said, kind=scalar, value=text)
    return TryField(**said, kind="json", value=as_json(value) if there else "")


def _without_null(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """`anyOf` of something and nothing is that something, which may be left out."""
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list):
            meant = [
                found
                for each in cast("list[Any]", branches)
                if (found := resolved(each, root)).get("type") != "null"
            ]
            if len(meant) == 1:
                return {**{key: value for key, value in schema.items() if key != keyword}, **meant[0]}
    return schema


def _choice(schema: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[str, ...]] | None:
    options, named = schema.get("enum"), schema.get("enumNames")
    if "const" in schema:
        options = [schema["const"]]
    titled = schema.get("oneOf")
    if isinstance(titled, list) and titled:
        parts = [mapping(each) for each in cast("list[Any]", titled)]
        if all("const" in each for each in parts):
            options, named = (
                [each["const"] for each in parts],
                [each.get("title", each["const"]) for each in parts],
            )
    if not isinstance(options, list) or not 0 < len(cast("list[Any]", options)) <= MAX_OPTIONS:
        return None
    values = cast("list[Any]", options)
    words = cast("list[Any]", named) if isinstance(named, list) else []
    titles = words if len(words) == len(values) else values
    return tuple(values), tuple(_shown(each)[:MAX_LABEL] for each in titles)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# ── what was posted becomes arguments ────────────────────────────────────────────────────────────────────────────────


class _Unreadable(ValueError):
    """Says what is wrong."""


_LEFT_OUT: Final = object()


def _members(
    fields: Sequence[TryField], posted: Mapping[str, str], problems: dict[str, str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        try:
            value = _read(field, posted, problems)
        except _Unreadable as problem:
            problems[field.name] = str(problem)
            continue
        if value is not _LEFT_OUT:
            found[field.key] = value
    return found


def _read(field: TryField, posted: Mapping[str, str], problems: dict[str, str]) -> Any:
    if field.kind == "group":
        inner = _members(field.fields, posted, problems)
        return inner if inner or field.required else _LEFT_OUT
    # A browser ends each line of a text area with two characters.
    text = posted.get(field.name, "").replace("\r\n", "\n")
    if field.kind in ("text", "long") and text:
        return text
    if not text.strip():
        if not field.required:
            return _LEFT_OUT
        if field.kind == "list":
            return []
        raise _Unreadable("is needed")
    match field.kind:
        case "choice":
            at = text.strip()
            if not at.isascii() or not at.isdigit() or int(at[:6]) >= len(field.options):
                raise _Unreadable("is none of the choices")
            return field.options[int(at[:6])]
        case "list":
            return [_scalar(field.of, line.strip()) for line in text.split("\n") if line.strip()]
        case "number" | "integer" | "boolean":
            return _scalar(field.kind, text.strip())
        case _:
            return json_of(text)


def _scalar(kind: Scalar, text: str) -> Any:
    if kind == "text":
        return text
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        raise _Unreadable("is yes or no: true or false")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Unreadable("is no number")
    if kind == "integer":
        if isinstance(value, float) and not value.is_integer():
            raise _Unreadable("is no whole number")
        return int(value)
    return value


def json_of(text: str) -> Any:
    """Raises `ValueError` in words for whoever typed it."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise _Unreadable(f"is no JSON: {short_reason(error)}") from None
    except RecursionError:
        raise _Unreadable("is nested too deeply") from None
