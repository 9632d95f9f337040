"""What a call can ask of its caller's client, and what comes back: a form, a page, a completion of its model, its roots.

A form is flat: MCP lets it have text, numbers, booleans and choices, so a type that is asked for has only such fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Generic, Literal, TypeVar, Union, cast, overload

from . import foreign
from .answers import messages_of
from .content import Content, Message
from .convert import convert
from .errors import Misuse, ToolFailure, Unfit
from .hints import is_record
from .plain import plain
from .schema import Schemas

Wire = dict[str, Any]
T = TypeVar("T")
A = TypeVar("A", covariant=True)
Action = Literal["accept", "decline", "cancel"]
Messages = Union[
    str, Content, Message, Mapping[str, Any], Sequence[Union[str, Content, Message, Mapping[str, Any]]]
]

# client/elicitation, "Requested Schema"
_COMMON = frozenset({"type", "title", "description", "default"})
_ALLOWED: dict[str, frozenset[str]] = {
    "string": _COMMON | {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "number": _COMMON | {"minimum", "maximum"},
    "integer": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"minItems", "maxItems", "items"},
}
_FORMATS = ("email", "uri", "date", "date-time")
_VALUE = "value"  # the only field of a form that asks for a single value


@dataclass(frozen=True)
class Elicited(Generic[T]):
    """`content` is there if the person accepted: of the type that was asked for. None for a page that was opened."""

    action: Action
    content: T | None = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


@dataclass(frozen=True)
class Sampled:
    text: str  # all text of the answer
    role: str
    content: list[dict[str, Any]]  # its blocks, as they came
    model: str
    stop_reason: str | None


@dataclass(frozen=True)
class Root:
    uri: str
    name: str | None = None


class Question(Generic[A]):
    """`read` makes the answer of what the client sent."""

    def __init__(self, method: str, params: Wire, read: Callable[[Mapping[str, Any]], A]) -> None:
        self.method = method
        self.params = params
        self.read = read

    def wire(self) -> Wire:
        return {"method": self.method, "params": self.params}


@overload
def elicitation(message: str, schema: type[T]) -> Question[Elicited[T]]: ...
@overload
def elicitation(message: str, schema: Any) -> Question[Elicited[Any]]: ...
def elicitation(message: str, schema: Any) -> Question[Elicited[Any]]:
    """A form for the person. `schema` is a type with flat fields, the type of a single value, or a JSON Schema."""
    requested, kind = _form(schema)

    def read(answer: Mapping[str, Any]) -> Elicited[Any]:
        action: Any = answer.get("action")
        if action != "accept":
            return Elicited(action)
        content: Any = answer.get("content") or {}
        try:
            if kind == "schema":
                return Elicited(action, content)
            if kind == "value":
                return Elicited(action, convert(content.get(_VALUE), schema))
            # What the client adds of its own is allowed by the form, and no field of the type.
            asked = {name: value for name, value in content.items() if name in requested["properties"]}
            return Elicited(action, convert(asked, schema))
        except Unfit as error:
            raise ToolFailure(f"the answer does not fit: {error}") from error

    return Question("elicitation/create", {"message": message, "requestedSchema": requested}, read)


def elicitation_url(message: str, url: str) -> Question[Elicited[None]]:
    """A page for the person to open. Its address must not hold secrets, and must not by itself let anybody in."""
    params = {"mode": "url", "message": message, "url": url}
    return Question("elicitation/create", params, lambda answer: Elicited(answer.get("action") or "cancel"))


def sampling(messages: Messages, *, max_tokens: int = 1000, **params: Any) -> Question[Sampled]:
    """A completion of the client's own model. `params` are those of `sampling/createMessage`, as in `system_prompt=`."""
    items: Sequence[Any] = messages if isinstance(messages, (list, tuple)) else [messages]
    conversation = [message for item in items for message in messages_of(item)]
    rest = {_camel(name): plain(value) for name, value in params.items() if value is not None}
    wire = {"messages": conversation, "maxTokens": max_tokens, **rest}
    return Question("sampling/createMessage", wire, _sampled)


def roots() -> Question[list[Root]]:
    """The folders that the client works in."""
    return Question(
        "roots/list",
        {},
        lambda answer: [Root(root["uri"], root.get("name")) for root in answer.get("roots", [])],
    )


def _sampled(answer: Mapping[str, Any]) -> Sampled:
    said: Any = answer.get("content")
    blocks = cast("list[dict[str, Any]]", said if isinstance(said, list) else [said or {}])
    return Sampled(
        text="".join(block["text"] for block in blocks if block.get("type") == "text"),
        role=answer.get("role", "assistant"),
        content=blocks,
        model=answer.get("model", ""),
        stop_reason=answer.get("stopReason"),
    )


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _form(schema: Any) -> tuple[Wire, Literal["schema", "fields", "value"]]:
    if isinstance(schema, Mapping):
        return plain(dict(cast("Mapping[str, Any]", schema))), "schema"
    schemas = Schemas()
    if is_record(schema) or foreign.is_foreign(schema):
        found = _resolved(schemas, schemas.of(schema, "the form"))
        fields = {name: _flat(name, _resolved(schemas, field)) for name, field in found["properties"].items()}
        required = [name for name in found.get("required", []) if not _is_optional(found["properties"][name])]
        return _object(fields, required), "fields"
    found = schemas.of(schema, "the form")
    return _object({_VALUE: _flat(_VALUE, found)}, [] if _is_optional(found) else [_VALUE]), "value"


def _object(fields: Wire, required: list[str]) -> Wire:
    found: Wire = {"type": "object", "properties": fields}
    return {**found, "required": required} if required else found


def _resolved(schemas: Schemas, schema: Wire) -> Wire:
    reference: str = schema.get("$ref", "")
    if not reference:
        return schema
    around = {name: value for name, value in schema.items() if name != "$ref"}
    return {**schemas.defs[reference.rpartition("/")[2]], **around}


def _is_optional(schema: Wire) -> bool:
    return {"type": "null"} in schema.get("anyOf", [])


def _flat(name: str, schema: Wire) -> Wire:
    """As a form can have it. What may be null is left out of the form's required fields instead."""
    if _is_optional(schema):
        rest = [option for option in schema["anyOf"] if option != {"type": "null"}]
        if len(rest) == 1:
            around = {word: value for word, value in schema.items() if word != "anyOf"}
            schema = {**rest[0], **around}
            if schema.get("default", ...) is None:
                del schema["default"]
    schema = {word: value for word, value in schema.items() if word not in ("uniqueItems", "x-mcp-header")}
    kind = schema.get("type")
    if kind not in _ALLOWED or (kind == "array" and "enum" not in schema.get("items", {})):
        raise Misuse(
            f"a form asks for text, numbers, booleans and choices: the field {name!r} is none of these"
        )
    if "enum" in schema and kind != "string":
        raise Misuse(f"the choices of a form are texts: the field {name!r} has others")
    if schema.get("format") not in (None, *_FORMATS):
        del schema["format"]
    unknown = sorted(set(schema) - _ALLOWED[kind])
    if unknown:
        raise Misuse(f"a form cannot express {', '.join(unknown)}: the field {name!r}")
    return schema
