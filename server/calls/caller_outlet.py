"""A running call's line to its caller: what back-ends know as their `Outlet`, for every era and wire.

Progress goes out at its pace (progress_updates.py), log messages from the level that was asked for, questions by whichever way the era
has. A task's line is calls/tasks/task_outlet.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from server.calls.progress_updates import PacedProgress
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_outlet import LogLevel, LogMessage, Progress, is_wanted
from server.mcp.call_questions import BadQuestion, Question, check_question, missing
from server.mcp.messages import ProgressToken
from server.mcp.result_encoding import encode_log, encode_progress
from server.mcp.versions import Revision

# How long a line may stay silent before a sign of life: below the idle limits of the proxies that people use (most: 60 s).
KEEP_ALIVE_SECONDS: Final = 25.0

Answers: TypeAlias = Mapping[str, Mapping[str, Any]]
Ask: TypeAlias = Callable[[Mapping[str, Question]], Awaitable[Answers]]


class Line(Protocol):
    """The wire of a request while it runs."""

    def send(self, message: bytes, /) -> Awaitable[None]:
        """Send one message on this request's own stream, before its answer. Drop it where the caller takes no stream."""
        ...

    def ping(self) -> Awaitable[None]:
        """Send a sign of life."""
        ...

    def release(self) -> Awaitable[None]:
        """Let go of the connection, where the caller can come back for the answer; else nothing."""
        ...


class _Silent:
    """The line of somebody who hears nothing but the answer."""

    async def send(self, message: bytes) -> None:
        """Drop it: nobody listens."""

    async def ping(self) -> None:
        """Do nothing: nobody waits long enough to wonder."""

    async def release(self) -> None:
        """Do nothing: there is no stream."""


SILENT: Final[Line] = _Silent()


class CallerLine:
    """`token` None: the caller wants no progress. `level` says, whenever it is asked, from which level on the caller wants
    log messages; None for none. `repeats` is as for `PacedProgress`."""

    def __init__(
        self,
        line: Line,
        revision: Revision,
        *,
        can: frozenset[str],
        ask: Ask | None,
        token: ProgressToken | None,
        level: Callable[[], LogLevel | None],
        repeats: Callable[[], bool],
    ) -> None:
        self._line = line
        self._revision = revision
        self._can = can
        self._ask = ask
        self._token = token
        self._level = level
        self._repeats = repeats
        self.progress: Final = None if token is None else PacedProgress(self._tell_progress, repeats)
        self.saved: Any = None  # the last checkpoint

    async def emit(self, event: Progress | LogMessage) -> None:
        if isinstance(event, LogMessage):
            if is_wanted(event.level, self._level()):
                await self._line.send(encode_log(event.level, event.data, event.logger))
        elif self.progress is not None:
            await self.progress.emit(event)

    async def ask(self, questions: Mapping[str, Question]) -> Answers:
        try:
            for question in questions.values():
                check_question(question)
            lacking = missing(questions, self._can)
            if lacking:
                raise CannotAsk("the caller's client does not offer what this needs to ask", lacking)
            if self._ask is None:
                raise CannotAsk("the caller cannot be asked anything during this call")
            return await self._paced(self._ask, questions)
        except BadQuestion as error:
            raise BackendError(f"the agent asks what cannot be asked: {error}") from error

    async def _paced(self, ask: Ask, questions: Mapping[str, Question]) -> Answers:
        if self.progress is None:
            return await ask(questions)
        if not self._repeats():
            await self.progress.flush()
            return await ask(questions)
        answers = await ask(questions)
        self.progress.has_gone_on()
        return answers

    async def _tell_progress(self, event: Progress) -> None:
        assert self._token is not None
        await self._line.send(
            encode_progress(
                self._token,
                self._revision,
                progress=event.progress,
                total=event.total,
                message=event.message,
            )
        )

    async def checkpoint(self, data: Any) -> None:
        self.saved = data

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None:
        await self._line.release()
