"""What goes out: the head of a response and the frame around its body. Values in, bytes out; no sockets."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterable
from enum import Enum, auto
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from .connection_refusals import PHRASES
from .handler import Pairs
from .request_head import Head

_STATUS_LINES: Final = MappingProxyType(
    {status: b"HTTP/1.1 %d %s\r\n" % (status, PHRASES.get(status, b"")) for status in range(200, 600)}
)
# The connection's own business: an application's values are replaced by what is true on the wire.
_OURS: Final = frozenset(
    (b"connection", b"content-length", b"date", b"keep-alive", b"transfer-encoding", b"upgrade")
)

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BadResponse(Exception):
    """The application broke the rules of HTTP or ASGI. A bug of ours, so it is logged and shown as 500."""


class BodyFraming(Enum):
    NONE = auto()  # HEAD, 204, 304
    COUNTED = auto()
    CHUNKED = auto()
    UNTIL_CLOSE = auto()  # HTTP/1.0 without a length


class HttpResponse:
    """One response being written. `head` builds its first bytes, `frame` the bytes of each piece of body."""

    __slots__ = ("_framing", "_left", "keep_alive")

    def __init__(self) -> None:
        self._framing = BodyFraming.NONE
        self._left = 0
        self.keep_alive = False

    @property
    def ends_by_close(self) -> bool:
        """Nothing but the end of the connection tells the reader that it has it all."""
        return self._framing is BodyFraming.UNTIL_CLOSE

    def head(
        self, status: int, headers: Iterable[tuple[bytes, bytes]], request: Head, *, keep_alive: bool
    ) -> tuple[bytes, bool]:
        """→ (the head, whether the body is sure to follow at once, so that both can go in one write)."""
        line = _STATUS_LINES.get(status)
        if line is None:
            raise BadResponse(f"status {status} cannot be sent")
        parts = [line]
        length: bytes | None = None
        for name, value in headers:
            name = name.lower()
            if name in _OURS:
                if name == b"content-length":
                    length = value
                elif name == b"connection" and value.lower() == b"close":
                    keep_alive = False
                continue
            parts.append(b"%s: %s\r\n" % (name, value))
        lines = len(parts)
        bodiless = request.method == "HEAD" or status == 204 or status == 304
        if length is not None:
            if not length.isdigit():
                raise BadResponse("the content-length is not a number")
            if status != 204:
                parts.append(b"content-length: %s\r\n" % length)
                lines += 1
        if bodiless:
            self._framing = BodyFraming.NONE
        elif length is not None:
            self._framing = BodyFraming.COUNTED
            self._left = int(length)
        elif request.version == "1.1":
            self._framing = BodyFraming.CHUNKED
            parts.append(b"transfer-encoding: chunked\r\n")
            lines += 1
        else:
            self._framing = BodyFraming.UNTIL_CLOSE
            keep_alive = False
        if not keep_alive:
            parts.append(b"connection: close\r\n")
            lines += 1
        elif request.version == "1.0":
            parts.append(b"connection: keep-alive\r\n")
            lines += 1
        parts.append(date_line())
        head = b"".join(parts)
        # A line break inside a name or value would let whoever chose that value write headers, or a second response.
        if head.count(b"\n") != lines + 1 or head.count(b"\r") != lines + 1:
            raise BadResponse("a response header holds a line break")
        self.keep_alive = keep_alive
        return head + b"\r\n", bodiless or length is not None

    def frame(self, body: bytes, *, more: bool) -> bytes:
        """The bytes on the wire for one piece of body. Raises `BadResponse` if it breaks the announced length."""
        framing = self._framing
        if framing is BodyFraming.COUNTED:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise BadResponse("the body is not as long as its content-length")
            return body
        if framing is BodyFraming.CHUNKED:
            if not body:
                return b"" if more else b"0\r\n\r\n"
            if more:
                return b"%x\r\n%b\r\n" % (len(body), body)
            return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        return b"" if framing is BodyFraming.NONE else body


# Headers that do not depend on the request come again and again; whatever else is kept pushes them out only briefly.
@lru_cache(maxsize=256)
def _block(headers: Pairs) -> tuple[bytes, bool]:
    """→ (the lines, whether one of them closes the connection)."""
    closes = False
    parts: list[bytes] = []
    for name, value in headers:
        name = name.lower()
        if name in _OURS:
            closes = closes or (name == b"connection" and value.lower() == b"close")
        else:
            parts.append(b"%s: %s\r\n" % (name, value))
    block = b"".join(parts)
    if block.count(b"\n") != len(parts) or block.count(b"\r") != len(parts):
        raise BadResponse("a response header holds a line break")
    return block, closes


def whole(
    status: int, headers: Pairs, body: bytes, request: Head, *, keep_alive: bool, date: bytes
) -> tuple[bytes, bytes, bool]:
    """A response whose body is known: → (its head, what of the body is sent, whether the connection may go on)."""
    line = _STATUS_LINES.get(status)
    if line is None:
        raise BadResponse(f"status {status} cannot be sent")
    block, closes = _block(headers)
    if closes:
        keep_alive = False
    length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
    if not keep_alive:
        connection = b"connection: close\r\n"
    else:
        connection = b"" if request.version == "1.1" else b"connection: keep-alive\r\n"
    if request.method == "HEAD" or status == 204 or status == 304:
        body = b""
    return b"%b%b%b%b%b\r\n" % (line, block, length, connection, date), body, keep_alive


def refusal(status: int, reason: str) -> bytes:
    """A whole response in one piece, after which the connection closes. `reason` is one of our own sentences."""
    phrase = PHRASES.get(status, b"")
    body = b"%d %b: %b\n" % (status, phrase, reason.encode())
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
        b"connection: close\r\n%b\r\n%b" % (status, phrase, len(body), date_line(), body)
    )


class _Date:
    """The Date line of the current second: formatting it costs more than the rest of a head."""

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = b"date: %b\r\n" % email.utils.formatdate(second, usegmt=True).encode()
        return self._line


date_line: Final = _Date().line
