"""What comes of using something else of the same server: `ctx.call_tool`, `ctx.read_resource`, `ctx.get_prompt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import CannotUse, NotFound, ToolFailure

Json = dict[str, Any]


class Answer:
    """Of a tool. `structured` is None where it gave none; `content` is its blocks as they go over the wire."""

    def __init__(self, wire: Json) -> None:
        self.content: Sequence[Json] = wire.get("content") or ()
        self.structured: Any = wire.get("structuredContent")

    @property
    def text(self) -> str:
        """All that is text in it."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


class Part:
    """Of a resource: `text`, or `data`."""

    def __init__(self, wire: Json) -> None:
        self.uri: str = wire.get("uri", "")
        self.mime_type: str | None = wire.get("mimeType")
        self.text: str | None = wire.get("text")
        self._blob: str | None = wire.get("blob")

    @property
    def data(self) -> bytes:
        if self._blob is None:
            return (self.text or "").encode("utf-8")
        import base64

        return base64.b64decode(self._blob)


def answer_of(wire: Json) -> Answer:
    """Raises `ToolFailure`, with what the tool says of it."""
    answer = Answer(wire)
    if wire.get("isError"):
        raise ToolFailure(answer.text or "the tool failed")
    return answer


def parts_of(wire: Json) -> list[Part]:
    return [Part(part) for part in wire.get("contents") or ()]


def messages_of(wire: Json) -> list[Json]:
    """Each as `{"role": …, "content": …}`, which a prompt of this file may return."""
    return list(wire.get("messages") or ())


def use(what: str, name: str, arguments: Mapping[str, Any]) -> Json:
    """The event that asks for it."""
    return {"event": "use", "what": what, "name": name, "arguments": dict(arguments)}


def refusal_of(message: Json) -> Exception:
    text: str = message.get("reason") or "it cannot be used"
    return NotFound(text) if message.get("missing") else CannotUse(text)
