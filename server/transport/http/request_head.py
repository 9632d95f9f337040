"""One request head: bytes in, `Head` out, or `RequestRefused`. Pure; sockets, deadlines and bodies are elsewhere.

Two readers must agree. A strict grammar of our own looks at the raw bytes (RFC 9112 §2–§5 without its leniencies: no bare LF,
no folding, no space before the colon, no control characters), then llhttp takes them apart. llhttp is given
one head and nothing else, in a fresh parser, so it cannot run on into a body or a pipelined request; where a message ends is
decided here and in server/lib/chunked_body.py alone (RFC 9112 §6.3). Anything that two servers could read differently is refused, never repaired.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from .connection_limits import HttpLimits
from .connection_refusals import RequestRefused

CHUNKED: Final = -1

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
# Possessive throughout: one pass, whatever is sent.
_GRAMMAR: Final = re.compile(
    rb"([A-Z-]{1,32}+) (/[!-\"$-~]*+|\*|https?://[!-\"$-~]++) HTTP/1\.([01])\r\n"
    rb"(?:" + _TOKEN + rb"++:[\t -~\x80-\xff]*+\r\n)*+\r\n"
)
HOST: Final = re.compile(rb"(?:[0-9A-Za-z._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?]*+)(.*+)")
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f]")

# The headers that decide framing and routing: each at most once, each looked at below.
_SINGLE: Final = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect"))
_WATCHED: Final = _SINGLE | {b"connection", b"upgrade", b"http2-settings"}


# A client sends the same head over and over on a kept-alive connection. What was read and judged once need not be again.
HEADS_KEPT: Final = 256
_HEAD_KEPT_BYTES: Final = 4 * 1024


class Heads:
    """Heads by their bytes, for one server. Bounded, and only valid ones are kept; the newest drives out the oldest."""

    def __init__(self, limits: HttpLimits, *, kept: int = HEADS_KEPT) -> None:
        self._limits = limits
        self._kept = kept
        self.known: Final[dict[bytes, Head]] = {}  # whoever looks here first need not `read`

    def read(self, raw: bytes) -> Head:
        """Read a head, or remember it. Raises `RequestRefused`."""
        head = self.known.get(raw)
        if head is None:
            head = read_head(raw, self._limits)
            if len(raw) <= _HEAD_KEPT_BYTES:
                if len(self.known) >= self._kept:
                    del self.known[next(iter(self.known))]
                self.known[raw] = head
        return head


class Head:
    """A request head, valid when `read_head` returned it, and the same for every request that sends these bytes: what it says is
    not changed after that. The `on_` methods are llhttp's callbacks."""

    __slots__ = (
        "_fields", "complete", "doubled", "expects_continue", "handlers", "headers", "keep_alive",
        "length", "method", "path", "query", "raw_path", "special", "version",
    )  # fmt: skip

    method: str
    version: str
    path: str
    raw_path: bytes
    query: bytes
    keep_alive: bool
    expects_continue: bool
    length: int  # of the body in bytes, or CHUNKED

    def __init__(self) -> None:
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        self._fields: list[tuple[bytes, bytes]] = []
        self.complete = False
        self.special: dict[bytes, bytes] = {}  # the watched ones
        self.doubled = False  # one that may stand once stood twice
        # What answers requests with this head, by the kind of connection on which they come; kept here by server_connection.py.
        self.handlers: dict[Hashable, Any] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        value = value.strip(b" \t")
        if name in _WATCHED:
            special = self.special
            if name not in special:
                special[name] = value
            elif name in _SINGLE:
                self.doubled = True
            else:
                special[name] += b"," + value
            if name == b"upgrade" or name == b"http2-settings":
                return  # Never upgraded: answered as if it had not been asked.
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True
        self.headers = tuple(self._fields)


def read_head(raw: bytes, limits: HttpLimits) -> Head:
    """Read `raw`, from the request line to the empty line, both included."""
    if len(raw) > limits.head_bytes:
        refuse_unfinished(raw, limits)
    line = _GRAMMAR.fullmatch(raw)
    if line is None:
        raise RequestRefused(400, "the request head is malformed")
    head = Head()
    try:
        HttpRequestParser(head).feed_data(raw)
    except HttpParserUpgrade:
        pass  # Upgrade or CONNECT: the head was read all the same.
    except HttpParserError:
        raise RequestRefused(400, "the request head is malformed") from None
    if not head.complete:
        raise RequestRefused(400, "the request head is malformed")
    method, target, minor = line.groups()
    if len(target) > limits.target_bytes:
        raise RequestRefused(414, "the request target is too long")
    if len(head.headers) > limits.header_count:
        raise RequestRefused(431, "too many header fields")
    head.method = method.decode("ascii")
    head.version = "1.1" if minor == b"1" else "1.0"
    _read_special(head)
    _read_target(head, target)
    return head


def refuse_unfinished(raw: bytes, limits: HttpLimits) -> None:
    """Look at a head that has no end yet: refuse what no further byte could mend, so that its sender is told at once."""
    if len(raw) > limits.head_bytes:
        if raw.find(b"\r\n", 0, limits.target_bytes + 64) < 0:
            raise RequestRefused(414, "the request target is too long")
        raise RequestRefused(431, "the request head is too large")
    if raw.count(b"\n") != raw.count(b"\r\n"):
        raise RequestRefused(400, "a line ends without CR")
    if not raw[:1].isupper() and not b"\r\n".startswith(raw):
        raise RequestRefused(400, "this is not HTTP/1.1")


def _read_target(head: Head, target: bytes) -> None:
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:
        # RFC 9112 §3.2.2: what a client sends to a proxy. There the target names the host; the two must agree here, so that nobody
        # in between can have gone by the other one.
        authority, rest = absolute.groups()
        if authority.lower() != head.special.get(b"host", b"").lower():
            raise RequestRefused(400, "the request target and the Host header name different hosts")
        target = rest if rest.startswith(b"/") else b"/" + rest
    raw_path, _, head.query = target.partition(b"?")
    head.raw_path = raw_path
    if head.method == "CONNECT" or (raw_path == b"*" and head.method != "OPTIONS"):
        raise RequestRefused(400, "the request target is not a path")
    if b"%" not in raw_path:
        head.path = raw_path.decode("ascii")
        return
    try:
        head.path = unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        raise RequestRefused(400, "the request target is not UTF-8") from None
    if _UNSEEN.search(head.path):
        raise RequestRefused(400, "the request target holds control characters")


def _read_special(head: Head) -> None:
    special = head.special
    if head.doubled:
        raise RequestRefused(400, "a header field that may stand once stands twice")
    modern = head.version == "1.1"
    host = special.get(b"host")
    if (host is None and modern) or (host is not None and HOST.fullmatch(host) is None):
        raise RequestRefused(400, "the Host header is missing or malformed")
    coding = special.get(b"transfer-encoding")
    length = special.get(b"content-length")
    if coding is not None:
        # §6.1: with a Content-Length, in HTTP/1.0, or with any other coding, two servers may see two messages.
        if length is not None or not modern or coding.lower() != b"chunked":
            raise RequestRefused(400, "the body's framing is ambiguous")
        head.length = CHUNKED
    elif length is not None:
        if not length.isdigit() or len(length) > 18:
            raise RequestRefused(400, "the Content-Length is malformed")
        head.length = int(length)
    else:
        head.length = 0
    connection = special.get(b"connection")
    if connection is None:
        head.keep_alive = modern
    else:
        options = [option.strip() for option in connection.lower().split(b",")]
        head.keep_alive = b"close" not in options and (modern or b"keep-alive" in options)
    head.expects_continue = modern and special.get(b"expect", b"").lower() == b"100-continue"
