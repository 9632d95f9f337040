"""What a function returned, in the words of the wire: one function for each kind of call. Raises `TypeError` at what is
no answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from .content import Content, Embedded, Message, Progress, Result, Text, base64_of, block_of
from .errors import NotFound
from .media import media_type_of
from .plain import plain, to_text

Wire = dict[str, Any]

# completion/complete shows no more.
MOST_VALUES = 100


def _is_list(value: Any) -> bool:
    return type(value) in (list, tuple)  # a named tuple is no list


def _is_list_of(value: Any, kinds: Any) -> bool:
    items: list[Any] = value if _is_list(value) else []
    return bool(items) and all(isinstance(item, kinds) for item in items)


# What a tool's structured answer is: none is promised; an object; an object around the value; such a one beside what would be the answer
# without it; whatever the author's own schema says.
Shape = Literal["none", "object", "wrapped", "beside", "any"]


def tool_result(value: Any, shape: Shape = "none") -> Wire:
    """Text and content become blocks. Everything else is structured content, with the same as JSON text beside it for
    clients that read only text."""
    if isinstance(value, Result):
        return _result(value, shape)
    if shape == "beside":
        return {**tool_result(value), "structuredContent": {"result": plain(value)}}
    if isinstance(value, (Content, bytes, bytearray, Message, Progress)):
        return {"content": [block_of(value)]}
    if shape in ("none", "object"):
        if value is None:
            return {"content": []}
        if isinstance(value, str):
            return {"content": [block_of(value)]}
        if isinstance(value, (bool, int, float)):
            return {"content": [block_of(to_text(plain(value)))]}
    # Texts alone can be what an author's own schema describes.
    if _is_list_of(value, Content if shape == "any" else (str, Content)):
        return {"content": [block_of(item) for item in value]}
    data = _around(plain(value), shape)
    return {
        "content": [block_of(data if isinstance(data, str) else to_text(data))],
        "structuredContent": data,
    }


def _around(data: Any, shape: Shape) -> Any:
    # Structured content is an object in every revision but the last.
    if shape in ("wrapped", "beside") or (_is_list(data) and shape != "any"):
        return {"result": data}
    return data


def _result(value: Result, shape: Shape) -> Wire:
    found: Wire = {"content": []}
    if value.structured is not ...:
        found["structuredContent"] = _around(plain(value.structured), shape)
        if value.content is None:
            found["content"] = [block_of(to_text(found["structuredContent"]))]
    if value.content is not None:
        parts: Any = value.content if _is_list(value.content) else [value.content]
        found["content"] = [block_of(part) for part in parts]
    if value.is_error:
        found["isError"] = True
    if value.meta is not None:
        found["_meta"] = plain(dict(value.meta))
    return found


def failure(text: str) -> Wire:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def contents(value: Any, uri: str, mime_type: str | None) -> Wire:
    """Of a resource. A list of texts, bytes and content is several parts of it; other lists are JSON."""
    if value is None:
        raise NotFound
    parts: Sequence[Any] = [value]
    if (
        _is_list(value)
        and value
        and all(isinstance(item, (str, bytes, bytearray, Content)) for item in value)
    ):
        parts = value
    return {"contents": [_part(part, uri, mime_type) for part in parts]}


def _part(value: Any, uri: str, mime_type: str | None) -> Wire:
    if isinstance(value, Embedded):
        return {**value.resource, **({"_meta": dict(value.meta)} if value.meta is not None else {})}
    if isinstance(value, Text):
        meta = {"_meta": dict(value.meta)} if value.meta is not None else {}
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": value.text, **meta}
    if isinstance(value, Content):
        block = value.wire()
        if "data" not in block:
            raise TypeError(f"a resource cannot be a {type(value).__name__}: return text, bytes or Embedded")
        meta = {"_meta": block["_meta"]} if "_meta" in block else {}
        return {"uri": uri, "mimeType": block["mimeType"], "blob": block["data"], **meta}
    if isinstance(value, str):
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": value}
    if isinstance(value, (bytes, bytearray)):
        blob = base64_of(value)
        return {"uri": uri, "mimeType": mime_type or media_type_of(blob) or "application/octet-stream", "blob": blob}  # fmt: skip
    return {"uri": uri, "mimeType": mime_type or "application/json", "text": to_text(plain(value))}


def prompt(value: Any, description: str | None) -> Wire:
    items: Sequence[Any] = value if _is_list(value) else [value]
    messages: list[Wire] = []
    for item in items:
        messages += messages_of(item)
    return {**({"description": description} if description else {}), "messages": messages}


def messages_of(item: Any) -> list[Wire]:
    """One item of a conversation: a message, or what the user says. An object is passed on as it is."""
    if isinstance(item, Message):
        return item.wire()
    if isinstance(item, Mapping) and "role" in item:
        message = cast("Mapping[str, Any]", item)
        said = message.get("content")
        content = block_of(said) if isinstance(said, (str, Content)) else plain(said)
        return [{"role": message["role"], "content": content}]
    return [{"role": "user", "content": block_of(item)}]


def completion(value: Any) -> Wire:
    values = [str(item) for item in value or ()]
    found: Wire = {"values": values[:MOST_VALUES], "total": len(values), "hasMore": len(values) > MOST_VALUES}
    return found


class Collector:
    """What a generator yields, on its way to being the answer.

    Texts are reported as progress and, one after the other, are the answer; so is content, in its place. `Progress` is
    only reported. A `Result`, or what a sync generator returns, is the whole answer instead.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._text: list[str] = []
        self._whole: Any = None
        self.ended = False

    def take(self, value: Any) -> None:
        if isinstance(value, Progress):
            return
        if isinstance(value, Result):
            self.end(value)
        elif isinstance(value, str):
            self._text.append(value)
        elif isinstance(value, Content):
            self._close_text()
            self._parts.append(value)
        else:
            raise TypeError(
                f"a generator yields text, content, Progress or Result, not {type(value).__name__}"
            )

    def end(self, whole: Any) -> None:
        if whole is not None:
            self._whole = whole
            self.ended = True

    def answer(self) -> Any:
        if self.ended:
            return self._whole
        self._close_text()
        return self._parts or None

    def _close_text(self) -> None:
        if self._text:
            self._parts.append("".join(self._text))
            self._text = []
