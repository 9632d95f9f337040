"""Chunked bodies taken apart: bytes in, content out (RFC 9112 §7.1). Pure.

Extensions (§7.1.1) and trailers (§7.1.2) are read past, and bounded; line ends are CRLF. Requests are read by stricter rules than
answers: two servers must not read one differently.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

import msgspec

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*+"'
_EXTENSION: Final = (
    rb"[ \t]*+;[ \t]*+" + _TOKEN + rb"(?:[ \t]*+=[ \t]*+(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?+"
)


# In all chunks of one body together; none that is known has any. An unfinished line is looked at again with each piece.
EXTENSION_BYTES: Final = 4 * 1024


class ChunkRules(msgspec.Struct, frozen=True, kw_only=True):
    """The grammar of one kind of chunked body, and how much of it may be no content."""

    size_line: re.Pattern[bytes]  # (size)(all that follows it)
    size_line_so_far: re.Pattern[bytes]  # one whose end has not come yet
    size_line_bytes: int  # without extensions
    trailer_line: re.Pattern[bytes]


# Some clients pad the size to 8 digits; none needs more, and none that is known sends extensions. Nothing that two parsers read
# differently is an extension: no line end, and no space that leads to none.
OF_REQUESTS: Final = ChunkRules(
    size_line=re.compile(rb"([0-9A-Fa-f]{1,8}+)((?:" + _EXTENSION + rb")*+)\r\n"),
    size_line_so_far=re.compile(
        rb"[0-9A-Fa-f]{0,8}+(?:(?<=[0-9A-Fa-f])[ \t]*+(?:;[\t -~\x80-\xff]*+)?+)?+\r?"
    ),
    size_line_bytes=10,
    trailer_line=re.compile(_TOKEN + rb":[\t -~\x80-\xff]*+"),
)
# Old servers pad the size with spaces. A checksum or a signature has some hundred bytes.
OF_ANSWERS: Final = ChunkRules(
    size_line=re.compile(rb"([0-9A-Fa-f]{1,16})([\t ]*+(?:;[^\x00\r\n]*+)?)\r\n"),
    size_line_so_far=re.compile(rb"(?:[0-9A-Fa-f]{1,16}[\t ]*+(?:;[^\x00\r\n]*+)?\r?)?"),
    size_line_bytes=18,
    trailer_line=re.compile(_TOKEN + rb":[^\x00\r\n]*+"),
)


class MalformedChunks(Exception):
    """A body that breaks the grammar. The text says where, and repeats nothing of it."""


class TooManyTrailers(MalformedChunks):
    """Trailers that are longer than they may be."""


class _Place(Enum):
    SIZE = auto()
    CONTENT = auto()
    CONTENT_END = auto()
    TRAILER = auto()


class ChunkedBody:
    """One body: `feed` it until it reports the end; the rest that it returns then was not part of it."""

    __slots__ = ("_extension_bytes", "_kept", "_left", "_place", "_rules", "_trailer_bytes")

    def __init__(self, rules: ChunkRules, trailer_bytes: int) -> None:
        self._rules = rules
        self._place = _Place.SIZE
        self._left = 0
        self._kept = b""
        self._trailer_bytes = trailer_bytes
        self._extension_bytes = EXTENSION_BYTES

    def feed(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """Return (content, rest, whether the body has ended). Raises `MalformedChunks` at the first byte that breaks the grammar."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
        content: list[bytes] = []
        at = 0
        while True:
            if self._place is _Place.SIZE:
                line = self._rules.size_line.match(data, at)
                if line is None:
                    if (
                        len(data) - at >= self._rules.size_line_bytes + self._extension_bytes
                        or self._rules.size_line_so_far.fullmatch(data, at) is None
                    ):
                        raise MalformedChunks("a chunk size is malformed")
                    break
                self._extension_bytes -= len(line[2])
                if self._extension_bytes < 0:
                    raise MalformedChunks("a chunk size is malformed")
                self._left = int(line[1], 16)
                self._place = _Place.CONTENT if self._left else _Place.TRAILER
                at = line.end()
            elif self._place is _Place.CONTENT:
                piece = data[at : at + self._left]
                if not piece:
                    break
                content.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._place = _Place.CONTENT_END
            elif self._place is _Place.CONTENT_END:
                end_of_chunk = data[at : at + 2]
                if not b"\r\n".startswith(end_of_chunk):
                    raise MalformedChunks("a chunk is longer than its size")
                if len(end_of_chunk) < 2:
                    break
                at += 2
                self._place = _Place.SIZE
            else:
                end = data.find(b"\r\n", at)
                if (len(data) if end < 0 else end) - at > self._trailer_bytes:
                    raise TooManyTrailers("the trailers are too large")
                if end == at:
                    return b"".join(content), data[at + 2 :], True
                if end < 0:
                    if b"\n" in data[at:]:
                        raise MalformedChunks("a line ends without CR")
                    break
                if self._rules.trailer_line.fullmatch(data, at, end) is None:
                    raise MalformedChunks("a trailer is malformed")
                self._trailer_bytes -= end + 2 - at
                at = end + 2
        self._kept = data[at:]
        return b"".join(content), b"", False
