"""The chunked body of an answer taken apart: bytes in, content out (RFC 9112 §7.1). Pure.

Extensions and trailers are read past, as §7.1.1 and §7.1.2 allow, and bounded together; line ends are CRLF. How long the
content may be is for whoever reads it.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from server.lib.http_client.failures import NotHttp
from server.lib.http_client.response_head import FIELD_LINE

# Extensions and trailers of one answer, which nobody looks at. None is common; a checksum or a signature is some hundred bytes.
UNUSED_BYTES: Final = 64 * 1024

# Old servers pad the size with spaces.
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})([\t ]*+(?:;[^\x00\r\n]*+)?)\r\n")
_SIZE_LINE_SO_FAR: Final = re.compile(rb"(?:[0-9A-Fa-f]{1,16}[\t ]*+(?:;[^\x00\r\n]*+)?\r?)?")


class _Place(Enum):
    SIZE = auto()
    CONTENT = auto()
    CONTENT_END = auto()
    TRAILER = auto()


class ChunkedContent:
    """One body. `feed` until it reports the end; the rest that it returns then was not part of the answer."""

    __slots__ = ("_kept", "_left", "_place", "_spare")

    def __init__(self) -> None:
        self._place = _Place.SIZE
        self._left = 0
        self._kept = b""
        self._spare = UNUSED_BYTES

    def feed(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """→ (content, rest, whether the body has ended). Raises `NotHttp` at the first byte that breaks the grammar."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
        content: list[bytes] = []
        at = 0
        while True:
            if self._place is _Place.SIZE:
                line = _SIZE_LINE.match(data, at)
                if line is None:
                    if len(data) - at > self._spare or _SIZE_LINE_SO_FAR.fullmatch(data, at) is None:
                        raise NotHttp
                    break
                self._spend(line.end(2) - line.start(2))
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
                    raise NotHttp
                if len(end_of_chunk) < 2:
                    break
                at += 2
                self._place = _Place.SIZE
            else:
                end = data.find(b"\r\n", at)
                if end == at:
                    return b"".join(content), data[at + 2 :], True
                if end < 0:
                    if len(data) - at > self._spare or b"\n" in data[at:]:
                        raise NotHttp
                    break
                if FIELD_LINE.fullmatch(data, at, end) is None:
                    raise NotHttp
                self._spend(end + 2 - at)
                at = end + 2
        self._kept = data[at:]
        return b"".join(content), b"", False

    def _spend(self, size: int) -> None:
        self._spare -= size
        if self._spare < 0:
            raise NotHttp
