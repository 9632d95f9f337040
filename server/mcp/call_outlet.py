"""The line from whoever carries out a call to its caller: progress, log messages and questions meanwhile.

No protocol era, no wire and no HTTP is known here. Failures are in call_failures.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

import msgspec

from server.mcp.call_failures import CannotAsk

if TYPE_CHECKING:
    from server.mcp.call_questions import Question

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)


def is_wanted(level: LogLevel, least: LogLevel | None) -> bool:
    """Return whether a message of this level is for a caller who wants those from `least` on; None wants none."""
    return least is not None and LEVELS.index(level) >= LEVELS.index(least)


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """A piece of news about how far a call is."""

    progress: float
    total: float | None = None
    message: str | None = None
    joins: bool = False  # the message goes on where the one before ended: a piece of what the call answers
    # How its author tells it, for callers who know that: an event of this name with this content.
    name: str | None = None
    data: Any = None


class LogMessage(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    """A log message of whoever carries out a call."""

    level: LogLevel
    data: Any
    logger: str | None = None


class LaterNews(msgspec.Struct, frozen=True):
    """The way to whoever hears of a caller's session after a request."""

    tell: Callable[[LogMessage], Awaitable[None]]
    over: Callable[[], Awaitable[object]]  # returns when nobody hears it any more
    listens: bool = False  # somebody hears it now


class Outlet(Protocol):
    """The line to the caller while a call runs. Every method may wait (back-pressure) and may be cancelled."""

    async def emit(self, event: Progress | LogMessage) -> None: ...

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        """Return the raw answers, checked. Keys are the back-end's, and name the same question whenever the call runs again.
        Raises `CannotAsk` where the client or the wire has no way to answer all of them, `NotAnswered`, and `Paused`."""
        ...

    async def checkpoint(self, data: Any) -> None:
        """Keep `data`: should this call have to run again, its request has them as `resumed`. They are kept on return."""
        ...

    async def become_task(self) -> bool:
        """Return whether the rest of the call is a task, so that nobody waits at the other end of a line."""
        ...

    async def close_stream(self) -> None:
        """Let go of the caller's connection, where the caller can come back for the answer; else do nothing."""
        ...


class NullOutlet:
    """An outlet behind which nobody hears or answers anything. `why` tells whoever asks."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise CannotAsk(self._why)

    async def emit(self, event: Progress | LogMessage) -> None:
        """Ignore what nobody hears."""

    async def checkpoint(self, data: Any) -> None:
        """Keep nothing: the call is not run again."""

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None:
        """Do nothing, as there is none."""


class PassingOutlet:
    """Another outlet, with the same line behind it: what a subclass does not do otherwise is passed on."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        return await self._outlet.ask(questions)

    async def emit(self, event: Progress | LogMessage) -> None:
        await self._outlet.emit(event)

    async def checkpoint(self, data: Any) -> None:
        await self._outlet.checkpoint(data)

    async def become_task(self) -> bool:
        return await self._outlet.become_task()

    async def close_stream(self) -> None:
        await self._outlet.close_stream()
