"""A chunked request body taken apart: bytes in, content out (RFC 9112 §7.1). Pure. Counted bodies need no code of their own.

Stricter than the RFC: line ends are CRLF. Chunk extensions (§7.1.1) and trailers are checked, bounded and dropped.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from .connection_refusals import RequestRefused
from .request_head import HEADER_LINE

# Some clients pad the size to 8 digits; none needs more. Nothing that two parsers read differently is an extension: no line end, and
# no space that leads to none.
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*+"'
_EXTENSION: Final = (
    rb"[ \t]*+;[ \t]*+" + _TOKEN + rb"(?:[ \t]*+=[ \t]*+(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?+"
)
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,8}+)((?:" + _EXTENSION + rb")*+)")
_SIZE_SO_FAR: Final = re.compile(
    rb"[0-9A-Fa-f]{0,8}+(?:(?<=[0-9A-Fa-f])[ \t]*+(?:;[\t -~\x80-\xff]*+)?+)?+\r?"
)
_SIZE_LINE_BYTES: Final = 10
# Of all chunks of one body together: nothing that is known sends any.
EXTENSION_BYTES: Final = 4 * 1024


class _State(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()


class ChunkedBody:
    """One body. `feed` until it reports the end; the rest it returns then belongs to the next request."""

    __slots__ = ("_extension_bytes", "_kept", "_left", "_state", "_trailer_bytes")

    def __init__(self, trailer_bytes: int) -> None:
        self._state = _State.SIZE
        self._left = 0
        self._kept = b""
        self._trailer_bytes = trailer_bytes
        self._extension_bytes = EXTENSION_BYTES

    def feed(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """→ (content, rest, whether the body has ended). Raises `RequestRefused` at the first byte that breaks the grammar."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
        content: list[bytes] = []
        at = 0
        while True:
            if self._state is _State.SIZE:
                bound = at + _SIZE_LINE_BYTES + self._extension_bytes
                end = data.find(b"\r\n", at, bound)
                if end < 0:
                    if len(data) >= bound or _SIZE_SO_FAR.fullmatch(data, at) is None:
                        raise RequestRefused(400, "a chunk size is malformed")
                    break
                size = _SIZE_LINE.fullmatch(data, at, end)
                if size is None:
                    raise RequestRefused(400, "a chunk size is malformed")
                self._extension_bytes -= len(size[2])
                self._left = int(size[1], 16)
                self._state = _State.DATA if self._left else _State.TRAILER
                at = end + 2
            elif self._state is _State.DATA:
                piece = data[at : at + self._left]
                if not piece:
                    break
                content.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = _State.DATA_END
            elif self._state is _State.DATA_END:
                end_of_chunk = data[at : at + 2]
                if not b"\r\n".startswith(end_of_chunk):
                    raise RequestRefused(400, "a chunk is longer than its size")
                if len(end_of_chunk) < 2:
                    break
                at += 2
                self._state = _State.SIZE
            else:
                end = self._trailer_line(data, at)
                if end is None:
                    break
                if end == at:
                    return b"".join(content), data[at + 2 :], True
                at = end + 2
        self._kept = data[at:]
        return b"".join(content), b"", False

    def _trailer_line(self, data: bytes, at: int) -> int | None:
        """Where the line at `at` ends, or None if its end has not come yet."""
        end = data.find(b"\r\n", at)
        bound = end if end >= 0 else len(data)
        if bound - at > self._trailer_bytes:
            raise RequestRefused(431, "the trailers are too large")
        if end < 0:
            if b"\n" in data[at:]:
                raise RequestRefused(400, "a line ends without CR")
            return None
        if end > at:
            if HEADER_LINE.fullmatch(data, at, end) is None:
                raise RequestRefused(400, "a trailer is malformed")
            self._trailer_bytes -= end + 2 - at
        return end
