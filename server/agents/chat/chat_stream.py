"""A chat endpoint's answer that comes piece by piece: as events (`data: {…}`) or as lines of JSON, with the reply's text where a whole answer
has it, or where `/v1/chat/completions` has it. Bytes in, the reply out; no I/O here.
"""

from __future__ import annotations

from typing import Any

from server.agents.chat.chat_completions import (
    ChatCompletion,
    Pieces,
    first_choice,
    member_of,
    read_object,
    text_of,
)

# Of an event, besides its data: nothing that is of use.
_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")


class ChatPieces(Pieces):
    def completion(self) -> ChatCompletion:
        """Once the stream is over. Endpoints need not say that it is: one that broke off is known by its framing."""
        self._line(bytes(self._buffer))
        self._buffer.clear()
        return ChatCompletion(text="".join(self._text).strip())

    def _line(self, line: bytes) -> None:
        data = line.strip()
        if self.ended or not data or data.startswith(_OTHER_FIELDS):
            return
        data = data.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            self.ended = True
        elif data:
            self._event(read_object(data))

    def _event(self, document: dict[str, Any]) -> None:
        said = _piece_in(document)
        self.ended = document.get("done") is True
        # The last one may say all of it again.
        if self.ended and said and said.strip() == "".join(self._text).strip():
            return
        self._add(said)


def _piece_in(document: dict[str, Any]) -> str:
    choice, delta = first_choice(document), member_of(document, "delta")
    candidates: tuple[Any, ...] = (
        member_of(choice, "delta").get("content") if choice else None,
        document.get("delta"),  # a text of its own, or
        delta.get("content"),
        delta.get("text"),
        member_of(document, "message").get("content"),
        document.get("content"),
        document.get("text"),
    )
    return next((text for candidate in candidates if (text := text_of(candidate))), "")
