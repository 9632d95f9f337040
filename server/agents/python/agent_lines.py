"""The lines that the server and the process of a Python agent exchange: every message as a struct.

One JSON object a line, in UTF-8, at most 8 MiB. The other end is the package in `server/agents/python/shim`, which needs nothing but the
standard library and therefore has no part of this. Pure: bytes come in, events come out. Their meaning for a call is in
running_call.py, that for the agent in agent_process.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw

from server.agents.base.backend import AgentRequest, AskedBy, UseKind
from server.lib.line_peer import BrokenLine
from server.mcp.call_outlet import LogLevel
from server.mcp.call_questions import Question

PROTOCOL: Final = 1
# A result may hold images. What is larger than this no model reads and no client shows.
LINE_BYTES: Final = 8 * 1024 * 1024


class BrokenEvent(BrokenLine):
    """An event of this call that is not as it should be, and may be its author's doing; `last` if it was to be the call's last."""

    def __init__(self, text: str, call: int, *, last: bool) -> None:
        super().__init__(text)
        self.call = call
        self.last = last


# ── what the agent's process says ────────────────────────────────────────────────────────────────────────────────────


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Ready(_Event, frozen=True, kw_only=True, tag="ready"):
    """The first line of a process that works."""

    protocol: int
    python: str
    catalog: Raw
    files: Sequence[str] = ()  # whose change is a reason to start anew


class Broken(_Event, frozen=True, kw_only=True, tag="broken"):
    """The first and last line of one that cannot."""

    error: str
    traceback: str = ""
    files: Sequence[str] = ()


class CatalogChanged(_Event, frozen=True, kw_only=True, tag="catalog"):
    catalog: Raw
    files: Sequence[str] = ()


class Updated(_Event, frozen=True, kw_only=True, tag="updated"):
    uri: str


class Pong(_Event, frozen=True, kw_only=True, tag="pong"):
    """To a `Ping`: what runs there leaves room for more. `stuck` plain functions run on although their calls were cancelled,
    the first of them for `stuck_seconds`."""

    stuck: int = 0
    stuck_seconds: float = 0.0


class _OfCall(_Event, frozen=True, kw_only=True):
    id: int


class Progressed(_OfCall, frozen=True, kw_only=True, tag="progress"):
    progress: float
    total: float | None = None
    message: str | None = None
    joins: bool = False  # the message goes on where the one before ended


class ToolNotice(_OfCall, frozen=True, kw_only=True, tag="message"):
    level: LogLevel
    data: Any
    logger: str | None = None


class ToolQuestion(_OfCall, frozen=True, kw_only=True, tag="ask"):
    ask: int
    questions: Mapping[str, Question]


class Checkpointed(_OfCall, frozen=True, kw_only=True, tag="checkpoint"):
    ask: int
    data: Any


class UsesAnother(_OfCall, frozen=True, kw_only=True, tag="use"):
    """A wish for something that this server has besides, in its caller's name: a tool or a prompt by its name, a resource by its address."""

    ask: int
    what: UseKind
    name: str
    arguments: Mapping[str, Any] = {}


class BecomesTask(_OfCall, frozen=True, kw_only=True, tag="become_task"):
    ask: int


class ClosesStream(_OfCall, frozen=True, kw_only=True, tag="close_stream"):
    pass


class Finished(_OfCall, frozen=True, kw_only=True, tag="final"):
    result: Raw  # its shape depends on what was called


class CallFailed(_OfCall, frozen=True, kw_only=True, tag="error"):
    kind: Literal["failed", "refused", "protocol", "not_found", "bad_arguments", "cancelled"]
    message: str = ""
    code: int = -32603
    data: Any = None


First: TypeAlias = Ready | Broken
CallEvent: TypeAlias = (
    Progressed
    | ToolNotice
    | ToolQuestion
    | UsesAnother
    | Checkpointed
    | BecomesTask
    | ClosesStream
    | Finished
    | CallFailed
)
Event: TypeAlias = CatalogChanged | Updated | Pong | CallEvent


class _Loose(msgspec.Struct, frozen=True):
    """The part of a bad event that tells whose it is."""

    event: str
    id: int


_decode_first: Final = msgspec.json.Decoder(First).decode
_decode_event: Final = msgspec.json.Decoder(Event).decode
_decode_loose: Final = msgspec.json.Decoder(_Loose).decode


def read_first(line: bytes) -> First:
    """Read the first line. Raises `BrokenLine`."""
    try:
        return _decode_first(line)
    except (ValueError, RecursionError) as error:  # msgspec's own errors, and what is not UTF-8
        raise BrokenLine(f"its first line says neither that it is ready nor why not: {error}") from error


def read_event(line: bytes) -> Event:
    """Read an event. Raises `BrokenLine`, and `BrokenEvent` where no more than one call is concerned."""
    try:
        return _decode_event(line)
    except (ValueError, RecursionError) as error:
        text = f"a line is not an event: {error}"
        try:
            loose = _decode_loose(line)
        except (ValueError, RecursionError):
            raise BrokenLine(text) from error
        raise BrokenEvent(text, loose.id, last=loose.event in ("final", "error")) from error


# ── what it is told ──────────────────────────────────────────────────────────────────────────────────────────────────


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf a call runs."""

    subject: str
    call_id: str
    can: Sequence[str] = ()
    resumed: Any = None
    progress: bool = False
    level: LogLevel | None = None


class CuriousContext(CallContext, frozen=True, kw_only=True):
    """The context of functions that ask who calls."""

    caller: AskedBy
    headers: Mapping[str, str]


class _Do(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    id: int


class _DoCall(_Do, frozen=True, kw_only=True, tag="call"):
    context: CallContext


class CallTool(_DoCall, frozen=True, kw_only=True, tag="call"):
    name: str
    arguments: Mapping[str, Any]
    kind: Literal["tool"] = "tool"


class ReadResource(_DoCall, frozen=True, kw_only=True, tag="call"):
    uri: str
    template: str | None
    arguments: Mapping[str, str]
    kind: Literal["read"] = "read"


class GetPrompt(_DoCall, frozen=True, kw_only=True, tag="call"):
    name: str
    arguments: Mapping[str, str]
    kind: Literal["prompt"] = "prompt"


class Complete(_DoCall, frozen=True, kw_only=True, tag="call"):
    ref: Literal["prompt", "resource"]
    name: str
    argument: str
    value: str
    known: Mapping[str, str]
    kind: Literal["complete"] = "complete"


class AskPrice(_DoCall, frozen=True, kw_only=True, tag="call"):
    name: str  # of the function
    tool: str
    arguments: Mapping[str, Any]
    kind: Literal["price"] = "price"


class Cancel(_Do, frozen=True, kw_only=True, tag="cancel"):
    pass


class Ping(msgspec.Struct, frozen=True, tag_field="do", tag="ping"):
    """The question whether anybody is there."""


class _DoReply(_Do, frozen=True, kw_only=True):
    ask: int


class Answers(_DoReply, frozen=True, kw_only=True, tag="answer"):
    answers: Mapping[str, Mapping[str, Any]]


class QuestionRefused(_DoReply, frozen=True, kw_only=True, tag="refuse"):
    """The lack of an answer: nobody can be asked, or (`asked`) who was asked gave none that can be used."""

    reason: str
    asked: bool = False


class Used(_DoReply, frozen=True, kw_only=True, tag="used"):
    result: Mapping[str, Any]


class NotUsed(_DoReply, frozen=True, kw_only=True, tag="not_used"):
    """The caller cannot have it, or it failed; `missing`: there is no such thing."""

    reason: str
    missing: bool = False


class Became(_DoReply, frozen=True, kw_only=True, tag="became"):
    task: bool


class Done(_DoReply, frozen=True, kw_only=True, tag="done"):
    """A checkpoint is kept."""


DoCall: TypeAlias = CallTool | ReadResource | GetPrompt | Complete | AskPrice
Do: TypeAlias = DoCall | Cancel | Ping | Answers | QuestionRefused | Used | NotUsed | Became | Done


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"a line cannot hold {type(value).__name__}")


encode_line: Final = msgspec.json.Encoder(enc_hook=_plain).encode


def write(message: Do) -> bytes:
    """Write a line. Raises `BrokenLine` for what does not go into one."""
    line = encode_line(message)
    if len(line) > LINE_BYTES:
        raise BrokenLine(f"it would take a line of more than {LINE_BYTES} bytes")
    return line + b"\n"


def context_of(asking: AgentRequest) -> CallContext:
    return CallContext(
        subject=asking.subject,
        call_id=asking.call_id,
        can=sorted(asking.can),
        resumed=asking.resumed,
        progress=asking.wants_progress,
        level=asking.log_level,
    )


def curious_context_of(asking: AgentRequest, headers: Sequence[str]) -> CallContext:
    """Return the context with what a function may know of its caller, and these of the headers, as far as they came."""
    origin = asking.origin
    if origin is None:
        return context_of(asking)
    came = ((name, origin.header(name.encode())) for name in headers)
    return CuriousContext(
        **msgspec.structs.asdict(context_of(asking)),
        caller=origin.asked_by(),
        headers={name: value for name, value in came if value is not None},
    )
