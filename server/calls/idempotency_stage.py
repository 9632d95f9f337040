"""A call that is made once: with a key of its caller's, or of a tool with `dedupe`. The same call made again is given its answer.

    begin → the call, with all that every other call does → keep the answer
          ↘ made before: its answer, marked; or why it is not made again

It stands before everything else that looks at a call (limits, rules, the tool), so that a repeat is neither counted nor run, and what is
kept is what the caller was told. What is kept is server/store/idempotency's. Calls that cost something are the till's (payment_stage.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from server.agents.base.catalog import ToolEntry
from server.calls.agent_use import perform
from server.calls.request import Request, key_of
from server.calls.rights.standing import Standing
from server.lib.shortened import short_reason
from server.mcp.call_failures import Paused
from server.mcp.errors import WIRE, AgentError, McpError
from server.mcp.messages import TextContent
from server.mcp.method_params import CallToolParams
from server.mcp.result_encoding import InputRequiredResult, RawResult, ToolResult
from server.store.idempotency.call_keys import A_KEY, REPEAT, REPLAYED, NotComparable, is_key
from server.store.idempotency.idempotent_calls import (
    ANSWERED,
    IN_FLIGHT,
    INTERRUPTED,
    MARGIN_SECONDS,
    NO_ROOM,
    OTHER_CALL,
    UNREADABLE,
    IdempotentBegun,
    IdempotentCall,
    IdempotentCalls,
    KeptAnswer,
    KeptFailure,
    NotMadeAgain,
)
from server.store.jobs import StoreError

_LATER_SECONDS: Final = 5

WORDS: Final = {
    OTHER_CALL: "This idempotency key was used for a call with other arguments, and this call was not made. Use it again only to repeat"
    " that very call; a new call takes a new key.",
    IN_FLIGHT: "The same call is still being made. Make it again with the same key in a few seconds, and you get its answer.",
    INTERRUPTED: "The call with this key was begun and interrupted, and nobody knows how far it came. It was not made again: look whether"
    " it has done what it was to do. To make it all the same, use a new key.",
    UNREADABLE: "This call was answered already, by a server of another version, and its answer cannot be read here. It was not made again: ask"
    " once more with the same key when all servers are of the newer version.",
    ANSWERED: "This call was answered already, and its answer was too large to be kept. It was not made again.",
    NO_ROOM: "This call was not made: too many calls with keys are running, or were answered just now. Make it again in a few seconds.",
}
_NOT_KEPT: Final = (
    "This call was not made, because its key cannot be kept right now: make it again in a few seconds."
)

CallResult: TypeAlias = ToolResult | RawResult | InputRequiredResult
Call: TypeAlias = Callable[[Request], Awaitable[CallResult]]
R = TypeVar("R", bound=ToolResult | RawResult | InputRequiredResult)


async def call_once(request: Request, tool: ToolEntry, call: Call) -> CallResult:
    """What `call` answers, or answered when the same call was made before."""
    request.repeats, request.once = False, True
    if request.standing is not Standing.ALLOWED:
        return await call(request)  # it will hear something else
    begun = await _begin(request, tool)
    if begun is None:
        return await call(request)
    if isinstance(begun, ToolResult):
        return begun
    keeper = _keeper(request)
    if isinstance(begun, KeptAnswer):
        return await _given_again(request, tool, begun)
    return await _made(request, keeper, begun, call)


async def _begin(request: Request, tool: ToolEntry) -> IdempotentBegun | KeptAnswer | ToolResult | None:
    """None: there is nothing to compare it with, so it is made like any other."""
    key = key_of(request)
    if key is not None and not is_key(key):
        return _refused("invalid_idempotency_key", A_KEY)
    if key is None and tool.policy is not None and tool.policy.shows:
        return None  # each of its answers is a preview, which is good for a while, and once
    params: CallToolParams = request.route.params  # type: ignore[assignment]
    arguments = params.arguments if request.unhooked is None else request.unhooked
    terms = tool.terms
    call = IdempotentCall(
        server=request.endpoint.name,
        tool=tool.tool.name,
        caller=request.principal.key(request.address),
        arguments=arguments or {},
        key=key,
        keeps_seconds=terms.dedupe_seconds,
        idempotent=terms.idempotent,
        wait_seconds=max(terms.deadline_seconds - MARGIN_SECONDS, 1.0),
    )
    try:
        found = await _keeper(request).begin(call)
    except NotComparable as error:
        return None if key is None else _refused("invalid_arguments", str(error))
    except StoreError as problem:
        request.endpoint.log.warning("call.key_not_kept", tool=call.tool, reason=short_reason(problem))
        request.retry_after = _LATER_SECONDS
        return _refused("temporarily_unavailable", _NOT_KEPT, _LATER_SECONDS)
    if isinstance(found, NotMadeAgain):
        request.endpoint.log.info(
            "tool.not_called_again", tool=call.tool, reason=found.reason, request=request.call_id
        )
        request.retry_after = found.retry_after
        return _refused(found.reason, WORDS[found.reason], found.retry_after)
    return found


async def _made(
    request: Request, keeper: IdempotentCalls, begun: IdempotentBegun, call: Callable[[Request], Awaitable[R]]
) -> R:
    try:
        result = await call(request)
    except Paused:
        await keeper.release(begun)
        raise
    except McpError as error:
        if request.reached and begun.row.keyed and not begun.call.idempotent:
            await keeper.finish(begun, KeptAnswer(failure=_failure(error)))
        else:
            await keeper.release(begun)
        raise
    except BaseException:  # also where nobody waits for it any more
        await (keeper.interrupt(begun) if request.reached else keeper.release(begun))
        raise
    answer = _kept(request, result, begun)
    await (keeper.release(begun) if answer is None else keeper.finish(begun, answer))
    return result


def _kept(request: Request, result: CallResult, begun: IdempotentBegun) -> KeptAnswer | None:
    """None: it was not made, or has not come to its end; or it failed, and nobody gave it a key."""
    if isinstance(result, RawResult):
        return KeptAnswer(raw=result)
    if (
        isinstance(result, InputRequiredResult)
        or request.retry_after is not None
        or request.unpaid is not None
    ):
        return None
    if result.is_error and not (request.reached and begun.row.keyed):
        return None
    return KeptAnswer(result=result)


def _failure(error: McpError) -> KeptFailure:
    code = error.code if isinstance(error, AgentError) else WIRE[type(error)].code
    return KeptFailure(code, str(error), error.data)


async def _given_again(request: Request, tool: ToolEntry, answer: KeptAnswer) -> CallResult:
    """Recorded as every call is."""

    async def given(_outlet: object) -> tuple[CallResult, str]:
        return _marked(answer), "replayed"

    if tool.policy is None:
        return await perform(request, tool.tool.name, tool.terms, request.standing, given)
    from server.calls.policy_stage import given_now

    run = partial(given_now, request, tool, given)
    return await perform(request, tool.tool.name, tool.terms, request.standing, run)


def _marked(answer: KeptAnswer) -> CallResult:
    """Raises `AgentError` for a call that ended in an error."""
    if answer.failure is not None:
        failure = answer.failure
        raise AgentError(failure.code, failure.text, {**(failure.data or {}), REPLAYED: True})
    if answer.raw is not None:
        fields = answer.raw.fields
        meta: Mapping[str, Any] = fields.get("_meta") or {}
        marked: dict[str, Any] = {**fields, "_meta": {**meta, REPLAYED: True}}
        return msgspec.structs.replace(answer.raw, fields=marked)
    result = answer.result
    assert result is not None
    return msgspec.structs.replace(result, meta={**(result.meta or {}), REPLAYED: True})


async def free_of_charge(
    request: Request, tool: ToolEntry, run: Callable[[bool], Awaitable[tuple[ToolResult, str]]]
) -> tuple[ToolResult, str]:
    """A call of a tool that has a price, and costs this caller nothing: so the till keeps nothing of it."""
    if key_of(request) is None and not tool.terms.dedupe_seconds:
        return await run(False)
    outcome = "replayed"

    async def call(request: Request) -> ToolResult:
        nonlocal outcome
        result, outcome = await run(False)
        return result

    begun = await _begin(request, tool)
    if begun is None:
        return await run(False)
    if isinstance(begun, ToolResult):
        return begun, "refused"
    if isinstance(begun, KeptAnswer):
        return cast("ToolResult", _marked(begun)), outcome
    return await _made(request, _keeper(request), begun, call), outcome


def _keeper(request: Request) -> IdempotentCalls:
    keeper = request.endpoint.keeper
    assert keeper is not None
    return keeper()


def _refused(reason: str, text: str, retry_after: int | None = None) -> ToolResult:
    facts: dict[str, Any] = {"reason": reason}
    if retry_after is not None:
        facts["retryAfter"] = retry_after
    return ToolResult(content=(TextContent(text=text),), is_error=True, meta={REPEAT: facts})
