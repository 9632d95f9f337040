"""`Annotated[…]`: what an author adds to a hint, as JSON Schema keywords.

A text is the description. Besides our own `Param`, the notes of msgspec (`Meta`), pydantic (`Field`) and
annotated-types are read, which share their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import Misuse
from .plain import plain

Schema = dict[str, Any]

# RFC 9110 §5.6.2
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WORDS = (
    ("title", "title"),
    ("description", "description"),
    ("ge", "minimum"),
    ("gt", "exclusiveMinimum"),
    ("le", "maximum"),
    ("lt", "exclusiveMaximum"),
    ("multiple_of", "multipleOf"),
    ("pattern", "pattern"),
    ("examples", "examples"),
)
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}  # fmt: skip


class Param:
    """What a parameter or field may be: `Annotated[int, Param(description="how many", ge=1, le=10)]`.

    `header="Region"`: clients of 2026-07-28 repeat the argument in the HTTP header `Mcp-Param-Region`, so that what
    stands in front of the server can see it. For text, whole numbers and booleans only, and never for a secret.
    """

    def __init__(
        self,
        description: str | None = None,
        *,
        title: str | None = None,
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: Sequence[Any] | None = None,
        header: str | None = None,
    ) -> None:
        if header is not None and not _TOKEN.fullmatch(header):
            raise Misuse(f"header={header!r}: the name of a header has letters, digits and dashes")
        self.title = title
        self.description = description
        self.ge = ge
        self.gt = gt
        self.le = le
        self.lt = lt
        self.multiple_of = multiple_of
        self.min_length = min_length
        self.max_length = max_length
        self.pattern = pattern
        self.examples = examples
        self.header = header


def _flat(notes: Iterable[Any]) -> Iterable[Any]:
    for note in notes:
        yield note
        # pydantic's FieldInfo keeps its limits one level lower.
        inner = getattr(note, "metadata", None)
        if isinstance(inner, list):
            yield from inner  # pyright: ignore[reportUnknownVariableType]


def with_notes(schema: Schema, notes: Sequence[Any], where: str) -> Schema:
    """The schema and what `Annotated` says besides."""
    if not notes:
        return schema
    schema = dict(schema)
    for note in _flat(notes):
        if isinstance(note, str):
            schema["description"] = note
            continue
        for word, keyword in _WORDS:
            said = getattr(note, word, None)
            # Methods of the same name, such as `str.title`, are no notes.
            if said is not None and not callable(said):
                schema[keyword] = _value(said)
        for word, length in (("min_length", 0), ("max_length", 1)):
            said = getattr(note, word, None)
            if isinstance(said, int) and schema.get("type") in _LENGTHS:
                schema[_LENGTHS[schema["type"]][length]] = said
        extra = getattr(note, "extra_json_schema", None)
        if isinstance(extra, dict):
            schema.update(extra)  # pyright: ignore[reportUnknownArgumentType]
        header = getattr(note, "header", None)
        if isinstance(note, Param) and header is not None:
            schema = _with_header(schema, header, where)
    return schema


def _value(said: Any) -> Any:
    if hasattr(said, "pattern"):  # a compiled expression
        return said.pattern
    return plain(said)


def _with_header(schema: Schema, header: str, where: str) -> Schema:
    options: list[Schema] | None = schema.get("anyOf")
    if options is not None:
        # A header has no null: what may be left out is left out.
        rest = [option for option in options if option != {"type": "null"}]
        if len(rest) == 1:
            schema = {**rest[0], **{word: value for word, value in schema.items() if word != "anyOf"}}
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise Misuse(f"{where}: only a str, int or bool can be repeated in a header")
    return {**schema, "x-mcp-header": header}
