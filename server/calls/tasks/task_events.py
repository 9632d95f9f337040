"""Events that a task has told so far: the last two hundred, as they are kept and shown."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec
from msgspec import Raw

from server.mcp.call_outlet import LogMessage, Progress

MAX_EVENTS: Final = 200
# An event is a line to look at. What is longer is cut, so that all of them stay cheap to write again and again.
MAX_EVENT_BYTES: Final = 8 * 1024
MAX_BYTES: Final = 256 * 1024
# A process that is killed loses at most four events.
FLUSH_EVERY: Final = 5
MAX_MESSAGE: Final = 1000  # characters of a status message

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Raw]).decode


class Events:
    """The events of one task. `message` is the last thing that was said about how it goes."""

    def __init__(self, kept: bytes | None = None) -> None:
        self._events = deque[bytes](bytes(event) for event in _decode(kept)) if kept else deque[bytes]()
        self._size = sum(map(len, self._events))
        self.message: str | None = None
        self.unsaved = 0

    def add(self, event: Progress | LogMessage, *, at: int) -> None:
        if isinstance(event, Progress):
            shown = {"progress": event.progress, "total": event.total, "message": event.message}
            if event.message is not None:
                self.message = event.message[:MAX_MESSAGE]
            if event.name is None:
                self._append(
                    "progress", {name: value for name, value in shown.items() if value is not None}, at
                )
            else:
                self._append(event.name, event.data, at)
        else:
            shown = {"level": event.level, "logger": event.logger, "data": event.data}
            self._append("log", {name: value for name, value in shown.items() if value is not None}, at)

    def _append(self, kind: str, data: Any, at: int) -> None:
        encoded = _encode({"event": kind, "timestampMs": at, "data": data})
        if len(encoded) > MAX_EVENT_BYTES:
            start = _encode(data)[: MAX_EVENT_BYTES // 8].decode(errors="ignore")
            encoded = _encode({"event": kind, "timestampMs": at, "data": {"cut": start}})
        self._events.append(encoded)
        self._size += len(encoded)
        while len(self._events) > MAX_EVENTS or self._size > MAX_BYTES:
            self._size -= len(self._events.popleft())
        self.unsaved += 1

    def encoded(self) -> bytes:
        return b"[" + b",".join(self._events) + b"]"
