"""One tool call, from who asks to what is written down: the page that every call goes through, on every wire.

    principal → visible → scope → headers → arguments → back-end under a deadline → its answer's schema → record → shape

Not here: how the call arrived (http), who the caller is (auth), what the tools are (backends), the bytes (mcp/results).
Spec: server/tools "Error Handling" (2026-07-28): a tool's own failure and wrong arguments are results that the model can
read; only what could not be invoked is a protocol error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final

import msgspec
import trio
from msgspec import UNSET
from structlog.typing import FilteringBoundLogger

from auth.model import Principal
from server.backends.base import (
    BackendError,
    CannotAsk,
    LogLevel,
    Message,
    Outlet,
    Paused,
    Progress,
    ProtocolFailure,
    Replaced,
    ToolCall,
    ToolCrashed,
)
from server.backends.base import (
    Final as BackendAnswer,
)
from server.backends.catalog import Catalog, Entry
from server.backends.outlets import Unhurried
from server.mcp.errors import (
    AgentError,
    AgentReplaced,
    BackendFailed,
    InsufficientScope,
    InternalError,
    InvalidArguments,
    McpError,
    MissingCapability,
    UnknownTool,
)
from server.mcp.inbound import Headers
from server.mcp.messages import TextContent, Tool
from server.mcp.questions import Question
from server.mcp.results import ToolResult, as_text
from server.mcp.schema import Problem
from server.standing import Policy, Standing, challenged, everyone, standing

# Where a result lists which arguments were wrong, for programs; its text says the same for models.
INVALID_ARGUMENTS: Final = "io.ostiary/invalidArguments"

Measure = Callable[[str, str, float], None]  # tool, outcome, seconds


class Asked(msgspec.Struct, frozen=True):
    """What one caller asks of one tool."""

    principal: Principal
    tool: str
    arguments: Mapping[str, Any]
    call_id: str
    headers: Headers | None = None  # None: this wire or this era does not repeat arguments in headers
    outlet: Outlet | None = None  # None: the caller hears nothing before the answer
    can: frozenset[str] = frozenset()  # what the caller can be asked for
    resumed: Any = None  # where an earlier run of this call got to
    wants_progress: bool = False
    log_level: LogLevel | None = None
    unhurried: bool = False  # a task: nobody waits on a line, and its own time bounds it


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

    @property
    def has_tasks(self) -> bool:
        """Whether any tool's call can be a task."""
        return self._catalog.has_tasks

    def quick(self, tool: str) -> bool:
        """Whether the call returns without waiting, so that nobody needs to watch its caller. True of no tool at all:
        refusing is quick."""
        entry = self._catalog.get(tool)
        return entry is None or entry.terms.quick

    def entry(self, principal: Principal, tool: str) -> Entry | None:
        """The tool, if this caller may know of it."""
        entry = self._catalog.get(tool)
        return None if entry is None or self._standing(principal, entry) is Standing.HIDDEN else entry

    def opens(self, principal: Principal, tool: str) -> bool:
        """Whether what came of a call may be shown to this caller. True of a tool that is there no more: nothing bounds it."""
        entry = self._catalog.get(tool)
        return entry is None or self._standing(principal, entry) is Standing.ALLOWED

    def admit(self, asked: Asked) -> ToolResult | None:
        """What `call` would say before it asks the back-end: for what becomes a task, since a refusal is better given at
        once. Raises as `call` does; a result is one that tells of wrong arguments."""
        entry = self._catalog.get(asked.tool)
        stands = Standing.HIDDEN if entry is None else self._standing(asked.principal, entry)
        if entry is None or stands is Standing.HIDDEN:
            raise UnknownTool(asked.tool)
        if stands is Standing.GRANTABLE:
            raise InsufficientScope(challenged(asked.principal, entry.terms))
        return self._refusal(entry, asked)

    async def call(self, asked: Asked) -> ToolResult:
        """Raises `UnknownTool`, `InsufficientScope`, `HeaderMismatch`, `MissingCapability`, `BackendFailed`, `AgentError`,
        `InternalError`, and `Paused` if its outlet does. Cancelling it stops the back-end."""
        entry = self._catalog.get(asked.tool)
        stands = Standing.HIDDEN if entry is None else self._standing(asked.principal, entry)
        if entry is None or stands is Standing.HIDDEN:
            raise UnknownTool(asked.tool)
        started = self._clock()
        outcome = "cancelled"  # what it was, unless something below gets to say otherwise
        try:
            if stands is Standing.GRANTABLE:
                raise InsufficientScope(challenged(asked.principal, entry.terms))
            result, outcome = await self._answer(entry, asked)
            return result
        except Paused:
            outcome = "asked"
            raise
        except ToolCrashed as error:
            outcome = "error"
            return ToolResult(content=(TextContent(text=str(error)),), is_error=True)
        except BackendError as error:
            outcome = "refused" if isinstance(error, CannotAsk) else "failed"
            raise told(error) from error
        except McpError:
            outcome = "refused"
            raise
        except Exception as error:
            outcome = "crashed"
            self._log.exception("tool.crashed", tool=asked.tool, request=asked.call_id)
            raise InternalError(asked.call_id) from error
        finally:
            self._record(asked, outcome, self._clock() - started)

    def _refusal(self, entry: Entry, asked: Asked) -> ToolResult | None:
        schema = entry.schema
        if schema.mirrored and asked.headers is not None:
            schema.check_headers(asked.arguments, asked.headers)
        problems = schema.problems(asked.arguments)
        if problems and self._refuses_invalid:
            raise InvalidArguments(_told(problems), problems)
        return _invalid(problems) if problems else None

    async def _answer(self, entry: Entry, asked: Asked) -> tuple[ToolResult, str]:
        refusal = self._refusal(entry, asked)
        if refusal is not None:
            return refusal, "invalid"
        call = ToolCall(
            tool=asked.tool,
            arguments=asked.arguments,
            subject=asked.principal.subject,
            call_id=asked.call_id,
            can=asked.can,
            resumed=asked.resumed,
            wants_progress=asked.wants_progress,
            log_level=asked.log_level,
            unhurried=asked.unhurried,
        )
        schema = entry.schema
        outlet = asked.outlet or MUTE
        answer: BackendAnswer | None = None
        if entry.terms.quick or asked.unhurried:
            answer = await entry.backend.call(call, outlet)
        else:
            with trio.move_on_after(entry.terms.deadline_seconds) as deadline:
                answer = await entry.backend.call(call, Unhurried(outlet, deadline))
        if answer is None:
            return too_slow(asked.tool, entry.terms.deadline_seconds), "timeout"
        if answer.is_error:
            failed = ToolResult(
                content=answer.content, structured=answer.structured, is_error=True, meta=answer.meta
            )
            return failed, "error"
        if not schema.conforms(answer.structured):
            raise TypeError(f"the answer of {asked.tool} is not what its outputSchema promises")
        content = answer.content
        if not content and answer.structured is not UNSET:
            content = (TextContent(text=as_text(answer.structured)),)
        return ToolResult(content=content, structured=answer.structured, meta=answer.meta), "ok"

    def _standing(self, principal: Principal, entry: Entry) -> Standing:
        return standing(principal, entry.terms) if self._policy(principal, entry) else Standing.HIDDEN

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

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        raise CannotAsk("the caller cannot be asked anything during this call")

    async def checkpoint(self, data: Any) -> None:
        """The call is not run again."""

    async def become_task(self) -> bool:
        return False

    async def close_stream(self) -> None:
        """There is none."""


MUTE: Final = _Mute()


def told(error: BackendError) -> McpError:
    """What a caller is told of a back-end's failure."""
    if isinstance(error, CannotAsk) and error.required:
        return MissingCapability(error.required, str(error))
    if isinstance(error, Replaced):
        return AgentReplaced(str(error))
    if isinstance(error, ProtocolFailure):
        return AgentError(error.code, str(error), error.data)
    return BackendFailed(str(error))


def _told(problems: Sequence[Problem]) -> str:
    lines = [f"{problem.field or 'arguments'}: {problem.reason}" for problem in problems]
    return "Invalid arguments.\n" + "\n".join(lines)


def _invalid(problems: Sequence[Problem]) -> ToolResult:
    return ToolResult(
        content=(TextContent(text=_told(problems)),),
        is_error=True,
        meta={INVALID_ARGUMENTS: problems},
    )


def too_slow(tool: str, seconds: float) -> ToolResult:
    text = f"{tool} did not answer within {seconds:g} seconds, and was stopped."
    return ToolResult(content=(TextContent(text=text),), is_error=True)
