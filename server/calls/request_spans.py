"""Spans of what is done for a caller, where requests are traced: one of the request, and inside it one of each use of an agent, of what
runs as a task, and of what a call uses of its own server.

Loaded with the first request that could be traced. What callers send is in no span: neither arguments nor answers, nor the words of
an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from server.agents.base.backend import ToolCall, ToolCrashed
from server.agents.base.catalog import ToolEntry
from server.calls.request import Outcome, Request
from server.lib.tracing.request_tracing import Tracing
from server.lib.tracing.trace_spans import Span, TraceContext, context_of
from server.mcp.call_failures import BackendError, Paused
from server.mcp.call_outlet import Outlet
from server.mcp.result_encoding import ToolResult, code_of
from server.store.call_records.call_record import FAILURES

# Whether a request is traced has been settled, and it is not.
UNTRACED: Final = Span(trace_id="", span_id="", parent="", state="", name="", kind=0, began=0, facts={})


class _Meta(msgspec.Struct):
    traceparent: Any = None
    tracestate: Any = None


class _Came(msgspec.Struct):
    meta: _Meta = msgspec.field(default_factory=_Meta, name="_meta")


_decode: Final = msgspec.json.Decoder(_Came).decode


async def traced_answer(
    request: Request, tracing: Tracing, answer: Callable[[Request], Awaitable[Outcome]]
) -> Outcome:
    """`answer` is given the request with its span, or with word that it has none."""
    method = request.route.method
    if method.streams:  # it lasts as long as somebody listens
        request.trace = UNTRACED
        return await answer(request)
    name = method.name if request.tool is None else f"{method.name} {request.tool.tool.name}"
    span = tracing.begin(_context(request), name, _facts(request))
    request.trace = span or UNTRACED
    if span is None:
        return await answer(request)
    request.traceparent = span.traceparent
    error = "cancelled"
    try:
        outcome = await answer(request)
        error = "" if outcome.error is None else str(code_of(outcome.error, request.revision))
        return outcome
    finally:
        if request.record is not None:
            span.facts["ostiary.outcome"] = request.record.outcome
            if request.record.outcome in FAILURES:
                error = error or request.record.outcome
        tracing.end(span, error)


async def traced_use(
    request: Request, tracing: Tracing, tool: ToolEntry, call: ToolCall, outlet: Outlet
) -> ToolResult:
    """The agent's part of a call, in whatever that is a part of."""
    around = context_of(request.traceparent)
    if around is None:
        return await tool.backend.call(call, outlet)
    span = tracing.inside(around, f"agent {tool.tool.name}", _facts(request))
    # What the agent asks of others is a part of this.
    request.traceparent = span.traceparent
    error = "cancelled"
    try:
        answer = await tool.backend.call(call, outlet)
        error = "error" if answer.is_error else ""
        return answer
    except Paused:
        error = ""
        raise
    except BackendError as problem:
        error = "error" if isinstance(problem, ToolCrashed) else "failed"
        raise
    except Exception:
        error = "crashed"
        raise
    finally:
        request.traceparent = f"00-{around.trace_id}-{around.span_id}-01"
        tracing.end(span, error)


def _context(request: Request) -> TraceContext | None:
    """What its caller says that it is a part of: in `_meta`, as the protocol has it, or else in a header."""
    meta = _Meta()
    if request.route.came is not None:
        # What cannot be read is refused where it means something.
        with suppress(msgspec.MsgspecError, RecursionError):
            meta = _decode(request.route.came).meta
    if isinstance(meta.traceparent, str):
        return context_of(meta.traceparent, meta.tracestate if isinstance(meta.tracestate, str) else None)
    if request.headers is None:
        return None
    found, state = request.headers.get(b"traceparent"), request.headers.get(b"tracestate")
    return context_of(
        None if found is None else found.decode("latin-1"), None if state is None else state.decode("latin-1")
    )


def _facts(request: Request) -> dict[str, str | int | bool]:
    """Names as OpenTelemetry has them for MCP, where it has one."""
    route, principal = request.route, request.principal
    found: dict[str, str | int | bool] = {
        "mcp.method.name": route.method.name,
        "mcp.protocol.version": route.revision.version,
        "ostiary.server": request.endpoint.name,
        "ostiary.request": request.call_id,
        "ostiary.caller": principal.kind.value,
    }
    if request.tool is not None:
        found["gen_ai.operation.name"] = "execute_tool"
        found["gen_ai.tool.name"] = request.tool.tool.name
    return found
