"""Messages to and from a server, as JSON-RPC: what we say, and what is heard, taken as a stranger's.

Params and results stay raw until whoever knows their method reads them. Not here: which era is spoken (agreement.py), and by
which wire (message_channel.py, streamable_http.py). Spec: basic/index (2026-07-28).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from server.lib.surrogates import decode_mended
from server.mcp.call_failures import BackendError, Unanswered
from server.mcp.call_outlet import LogLevel, LogMessage, Progress

# The largest message that is taken: what our own callers would be sent is bounded by what they can read, and a model reads far less.
MESSAGE_BYTES: Final = 16 * 1024 * 1024
SAID_CHARACTERS: Final = 2000  # of what a server says about a failure
ID_CHARACTERS: Final = 256
PROGRESS_CHARACTERS: Final = 4000

INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
UNSUPPORTED_VERSION: Final = -32022
MISSING_CAPABILITY: Final = -32021
HEADER_MISMATCH: Final = -32020

UNPAID: Final = "wants to be paid for this, and was not"  # for callers
_TOO_LONG: Final = "…"


class ServerRefusal(Exception):
    """The server answered with a JSON-RPC error. The text is its own: cut, printable, and without our credentials. `raw` is the error
    as it came, for whoever only carries it."""

    def __init__(
        self, code: int, said: str, data: Mapping[str, Any] | None = None, *, raw: Raw | None = None
    ) -> None:
        super().__init__(said)
        self.code = code
        self.data = data
        self.raw = raw


# What became of a request that failed, as far as anybody can say.
Fate: TypeAlias = Literal["not made", "unknown", "too large", "answered"]


class ServerFailure(BackendError):
    """The text continues a sentence about the server, for callers; `more` is for its owner alone."""

    fate: Fate = "answered"

    def __init__(self, text: str, *, more: str = "", fate: Fate | None = None) -> None:
        super().__init__(text)
        self.more = more
        if fate is not None:
            self.fate = fate


class ServerGone(ServerFailure, Unanswered):
    """A connection that is gone, or was not there long enough to hear the answer."""

    fate = "unknown"


class ServerAway(ServerGone):
    """A connection that is not there, so that nothing was sent."""

    fate = "not made"


def too_large(most: int) -> ServerFailure:
    return ServerFailure(
        f"answered with more than {most // 1024} KiB, which is not passed on", fate="too large"
    )


def said_too_much(most: int) -> ServerGone:
    return ServerGone(f"said more than {most // 1024} KiB in one message")


class NoMcpServer(ServerFailure):
    """Whatever answers there does not speak MCP, or no version of it that is known here."""


class PaymentAsked(ServerFailure):
    """Over HTTP, with its status for that. `header` has what came; the body may ask in words of its own."""

    def __init__(self, header: Callable[[bytes], str], body: bytes, *, more: str) -> None:
        super().__init__(UNPAID, more=more)
        self._header = header
        self.body = body

    def header(self, name: str) -> str:
        return self._header(name.lower().encode("ascii"))


class Asked(msgspec.Struct, frozen=True):
    """A request of the server's own, in the handshake era."""

    id: int | str
    method: str
    params: Raw


class Told(msgspec.Struct, frozen=True):
    method: str
    params: Raw


class Answered(msgspec.Struct, frozen=True):
    """To a request of ours: one of the two."""

    id: int | str | None
    result: Raw | None
    error: Raw | None


class Garbage(msgspec.Struct, frozen=True):
    """Not a message."""


HeardMessage: TypeAlias = Asked | Told | Answered | Garbage
GARBAGE: Final = Garbage()
EMPTY: Final = Raw(b"{}")
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


# The id of an answer where libraries write it. In valid JSON neither end can stand inside of something else.
_VERSION: Final = rb'\s*"jsonrpc"\s*:\s*"2\.0"\s*'
_ID: Final = rb'\s*"id"\s*:\s*(\d{1,15})\s*'
_ANSWERS_FIRST: Final = re.compile(
    rb'\s*\{(?:%b,)?%b,(?:%b,)?\s*"(?:result|error)"' % (_VERSION, _ID, _VERSION)
).match
_HOLDS_ANSWER: Final = re.compile(rb'\s*\{(?:%b,)?\s*"(?:result|error)"' % _VERSION).match
_ANSWERS_LAST: Final = re.compile(rb".*,%b(?:,%b)?\}\s*" % (_ID, _VERSION), re.DOTALL).fullmatch


class _Message(msgspec.Struct):
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Error(msgspec.Struct):
    code: Any = 0
    message: Any = ""
    data: Any = None


class _Progress(msgspec.Struct, rename="camel"):
    progress_token: Any = None
    progress: float = 0
    total: float | None = None
    message: str | None = None


class _Log(msgspec.Struct):
    level: LogLevel = "info"
    data: Any = None
    logger: str | None = None


class _Request(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: int
    method: str
    params: Mapping[str, Any]


class _Notification(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: Mapping[str, Any]


class _Reply(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: int | str
    result: Any


class _Refusal(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: int | str
    error: Mapping[str, Any]


_decode: Final = msgspec.json.Decoder(_Message).decode
_decode_error: Final = msgspec.json.Decoder(_Error).decode
_decode_progress: Final = msgspec.json.Decoder(_Progress).decode
_decode_log: Final = msgspec.json.Decoder(_Log).decode


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"a message cannot hold {type(value).__name__}")


encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode


def request_message(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    return encode(_Request(number, method, params))


def notification_message(method: str, params: Mapping[str, Any]) -> bytes:
    return encode(_Notification(method, params))


def reply_message(request_id: int | str, result: Mapping[str, Any]) -> bytes:
    return encode(_Reply(request_id, result))


def refusal_message(request_id: int | str, code: int, text: str) -> bytes:
    return encode(_Refusal(request_id, {"code": code, "message": text}))


def read_message(body: bytes) -> HeardMessage:
    """Read a message. Never raises."""
    try:
        message = decode_mended(_decode, body)
    except (ValueError, RecursionError):
        return GARBAGE
    number, method = message.id, message.method
    if isinstance(number, str) and len(number) > ID_CHARACTERS:
        return GARBAGE
    if method is UNSET:
        if message.result is UNSET and message.error is UNSET:
            return GARBAGE
        return Answered(
            None if number is UNSET else number,
            None if message.result is UNSET else message.result,
            None if message.error is UNSET else message.error,
        )
    params = EMPTY if message.params is UNSET else message.params
    if number is UNSET:
        return Told(method, params)
    return GARBAGE if number is None else Asked(number, method, params)


def answered_in(line: bytes) -> int | None:
    """Return which request the message is the answer to, of which only its two ends are there, with a line break between them."""
    head, _, tail = line.partition(b"\n")
    if found := _ANSWERS_FIRST(head):
        return int(found[1])
    found = _ANSWERS_LAST(tail) if _HOLDS_ANSWER(head) else None
    return None if found is None else int(found[1])


def outcome(answered: Answered) -> Raw | ServerRefusal:
    if answered.error is None:
        return answered.result or EMPTY
    return refusal_of(answered.error)


def is_error(error: Raw) -> bool:
    """Return whether this is an error of JSON-RPC."""
    found = members(error)
    return type(found.get("code")) is int and isinstance(found.get("message"), str)


def refusal_of(error: Raw) -> ServerRefusal:
    try:
        read = _decode_error(error)
    except (ValueError, RecursionError):
        return ServerRefusal(INTERNAL_ERROR, "it answered with an error that says nothing")
    code = read.code if isinstance(read.code, int) and not isinstance(read.code, bool) else INTERNAL_ERROR
    given: object = read.data
    data = cast("Mapping[str, Any]", given) if isinstance(given, dict) else None
    return ServerRefusal(code, said(read.message) or "it gave no reason", data, raw=error)


def progress_of(params: Raw) -> tuple[Any, Progress] | None:
    """Return the token that progress is for, and the progress."""
    try:
        read = _decode_progress(params)
    except (ValueError, RecursionError):
        return None
    message = read.message
    if message is not None and len(message) > PROGRESS_CHARACTERS:
        message = message[:PROGRESS_CHARACTERS] + _TOO_LONG
    return read.progress_token, Progress(progress=read.progress, total=read.total, message=message)


def log_of(params: Raw) -> LogMessage | None:
    try:
        read = _decode_log(params)
    except (ValueError, RecursionError):
        return None
    logger = None if read.logger is None else read.logger[:ID_CHARACTERS]
    return LogMessage(level=read.level, data=read.data, logger=logger)


def said(text: object, most: int = SAID_CHARACTERS) -> str:
    """Return a stranger's words, fit to be shown: cut, and on lines that are text."""
    if not isinstance(text, str):
        return ""
    cut = text[:most]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() or c == "\n" else " " for c in cut)
    return cut.strip()


def members(raw: Raw) -> dict[str, Any]:
    """Return an object as it is; an empty one for anything else."""
    try:
        found: Any = decode_mended(msgspec.json.decode, bytes(raw))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
