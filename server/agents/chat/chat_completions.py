"""The answer of `/v1/chat/completions`, whole or as a stream of pieces: bytes in, a `ChatCompletion` out. No I/O here.

The shape is OpenAI's; servers that copy it leave things out and add others, so only what is used is looked at.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from server.lib.surrogates import decode_mended

# One event of a stream is a few hundred bytes; a line this long is no event.
LINE_BYTES = 1024 * 1024
REPLY_CHARACTERS = 4 * 1024 * 1024


class UpstreamSaid(Exception):
    """An error that the endpoint reports in its answer. The text is its own, not yet fit to be shown."""


class BadCompletion(Exception):
    """An answer that is not of this format. The text continues a sentence about the endpoint."""


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    text: str  # trimmed; empty where the model said nothing
    finish_reason: str | None = None


def whole(body: bytes) -> ChatCompletion:
    """Read a whole answer. Raises `UpstreamSaid` and `BadCompletion`."""
    document = read_object(body)
    choice = first_choice(document)
    if choice is None:
        raise BadCompletion("answered without any choices")
    message = member_of(choice, "message")
    text = (text_of(message.get("content")) or text_of(message.get("refusal"))).strip()
    return ChatCompletion(text=text, finish_reason=_reason(choice))


class Pieces:
    """A stream of events (data: {…}, at the end data: [DONE]), fed as it arrives."""

    def __init__(self) -> None:
        self.characters = 0
        self.ended = False
        self._buffer = bytearray()
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._finish_reason: str | None = None

    def feed(self, chunk: bytes) -> None:
        """Take what has arrived. Raises `UpstreamSaid` and `BadCompletion`."""
        self._buffer += chunk
        if b"\n" in chunk:
            *lines, rest = self._buffer.split(b"\n")
            self._buffer = rest
            for line in lines:
                self._line(bytes(line))
        if len(self._buffer) > LINE_BYTES:
            raise BadCompletion("sent an event that is too long")

    def completion(self) -> ChatCompletion:
        """Return what was said, once the stream is over. Raises `BadCompletion` for one that broke off."""
        self._line(bytes(self._buffer))
        self._buffer.clear()
        if not self.ended and self._finish_reason is None:
            raise BadCompletion("broke off in the middle of its answer")
        text = "".join(self._text).strip() or "".join(self._refusal).strip()
        return ChatCompletion(text=text, finish_reason=self._finish_reason)

    def _line(self, line: bytes) -> None:
        """Take one line, each of which is an event here; names, ids and comments are of no use."""
        if self.ended or not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.ended = True
        elif data:
            self._event(read_object(data))

    def _event(self, document: dict[str, Any]) -> None:
        choice = first_choice(document)
        if choice is None:
            return  # usage and the like
        delta = member_of(choice, "delta")
        said, refused = text_of(delta.get("content")), text_of(delta.get("refusal"))
        self._refusal.append(refused)
        self.characters += len(refused)
        self._add(said)
        self._finish_reason = _reason(choice) or self._finish_reason

    def _add(self, said: str) -> None:
        self._text.append(said)
        self.characters += len(said)
        if self.characters > REPLY_CHARACTERS:
            raise BadCompletion(f"answered with more than {REPLY_CHARACTERS} characters")


def failure_text(body: bytes) -> str:
    """Return the message in the body of an error, in any of the forms that are about; else the body itself."""
    try:
        document: Any = decode_mended(msgspec.json.decode, body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        fields = cast("dict[str, Any]", document)
        for candidate in (
            member_of(fields, "error").get("message"),
            fields.get("error"),
            fields.get("message"),
            fields.get("detail"),
        ):
            if isinstance(candidate, str) and candidate.strip():
                return candidate
    return body.decode("utf-8", "replace")


def json_object(body: bytes) -> dict[str, Any]:
    """Read an object. Raises `BadCompletion`."""
    try:
        document: Any = decode_mended(msgspec.json.decode, body)
    except (ValueError, RecursionError) as error:  # msgspec's own errors, and a body that is not UTF-8
        raise BadCompletion("answered with something that is not JSON") from error
    if not isinstance(document, dict):
        raise BadCompletion("answered with JSON that is not an object")
    return document  # pyright: ignore[reportUnknownVariableType]  # JSON


def read_object(body: bytes) -> dict[str, Any]:
    """Read an object that is no error. Raises `UpstreamSaid` and `BadCompletion`."""
    document = json_object(body)
    if document.get("error"):  # null is how some say that there is none
        raise UpstreamSaid(failure_text(body))
    return document


def first_choice(document: dict[str, Any]) -> dict[str, Any] | None:
    choices: Any = document.get("choices")
    for choice in cast("list[Any]", choices) if isinstance(choices, list) else ():
        if isinstance(choice, dict) and not cast("dict[str, Any]", choice).get("index"):
            return cast("dict[str, Any]", choice)
    return None


def member_of(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value: Any = fields.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def text_of(content: Any) -> str:
    """Return a text, or the texts of a list of parts; other parts are left out."""
    if isinstance(content, str):
        return content
    parts: list[Any] = cast("list[Any]", content) if isinstance(content, list) else []
    fields = [cast("dict[str, Any]", part) for part in parts if isinstance(part, dict)]
    texts = (part.get("text") for part in fields if part.get("type", "text") in ("text", "output_text"))
    return "".join(text for text in texts if isinstance(text, str))


def _reason(choice: dict[str, Any]) -> str | None:
    reason: Any = choice.get("finish_reason")
    return reason[:40] if isinstance(reason, str) and reason else None
