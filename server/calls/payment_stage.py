"""A call that has a price: the till before its tool runs and after it, around what every other call does as well (tools_call.py).

    price → claimed: held, reserved, or free → the tool → charged or settled → the answer
                                             ↘ it failed, or nobody wants it any more: released, and with a key remembered

What was paid for is never withheld, and what was not paid for never given: the answer leaves here only after the money has moved. Whoever
leaves before that gets everything back; whoever leaves after it finds the answer with the next call like this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, cast

import msgspec
import trio

from auth.values.identity_model import PrincipalKind
from server.agents.base.backend import PriceAsked, Pricing
from server.agents.base.catalog import ToolEntry
from server.calls.confirmation_stage import made_before
from server.calls.idempotency_stage import free_of_charge
from server.calls.payment_from_request import shown_by, version_in_header
from server.calls.request import Request, key_of
from server.lib.shortened import short_reason
from server.mcp.call_failures import BackendError, Paused
from server.mcp.errors import AgentTooSlow
from server.mcp.messages import TextContent
from server.mcp.method_params import CallToolParams
from server.mcp.result_encoding import InputRequiredResult, RawResult, ToolResult
from server.payments.seller import refusals, wallets
from server.payments.seller.offers import NoPriceForArguments, PricedTool, PriceUnknown
from server.payments.seller.priced_call import (
    NOTHING_SHOWN,
    HeaderSettlement,
    PaidInVain,
    PricedCall,
    Refusal,
    Started,
    Unpaid,
)
from server.payments.seller.quotes import BadQuote
from server.payments.seller.till import Till
from server.payments.x402.in_band import ERROR_KEY, PAYMENT_REQUIRED, PAYMENT_REQUIRED_FIELD, RECEIPT_KEY
from server.payments.x402.payment_payload import BadPayment
from server.store.idempotency.call_keys import REPLAYED, NotComparable
from server.store.jobs import StoreUnavailable

# What a refusal says for programs.
REFUSAL: Final = "io.ostiary/payment"

# Told whether its caller is to hear nothing of the answer before it is there.
Run: TypeAlias = Callable[[bool], Awaitable[tuple[ToolResult, str]]]


async def charged(
    request: Request, tool: ToolEntry, till: Till, arguments: Mapping[str, Any], run: Run
) -> tuple[ToolResult, str]:
    """The answer, and the word for what came of it."""
    begun = None if request.charge is None else till.take_over(request.charge)
    if begun is None:
        begun = await _begun(request, tool, till, arguments)
        if begun is None:
            if request.confirmed_again and key_of(request) is None:
                raise await made_before(request, tool)
            return await free_of_charge(request, tool, run)
        if isinstance(begun, tuple):
            return begun
    if request.unhurried:  # it may have been begun before it was a task
        begun.call = msgspec.structs.replace(begun.call, patient=True)
    assert tool.price is not None
    request.sold, request.sold_as_said = begun.offer.amount, tool.price.as_agent_says(request.principal.kind)
    try:
        answer, outcome = await _in_time(partial(run, begun.withholds), tool, begun.seconds)
    except Paused:
        await till.release(begun, asked=True)
        raise
    except Exception:
        await _fail(request, till, begun, None)
        raise
    except BaseException:  # nobody waits for it any more
        await (till.interrupt(begun) if request.reached else till.release(begun))
        raise
    if answer.is_error:
        answer = _as_told(request, begun, answer)
        in_vain = await _fail(request, till, begun, answer)
        return answer if in_vain is None else with_payment_in_vain(in_vain, answer), outcome
    try:
        served = await till.finish(begun, answer)
    except StoreUnavailable as problem:
        served = _not_written(request, tool, problem)
    if isinstance(served, Refusal):
        if served.resumes is not None:
            request.when_written = partial(till.interruption_told, served.resumes)
        return refused(request, till.unpaid(begun.offer, begun.call, served)), "unpaid"
    charge = begun.charge
    _when_written(
        request,
        till,
        charge.id,
        keyed=charge.keyed,
        keeps_ms=begun.keeps_ms,
        on_chain=charge.payment_id is not None,
    )
    _for_headers(request, served.meta.get(RECEIPT_KEY))
    return msgspec.structs.replace(answer, meta={**(answer.meta or {}), **served.meta}), outcome


def _came_to_tool(request: Request) -> bool:
    return request.reached and request.retry_after is None


def _as_told(request: Request, begun: Started, failed: ToolResult) -> ToolResult:
    """The failure of a call, which says for programs where it is kept as the answer for its key, and that nothing was taken."""
    keeps = _came_to_tool(request) and begun.charge.keyed and not begun.call.idempotent and not begun.paid
    if not keeps:
        return failed
    return msgspec.structs.replace(
        failed, meta={**(failed.meta or {}), REFUSAL: {"reason": "failed", "paid": False}}
    )


async def _fail(request: Request, till: Till, begun: Started, told: ToolResult | None) -> PaidInVain | None:
    """The tool has failed, or may not have been run. `told`: its caller, in a result. None: nothing was taken."""
    tries = await (till.interrupt(begun, told) if _came_to_tool(request) else till.release(begun))
    if tries is not None:
        if begun.charge.keyed:
            request.when_written = partial(till.interruption_told, begun.id)
        request.in_vain = PaidInVain(tries=tries, settlement=begun.settlement)
        _for_headers(request, begun.settlement)
    return request.in_vain


def with_payment_in_vain(in_vain: PaidInVain, failed: ToolResult) -> ToolResult:
    """So that whoever paid knows it, and what to do: a model that is told of the failure alone pays for the next try."""
    meta = {**(failed.meta or {}), REFUSAL: {"paid": True, "retriesLeft": in_vain.tries}}
    if in_vain.settlement is not None:
        meta[RECEIPT_KEY] = in_vain.settlement
    content = (*failed.content, TextContent(text=refusals.paid_and_failed(in_vain.tries)))
    return msgspec.structs.replace(failed, content=content, meta=meta)


def _for_headers(request: Request, settlement: Mapping[str, Any] | None) -> None:
    if request.header_version and settlement is not None:
        request.settled = HeaderSettlement(settlement=settlement, version=request.header_version)


async def begin_ahead(request: Request, tool: ToolEntry) -> ToolResult | None:
    """For a call that becomes a task (charge_before_task.py)."""
    till = request.endpoint.till
    assert till is not None
    params = cast("CallToolParams", request.route.params)
    begun = await _begun(request, tool, till, params.arguments or {})
    if isinstance(begun, tuple):
        return begun[0]
    if begun is not None:
        till.hand_over(begun)
        request.charge = begun.id
    return None


async def release_ahead(request: Request) -> None:
    """There will be no task."""
    till = request.endpoint.till
    begun = None if till is None or request.charge is None else till.take_over(request.charge)
    request.charge = None
    if till is not None and begun is not None:
        await till.release(begun)


async def _begun(
    request: Request, tool: ToolEntry, till: Till, arguments: Mapping[str, Any]
) -> Started | tuple[ToolResult, str] | None:
    """None: it costs nothing."""
    kind = request.principal.kind
    price = cast("PricedTool", tool.price)
    ask_agent = partial(_ask_agent, request, tool)
    unread: Refusal | None = None
    try:
        call = _call(request, tool, till, arguments, depends=price.depends(kind))
        brought = NOTHING_SHOWN
        try:
            brought = shown_by(request)
            request.header_version = version_in_header(request, brought)
            offer = await till.offer(price, call, kind, brought, ask_agent)
        except BadPayment as error:
            unread = refusals.unreadable(error.reason_code, error.sentence)
            offer = await till.offer(price, call, kind, NOTHING_SHOWN, ask_agent)
        except BadQuote as error:
            unread = refusals.unreadable(error.reason, str(error))
            offer = await till.offer(price, call, kind, NOTHING_SHOWN, ask_agent)
    except NotComparable as error:
        return _failed(str(error)), "invalid"
    except NoPriceForArguments as error:
        return refused(request, Unpaid(refusal=refusals.no_price_for_arguments(str(error)))), "unpaid"
    except PriceUnknown as error:
        return refused(request, Unpaid(refusal=refusals.no_price(str(error)))), "unpaid"
    except StoreUnavailable as problem:
        return refused(request, Unpaid(refusal=_not_written(request, tool, problem))), "unpaid"
    if offer is None:
        stranger = kind is PrincipalKind.PAYER and not request.principal.identified
        return (refused(request, Unpaid(refusal=refusals.NOT_WITHOUT_LOGIN)), "unpaid") if stranger else None
    request.price = offer.version
    try:
        begun = unread or await till.begin(call, offer, brought)
    except StoreUnavailable as problem:
        begun = _not_written(request, tool, problem)
    if isinstance(begun, Refusal):
        if begun.resumes is not None:
            request.when_written = partial(till.interruption_told, begun.resumes)
        return refused(request, till.unpaid(offer, call, begun)), "unpaid"
    if isinstance(begun, Started):
        return begun
    _when_written(
        request, till, begun.charge_id, keyed=begun.keyed, keeps_ms=begun.keeps_ms, on_chain=begun.on_chain
    )
    _for_headers(request, begun.meta.get(RECEIPT_KEY))
    meta = {**(begun.answer.meta or {}), **begun.meta, REPLAYED: True}
    return msgspec.structs.replace(begun.answer, meta=meta), "replayed"


def _not_written(request: Request, tool: ToolEntry, problem: StoreUnavailable) -> Refusal:
    """A call that is not in the books is not served; whatever of it was taken is found by the next one like it."""
    request.endpoint.log.warning("charge.not_written", tool=tool.tool.name, reason=short_reason(problem))
    return refusals.NOT_WRITTEN


async def _in_time(
    run: Callable[[], Awaitable[tuple[ToolResult, str]]], tool: ToolEntry, seconds: float | None
) -> tuple[ToolResult, str]:
    """As long as its payment leaves time for it. Raises `AgentTooSlow`."""
    if seconds is None:
        return await run()
    with trio.CancelScope(deadline=trio.current_time() + seconds):
        return await run()
    raise AgentTooSlow(tool.tool.name, seconds)


async def _ask_agent(request: Request, tool: ToolEntry, function: str, arguments: Mapping[str, Any]) -> str:
    backend = tool.backend
    if not isinstance(backend, Pricing):
        raise PriceUnknown(f"the agent of {tool.tool.name} cannot say what a call costs")
    asked = PriceAsked(
        subject=request.principal.subject,
        sharer=request.sharer,
        caller=request.principal,
        call_id=request.call_id,
        function=function,
        tool=tool.tool.name,
        arguments=arguments,
        handshake=request.handshake,
        origin=request,
    )
    try:
        return await backend.price(asked)
    except BackendError as error:
        request.endpoint.log.warning("price.not_said", tool=tool.tool.name, reason=short_reason(error))
        raise PriceUnknown(f"The agent could not say what this call of {tool.tool.name} costs.") from error


def refused(request: Request, unpaid: Unpaid) -> ToolResult:
    """The one shape that every client understands: a failed result, with what is to be paid where paying would help."""
    request.unpaid = unpaid
    refusal, challenge = unpaid.refusal, unpaid.challenge
    facts = facts_of(refusal)
    meta: dict[str, Any] = {REFUSAL: facts}
    if refusal.settlement is not None:
        meta[RECEIPT_KEY] = refusal.settlement
        _for_headers(request, refusal.settlement)
    if challenge is None:
        return ToolResult(content=(TextContent(text=refusal.text),), is_error=True, meta=meta)
    # The whole text is said beside it, and need not be said twice.
    challenge = {**challenge, "error": refusal.brief or refusal.text}
    meta[ERROR_KEY] = challenge
    return ToolResult(
        content=(TextContent(text=msgspec.json.encode(challenge).decode()), TextContent(text=refusal.text)),
        structured=challenge,
        is_error=True,
        meta=meta,
        asks_payment=True,
    )


def as_extension(
    request: Request, result: ToolResult | RawResult | InputRequiredResult
) -> ToolResult | RawResult | InputRequiredResult:
    """What asks for payment, for a client that says with this very request that it knows `org.x402/payment`."""
    challenge = None if request.unpaid is None else request.unpaid.challenge
    if challenge is None or not isinstance(result, ToolResult):
        return result
    meta = {name: value for name, value in (result.meta or {}).items() if name != ERROR_KEY}
    return RawResult({PAYMENT_REQUIRED_FIELD: challenge, "_meta": meta}, PAYMENT_REQUIRED)


def facts_of(refusal: Refusal) -> dict[str, Any]:
    """What a refusal says for programs."""
    facts: dict[str, Any] = {"reason": refusal.reason, **refusal.facts}
    if refusal.retry_after is not None:
        facts["retryAfter"] = refusal.retry_after
    return facts


def _call(
    request: Request, tool: ToolEntry, till: Till, arguments: Mapping[str, Any], *, depends: bool
) -> PricedCall:
    principal = request.principal
    name = tool.tool.name
    return PricedCall(
        server=till.server,
        tool=name,
        arguments=arguments,
        fingerprint=till.fingerprint(name, arguments if request.unhooked is None else request.unhooked),
        caller=principal.key() if principal.identified else "",
        call_id=request.call_id,
        deadline_seconds=tool.terms.deadline_seconds,
        wallet=wallets.wallet_of(principal),
        client_id=principal.client_id,
        grant_id=principal.grant_id,
        address=request.address,
        depends=depends,
        idempotent=tool.terms.idempotent,
        patient=request.unhurried,
    )


def _failed(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),), is_error=True)


def _when_written(
    request: Request, till: Till, charge_id: str, *, keyed: bool, keeps_ms: int, on_chain: bool
) -> None:
    request.when_written = partial(
        till.answered, charge_id, keyed=keyed, keeps_ms=keeps_ms, on_chain=on_chain
    )
