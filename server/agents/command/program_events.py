"""The lines of a program that speaks while it works: what it says, as events, and what it is told.

One JSON object a line, in UTF-8, each with the name of its `event`. Names that are not known here mean nothing, so a program may say more than
is understood; a line that is no such object is for the log. The events of wasmagent's agents, whose content is in `data`, are taken
for the ones that they resemble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from server.agents.python.agent_lines import encode_line
from server.lib.line_peer import BrokenLine
from server.lib.shortened import short_reason
from server.mcp.call_outlet import LogLevel

MESSAGE_CHARACTERS: Final = 4000  # of progress, and of a failure
ID: Final = Meta(min_length=1, max_length=64)


class SaidProgress(msgspec.Struct, frozen=True, kw_only=True):
    progress: float | None = None  # None: a step further than before
    total: float | None = None
    message: str | None = None
    joins: bool = False  # the message goes on where the one before ended
    # Of an event of others: what it is there.
    name: str | None = None
    data: Any = None


class SaidMessage(msgspec.Struct, frozen=True, kw_only=True):
    data: Any
    level: LogLevel = "info"
    logger: str | None = None


class SaidAsk(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, ID]
    prompt: str
    schema: dict[str, Any] | None = None  # None: a text


class SaidCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    data: Any
    id: Annotated[str, ID] | None = None  # to be told by when it is kept


class SaidBecomeTask(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, ID] | None = None


class SaidFinal(msgspec.Struct, frozen=True, kw_only=True):
    result: Raw = Raw(b"null")


class SaidError(msgspec.Struct, frozen=True, kw_only=True):
    message: str = ""


Said: TypeAlias = (
    SaidProgress | SaidMessage | SaidAsk | SaidCheckpoint | SaidBecomeTask | SaidFinal | SaidError
)


class _Named(msgspec.Struct, frozen=True):
    event: str
    data: Raw | UnsetType = UNSET


# ── of wasmagent: https://github.com/WasmAgent/wasmagent-js, core/src/types/events.ts ──


class _Delta(msgspec.Struct, frozen=True):
    delta: str


class _Plan(msgspec.Struct, frozen=True):
    plan: str


class _Tool(msgspec.Struct, frozen=True, rename="camel"):
    tool_name: str


class _Human(msgspec.Struct, frozen=True, rename="camel"):
    prompt_id: str
    prompt: str


class _Answer(msgspec.Struct, frozen=True):
    answer: Raw


class _Error(msgspec.Struct, frozen=True):
    error: str


class _Reason(msgspec.Struct, frozen=True):
    reason: str = "a guardrail stopped it"


_THEIRS: Final[Mapping[str, tuple[type, Callable[[Any], Said]]]] = MappingProxyType(
    {
        "thinking_delta": (_Delta, lambda data: SaidProgress(message=data.delta, joins=True)),
        "planning": (_Plan, lambda data: SaidProgress(message=data.plan)),
        "tool_call": (_Tool, lambda data: SaidProgress(message=data.tool_name)),
        "await_human_input": (_Human, lambda data: SaidAsk(id=data.prompt_id, prompt=data.prompt)),
        "final_answer": (_Answer, lambda data: SaidFinal(result=data.answer)),
        "error": (_Error, lambda data: SaidError(message=data.error)),
        "guardrail_tripwire": (_Reason, lambda data: SaidError(message=data.reason)),
    }
)
_OURS: Final[Mapping[str, type[Said]]] = MappingProxyType(
    {
        "progress": SaidProgress,
        "message": SaidMessage,
        "ask": SaidAsk,
        "checkpoint": SaidCheckpoint,
        "become_task": SaidBecomeTask,
        "final": SaidFinal,
        "error": SaidError,
    }
)

_decode_named: Final = msgspec.json.Decoder(_Named).decode


class NoEvent(Exception):
    """A line that is none, such as something that was printed."""


def read_said(line: bytes) -> Said | None:
    """Read an event; None for one that is not known here. Raises `NoEvent`, and `BrokenLine` for a known one that is not as
    it should be."""
    try:
        named = _decode_named(line)
    except (ValueError, RecursionError):
        raise NoEvent from None
    theirs = _THEIRS.get(named.event)
    try:
        if theirs is not None and named.data is not UNSET:
            shape, understood = theirs
            said = understood(msgspec.json.decode(named.data, type=shape))
            if isinstance(said, SaidProgress):
                return msgspec.structs.replace(said, name=named.event, data=msgspec.json.decode(named.data))
            return said
        ours = _OURS.get(named.event)
        return None if ours is None else msgspec.json.decode(line, type=ours)
    except (ValueError, RecursionError) as error:
        # Which key, never what was there.
        raise BrokenLine(
            f"the event {named.event[:40]} is not as it should be: {short_reason(error)}"
        ) from error


# ── what it is told ──────────────────────────────────────────────────────────────────────────────────────────────────


class TellCall(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="call", omit_defaults=True):
    """The first line."""

    tool: str
    arguments: Mapping[str, Any]
    call_id: str
    subject: str
    can: tuple[str, ...] = ()
    progress: bool = False
    level: LogLevel | None = None
    resumed: Any = None  # the last checkpoint of an earlier run of this call
    answers: Mapping[str, Any] = {}  # what was answered to an earlier run of it


class TellAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="answer", omit_defaults=True):
    id: str
    action: str
    content: Mapping[str, Any] | None = None
    response: str | None = None  # of a question for a text


class TellRefused(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="refuse"):
    """The lack of an answer: nobody can be asked, or (`asked`) who was asked gave none that can be used."""

    id: str
    reason: str
    asked: bool


class TellKept(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="kept"):
    id: str


class TellBecame(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="became"):
    id: str
    task: bool


Tell: TypeAlias = TellCall | TellAnswer | TellRefused | TellKept | TellBecame


def write_told(told: Tell) -> bytes:
    return encode_line(told) + b"\n"
