"""One tool call, from who asks to what is written down: the page that every call goes through, on every wire.

    principal → visible → scope → headers → arguments → back-end under a deadline → its answer's schema → record → shape

Not here: how the call arrived (http), who the caller is (auth), what the tools are (backends), the bytes (mcp/results).
Spec: server/tools "Error Handling" (2026-07-28): a tool's own failure and wrong arguments are results that the model can
read; only what could not be invoked is a protocol error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from time import perf_counter
from typing import Any, Final, Protocol

import msgspec
import trio
from msgspec import UNSET
from structlog.typing import FilteringBoundLogger

from auth import scopes
from auth.model import Principal, PrincipalKind
from server.backends.base import (
    Answer,
    Ask,
    BackendError,
    CannotAsk,
    Message,
    Outlet,
    Progress,
    ToolCall,
)
from server.backends.base import (
    Final as BackendAnswer,
)
from server.backends.catalog import Catalog, Entry
from server.mcp.errors import (
    BackendFailed,
    InsufficientScope,
    InternalError,
    InvalidArguments,
    McpError,
    UnknownTool,
)
from server.mcp.inbound import Headers
from server.mcp.messages import TextContent, Tool
from server.mcp.results import ToolResult, as_text
from server.mcp.schema import Problem

# Where a result lists which arguments were wrong, for programs; its text says the same for models.
INVALID_ARGUMENTS: Final = "io.ostiary/invalidArguments"
# A person cannot see more than this, and each event costs a write to the socket.
PROGRESS_INTERVAL_SECONDS: Final = 0.01

Policy = Callable[[Principal, Entry], bool]
Measure = Callable[[str, str, float], None]  # tool, outcome, seconds


class Report(Protocol):
    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class Asked(msgspec.Struct, frozen=True):
    """What one caller asks of one tool."""

    principal: Principal
    tool: str
    arguments: Mapping[str, Any]
    call_id: str
    headers: Headers | None = None  # None: this wire or this era does not repeat arguments in headers
    report: Report | None = None  # None: the caller does not want to hear of progress


class Standing(Enum):
    """How a caller stands to a tool."""

    ALLOWED = auto()
    GRANTABLE = auto()  # lacks a scope that the user could grant: listed, and refused with a challenge
    HIDDEN = auto()


def standing(principal: Principal, entry: Entry) -> Standing:
    needed = entry.terms.scopes
    if not needed or principal.kind is PrincipalKind.LOCAL or not scopes.missing(principal.scopes, needed):
        return Standing.ALLOWED
    # Nobody can grant anything to a caller without a login.
    if principal.kind in (PrincipalKind.ANONYMOUS, PrincipalKind.PAYER):
        return Standing.HIDDEN
    return Standing.GRANTABLE


def everyone(_principal: Principal, _entry: Entry) -> bool:
    """The policy that hides nothing."""
    return True


class Calls:
    """`measure` is told of every call to a known tool; `policy` says who may know of a tool at all. `refuses_invalid`: wrong
    arguments are a protocol error, as they were before 2025-11-25, instead of a result to learn from."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        log: FilteringBoundLogger,
        measure: Measure,
        policy: Policy = everyone,
        refuses_invalid: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._catalog = catalog
        self._log = log
        self._measure = measure
        self._policy = policy
        self._refuses_invalid = refuses_invalid
        self._clock = clock

    def tools(self, principal: Principal) -> Sequence[Tool]:
        return [
            entry.tool
            for entry in self._catalog.entries()
            if self._standing(principal, entry) is not Standing.HIDDEN
        ]

    def quick(self, tool: str) -> bool:
        """Whether the call returns without waiting, so that nobody needs to watch its caller. True of no tool at all:
        refusing is quick."""
        entry = self._catalog.get(tool)
        return entry is None or entry.terms.quick

    async def call(self, asked: Asked) -> ToolResult:
        """Raises `UnknownTool`, `InsufficientScope`, `HeaderMismatch`, `BackendFailed`, `InternalError`. Cancelling it
        stops the back-end."""
        entry = self._catalog.get(asked.tool)
        stands = Standing.HIDDEN if entry is None else self._standing(asked.principal, entry)
        if entry is None or stands is Standing.HIDDEN:
            raise UnknownTool(asked.tool)
        started = self._clock()
        outcome = "cancelled"  # what it was, unless something below gets to say otherwise
        try:
            if stands is Standing.GRANTABLE:
                raise InsufficientScope(entry.terms.scopes)
            result, outcome = await self._answer(entry, asked)
            return result
        except BackendError as error:
            outcome = "failed"
            raise BackendFailed(str(error)) from error
        except McpError:
            outcome = "refused"
            raise
        except Exception as error:
            outcome = "crashed"
            self._log.exception("tool.crashed", tool=asked.tool, request=asked.call_id)
            raise InternalError(asked.call_id) from error
        finally:
            self._record(asked, outcome, self._clock() - started)

    async def _answer(self, entry: Entry, asked: Asked) -> tuple[ToolResult, str]:
        schema = entry.schema
        if schema.mirrored and asked.headers is not None:
            schema.check_headers(asked.arguments, asked.headers)
        if problems := schema.problems(asked.arguments):
            if self._refuses_invalid:
                raise InvalidArguments(_told(problems), problems)
            return _invalid(problems), "invalid"
        call = ToolCall(
            tool=asked.tool,
            arguments=asked.arguments,
            subject=asked.principal.subject,
            call_id=asked.call_id,
        )
        answer: BackendAnswer | None = None
        if entry.terms.quick:
            answer = await entry.backend.call(call, MUTE)
        else:
            outlet: Outlet = MUTE if asked.report is None else _Line(asked.report)
            with trio.move_on_after(entry.terms.deadline_seconds):
                answer = await entry.backend.call(call, outlet)
        if answer is None:
            return _too_slow(asked.tool, entry.terms.deadline_seconds), "timeout"
        if answer.is_error:
            return ToolResult(content=answer.content, structured=answer.structured, is_error=True), "error"
        if not schema.conforms(answer.structured):
            raise TypeError(f"the answer of {asked.tool} is not what its outputSchema promises")
        content = answer.content
        if not content and answer.structured is not UNSET:
            content = (TextContent(text=as_text(answer.structured)),)
        return ToolResult(content=content, structured=answer.structured), "ok"

    def _standing(self, principal: Principal, entry: Entry) -> Standing:
        return standing(principal, entry) if self._policy(principal, entry) else Standing.HIDDEN

    def _record(self, asked: Asked, outcome: str, seconds: float) -> None:
        self._measure(asked.tool, outcome, seconds)
        self._log.info(
            "tool.called",
            tool=asked.tool,
            outcome=outcome,
            ms=round(seconds * 1000, 3),
            principal=asked.principal.kind.value,
            client=asked.principal.client_id,
            grant=asked.principal.grant_id,
            request=asked.call_id,
        )


class _Mute:
    """The line of a call whose caller hears nothing before the answer."""

    async def emit(self, event: Progress | Message) -> None:
        """Nobody listens."""

    async def ask(self, question: Ask) -> Answer:
        raise CannotAsk("the caller cannot be asked anything during this call")


MUTE: Final = _Mute()


class _Line(_Mute):
    """Passes progress on as the protocol wants it: strictly rising, and no more often than somebody can look."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last = float("-inf")
        self._not_before = float("-inf")

    async def emit(self, event: Progress | Message) -> None:
        # Log messages go nowhere: the server does not declare that it sends any.
        if not isinstance(event, Progress) or not event.progress > self._last:
            return
        now = trio.current_time()
        finished = event.total is not None and event.progress >= event.total
        if now < self._not_before and not finished:
            return
        self._last = event.progress
        self._not_before = now + PROGRESS_INTERVAL_SECONDS
        await self._report(event.progress, event.total, event.message)


def _told(problems: Sequence[Problem]) -> str:
    lines = [f"{problem.field or 'arguments'}: {problem.reason}" for problem in problems]
    return "Invalid arguments.\n" + "\n".join(lines)


def _invalid(problems: Sequence[Problem]) -> ToolResult:
    return ToolResult(
        content=(TextContent(text=_told(problems)),),
        is_error=True,
        meta={INVALID_ARGUMENTS: problems},
    )


def _too_slow(tool: str, seconds: float) -> ToolResult:
    text = f"{tool} did not answer within {seconds:g} seconds, and was stopped."
    return ToolResult(content=(TextContent(text=text),), is_error=True)
