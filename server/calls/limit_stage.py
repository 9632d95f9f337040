"""A call of a tool that may be called only so often: counted before anything of it is done, and told as a result that a model can act on.

For tools of which nothing is said nothing of this is loaded. What is counted is server/store/limits's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from server.calls.request import Request
from server.calls.rights.standing import Standing
from server.mcp.call_failures import Busy
from server.mcp.errors import InvalidArguments
from server.mcp.messages import TextContent
from server.mcp.result_encoding import InputRequiredResult, RawResult, ToolResult
from server.store.jobs import StoreUnavailable
from server.store.limits.tool_limits import Denied, busy

# For programs: which limit it was, and when the call may be made again.
LIMITED: Final = "io.ostiary/limit"
# As long as most calls take, or nearly.
BUSY_SECONDS: Final = 5
_NOT_COUNTED: Final = Denied(
    limit="quota",
    seconds=BUSY_SECONDS,
    text="This call was not made, because it cannot be counted right now: call it again in a few seconds.",
)

CallResult: TypeAlias = ToolResult | RawResult | InputRequiredResult


async def call_within(
    request: Request, tool: str, call: Callable[[Request], Awaitable[CallResult]], *, misfit: str
) -> CallResult:
    """What `call` answers, if the caller may make it now. A call that comes to nothing takes nothing of a quota. `misfit`: by what in
    `_meta` it is known that its arguments did not fit."""
    if (refusal := await count_call(request, tool)) is not None:
        return refusal
    try:
        result = await call(request)
    except InvalidArguments:
        uncount(request, tool)
        raise
    if _came_to_nothing(request, result, misfit):
        uncount(request, tool)
    return result


def _came_to_nothing(request: Request, result: CallResult, misfit: str) -> bool:
    """It asks first, is to be paid for or confirmed first, was made before or not at all, or its arguments do not fit."""
    if isinstance(result, InputRequiredResult) or request.unpaid is not None or request.unmade:
        return True
    meta = result.meta if isinstance(result, ToolResult) else None
    if not meta:
        return False
    if request.priced:
        from server.store.idempotency.call_keys import REPLAYED

        return misfit in meta or REPLAYED in meta
    return misfit in meta


async def count_call(request: Request, tool: str) -> ToolResult | None:
    """None: it may be made, and is not counted again."""
    limits = request.endpoint.limits
    if request.counted or limits is None or limits.bounds is None or not limits.bounds.holds(tool):
        request.counted = True
        return None
    if request.standing is not Standing.ALLOWED:
        return None  # it will hear something else
    try:
        denied = await limits.bounds.use(tool, request.sharer, known=request.principal.identified)
    except StoreUnavailable as problem:
        request.endpoint.log.warning("limits.not_counted", tool=tool, reason=str(problem))
        denied = _NOT_COUNTED
    if denied is None:
        request.counted = True
        return None
    return _limited(request, tool, denied)


def uncount(request: Request, tool: str) -> None:
    limits = request.endpoint.limits
    if limits is not None and limits.bounds is not None:
        limits.bounds.put_back(tool, request.sharer, known=request.principal.identified)


def no_turn(request: Request, tool: str, error: Busy) -> ToolResult:
    """The agent had no place for it."""
    if request.endpoint.limits is not None:
        request.endpoint.limits.restraint.note(request.sharer, "busy")
    return _limited(request, tool, busy(error.why, BUSY_SECONDS))


def _limited(request: Request, tool: str, denied: Denied) -> ToolResult:
    _tell(request, tool, denied)
    request.retry_after = denied.seconds
    facts: dict[str, object] = {"limit": denied.limit, "retryAfter": denied.seconds}
    if denied.allowed:
        facts["allowed"] = denied.allowed
    return ToolResult(content=(TextContent(text=denied.text),), is_error=True, meta={LIMITED: facts})


def _tell(request: Request, tool: str, denied: Denied) -> None:
    principal = request.principal
    request.endpoint.log.info(
        "tool.limited",
        tool=tool,
        limit=denied.limit,
        seconds=denied.seconds,
        principal=principal.kind._value_,
        client=principal.client_id,
        grant=principal.grant_id,
        request=request.call_id,
    )
