"""The use of an agent, whatever it does for a caller: the page that each goes through, on every wire.

    standing → scope → (run: arguments → back-end → what came of it) under a deadline → record

Which caller may see a tool is settled when the request is made (dispatch.py) or looked up (resource_methods.py, prompt_methods.py); what `run` is,
tools_call.py, resource_methods.py and prompt_methods.py say. Spec: server/tools "Error Handling" (2026-07-28): only what could not be invoked is a
protocol error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter, time_ns
from typing import Final, TypeAlias, TypeVar

from server.agents.base.backend import AnswerLost, BadArguments, ProtocolFailure, Replaced, Unreached
from server.agents.base.outlets import DeadlinePausingOutlet
from server.calls.failure_reasons import reason_of
from server.calls.request import Request
from server.calls.rights.standing import Standing, insufficient
from server.lib.short_waits import DeadlineScope
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError, CannotAsk, Paused
from server.mcp.call_outlet import NullOutlet, Outlet
from server.mcp.errors import (
    AgentError,
    AgentReplaced,
    AgentTooSlow,
    AgentUnreached,
    AnswerNotHeard,
    BackendFailed,
    BadParams,
    InternalError,
    McpError,
    MissingCapability,
)
from server.mcp.method_params import CallToolParams
from server.mcp.terms import CallTerms
from server.store.call_records.call_book import MOST_WAITING
from server.store.call_records.call_record import FAILURES, CallRecord

T = TypeVar("T")

# What came of it, and the word for that in logs and metrics.
Run: TypeAlias = Callable[[Outlet], Awaitable[tuple[T, str]]]

# Of these there is nothing to explain.
_WELL: Final = frozenset({"ok", "asked", "replayed", "cancelled"})

# The line of what runs for a caller who hears nothing before the answer.
MUTE: Final[Outlet] = NullOutlet("the caller cannot be asked anything during this call")


async def perform(
    request: Request, name: str, terms: CallTerms, standing: Standing, run: Run[T], outlet: Outlet = MUTE
) -> T:
    """Run it under its deadline and record what came of it. Raises `InsufficientScope`, what `told` makes of a back-end's errors, `AgentTooSlow`, `InternalError`, and `Paused` if
    `outlet` does. Cancelling it stops the back-end."""
    started = perf_counter()
    outcome = "cancelled"  # what it was, unless something below gets to say otherwise
    said: object = None  # to the caller
    try:
        if standing is Standing.GRANTABLE:
            raise insufficient(request.principal, terms)
        if terms.quick or request.unhurried:
            answer, outcome = await run(outlet)
            said = answer
            return answer
        with DeadlineScope(terms.deadline_seconds) as scope:
            answer, outcome = await run(DeadlinePausingOutlet(outlet, scope))
            said = answer
            return answer
        raise AgentTooSlow(name, terms.deadline_seconds)
    except Paused:
        outcome = "asked"
        raise
    except BadArguments as error:
        outcome, said = "invalid", error
        raise BadParams(str(error)) from error
    except BackendError as error:
        outcome, said = "refused" if isinstance(error, CannotAsk) else "failed", error
        raise told(error) from error
    except McpError as error:
        outcome, said = "timeout" if isinstance(error, AgentTooSlow) else "refused", error
        raise
    except Exception as error:
        outcome = "crashed"
        method = request.route.method
        if method.params is CallToolParams:
            request.endpoint.log.exception("tool.crashed", tool=name, request=request.call_id)
        else:
            request.endpoint.log.exception(
                "library.crashed", method=method.name, name=name, request=request.call_id
            )
        said = InternalError(request.call_id)
        raise said from error
    finally:
        _tell(request, name, outcome, perf_counter() - started, said)
        said = None  # an error has this frame, which would hold it for as long


def told(error: BackendError) -> McpError:
    """Return what a caller is told of a back-end's failure."""
    if isinstance(error, CannotAsk) and error.required:
        return MissingCapability(error.required, str(error))
    if isinstance(error, Replaced):
        return AgentReplaced(str(error))
    if isinstance(error, ProtocolFailure):
        return AgentError(error.code, str(error), error.data)
    if isinstance(error, AnswerLost):
        return AnswerNotHeard(str(error))
    return (AgentUnreached if isinstance(error, Unreached) else BackendFailed)(str(error))


def _tell(request: Request, name: str, outcome: str, seconds: float, said: object) -> None:
    """Count, record and log the use of an agent, whatever became of it. A failure's line is a warning, and says why and
    for whom."""
    endpoint, principal, route = request.endpoint, request.principal, request.route
    is_tool = route.method.params is CallToolParams
    endpoint.measure(name if is_tool else route.method.name, outcome, seconds)
    reason = reason_of(said) if outcome not in _WELL else ""
    facts: dict[str, object] = {
        "outcome": outcome,
        "ms": round(seconds * 1000, 3),
        "principal": principal.kind._value_,
        "client": principal.client_id,
        "grant": principal.grant_id,
        "request": request.call_id,
    }
    say = endpoint.log.info
    failed = outcome in FAILURES
    if failed:
        say = endpoint.log.warning
    if failed or endpoint.names_callers:
        facts |= {
            "person": principal.person or principal.subject,
            "program": principal.program,
            "reason": reason,
        }
    if not is_tool:
        say("library.used", method=route.method.name, name=short_name(name), **facts)
        if endpoint.calls is not None:
            endpoint.calls.used(principal, time_ns() // 1_000_000)
        return
    say("tool.called", tool=name, **facts)
    book = endpoint.calls
    if book is None:
        return
    waiting = book.waiting
    if len(waiting) >= MOST_WAITING:
        book.missed += 1
        return
    # Written out here, for a call is not to pay for a function more.
    record = request.record = CallRecord(
        time_ns() // 1_000_000,
        endpoint.name,
        name,
        outcome,
        reason,
        seconds,
        principal,
        request.call_id,
        route.revision.version,
        request.unhurried,
        request.price,
        route.size,
    )
    waiting.append(record)
    if len(waiting) == 1:
        book.wake()
