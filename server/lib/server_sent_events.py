"""Server-sent events, the reading half (WHATWG HTML §9.2.6): bytes in, the data of each message event out.

The last event id and the retry time, with which a broken stream is resumed, are kept; who resumes, and when, is not here.
"""

from __future__ import annotations

# A tool's whole result can be one event.
MAX_EVENT = 16 * 1024 * 1024
# An id goes back in a header; a longer one would not fit there.
MAX_ID = 4096


class EventTooLarge(Exception):
    """An event beyond the limit. The text continues a sentence about the sender."""


class EventDecoder:
    """`last_id` is that of the events returned so far, None before the first; `retry_millis` the server's last wish."""

    def __init__(self, *, limit: int = MAX_EVENT) -> None:
        self.last_id: str | None = None
        self.retry_millis: int | None = None
        self.endpoint: bytes | None = None  # where messages go, in the transport of 2024-11-05
        self.limit = limit
        self._id: str | None = None  # of the event that is being read
        self._rest = b""  # an unfinished line
        self._skip_newline = False  # the last chunk ended in CR: an LF right after it belongs to it
        self._first = True
        self._data: list[bytes] = []
        self._size = 0
        self._event = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events completed by this chunk. Raises `EventTooLarge` when one grows past the limit."""
        if not chunk:
            return []
        if self._skip_newline:
            chunk = chunk.removeprefix(b"\n")
            self._skip_newline = False
        self._skip_newline = chunk.endswith(b"\r")
        if not (b"\n" in chunk or b"\r" in chunk):
            self._rest += chunk
            if len(self._rest) + self._size > self.limit:
                raise self._too_large()
            return []
        *lines, self._rest = (self._rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if self._first and lines:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._first = False
        found: list[bytes] = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                found.append(event)
        return found

    def _line(self, line: bytes) -> bytes | None:
        if not line:
            data, event = self._data, self._event
            self._data, self._size, self._event = [], 0, b""
            self.last_id = self._id  # also by an event without data: that is what a priming event is
            if event == b"endpoint":
                self.endpoint = b"\n".join(data)
            return b"\n".join(data) if data and event in (b"", b"message") else None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self.limit:
                raise self._too_large()
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id" and len(value) <= MAX_ID and b"\0" not in value:
            self._id = value.decode("utf-8", "replace") or None
        elif name == b"retry" and value.isdigit() and len(value) <= 9:
            self.retry_millis = int(value)
        return None

    def _too_large(self) -> EventTooLarge:
        return EventTooLarge(f"sent an event of more than {self.limit // (1024 * 1024)} MiB")
