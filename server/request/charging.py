"""A call that has a price: the till before its tool runs and after it, around what every other call does as well (tools.py).

    price → claimed: held, reserved, or free → the tool → charged or settled → the answer
                                             ↘ it failed, or nobody wants it any more: released

What was paid for is never withheld, and what was not paid for never given: the answer leaves here only after the money has moved. Whoever
leaves before that gets everything back; whoever leaves after it finds the answer with the next call like this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, cast

import msgspec
import trio
from msgspec import UNSET

from server.backends.base import PricingBackend
from server.backends.catalog import ToolEntry
from server.mcp.errors import AgentTooSlow
from server.mcp.messages import TextContent
from server.mcp.results import ToolResult
from server.request.request import Request
from server.till import wallets
from server.till.calls import NOTHING_SHOWN, Earlier, PricedCall, Refusal, Shown
from server.till.fingerprint import NotComparable
from server.till.offers import Offer, PricedTool, PriceUnknown
from server.till.quotes import BadQuote
from server.till.till import Till
from server.x402.headers import PAYMENT_SIGNATURE, X_PAYMENT
from server.x402.in_band import ERROR_KEY, RECEIPT_KEY
from server.x402.payments import BadPayment, read_payment

# What a refusal says for programs.
REFUSAL: Final = "io.ostiary/payment"
REPLAYED: Final = "io.ostiary/replayed"
IDEMPOTENCY_HEADER: Final = b"idempotency-key"

LONGEST_KEY: Final = 128
PAYMENT_HEADERS: Final = (PAYMENT_SIGNATURE.lower().encode(), X_PAYMENT.lower().encode())

Run: TypeAlias = Callable[[], Awaitable[tuple[ToolResult, str]]]


async def charged(
    request: Request, tool: ToolEntry, till: Till, arguments: Mapping[str, Any], run: Run
) -> tuple[ToolResult, str]:
    """The answer, and the word for what came of it."""
    try:
        price = cast("PricedTool", tool.price)
        call = _call(request, tool, till, arguments, depends=price.depends(request.principal.kind))
        brought = shown_by(request)
        offer = await till.offer(price, call, request.principal.kind, brought, partial(_ask_agent, tool))
    except NotComparable as error:
        return _failed(str(error)), "invalid"
    except (PriceUnknown, BadQuote, BadPayment) as error:
        return _failed(f"{error} Nothing was taken."), "unpaid"
    if offer is None:
        return await run()
    begun = await till.begin(call, offer, brought)
    if isinstance(begun, Refusal):
        return refused(till, offer, call, begun), "unpaid"
    if isinstance(begun, Earlier):
        _when_written(request, till, begun.charge_id, keyed=begun.keyed, keeps_ms=0)
        meta = {**(begun.answer.meta or {}), **begun.meta, REPLAYED: True}
        return msgspec.structs.replace(begun.answer, meta=meta), "replayed"
    try:
        answer, outcome = await _in_time(run, tool, begun.seconds)
    except BaseException:  # also where nobody waits for it any more
        await till.release(begun)
        raise
    if answer.is_error:
        await till.release(begun)
        return answer, outcome
    served = await till.finish(begun, answer)
    if isinstance(served, Refusal):
        return refused(till, offer, call, served), "unpaid"
    _when_written(request, till, begun.charge_id, keyed=begun.keyed, keeps_ms=begun.keeps_ms)
    return msgspec.structs.replace(answer, meta={**(answer.meta or {}), **served.meta}), outcome


def shown_by(request: Request) -> Shown:
    """What a request brings to pay with, in its `_meta` or in its headers. Raises `BadPayment`."""
    meta = request.route.params.meta
    headers = request.headers
    raw: Any = meta.payment
    if raw is UNSET and headers is not None:
        raw = next((headers[name].decode("latin-1") for name in PAYMENT_HEADERS if name in headers), UNSET)
    key: Any = meta.idempotency_key
    if key is UNSET and headers is not None and IDEMPOTENCY_HEADER in headers:
        key = headers[IDEMPOTENCY_HEADER].decode("latin-1")
    if raw is UNSET and key is UNSET:
        return NOTHING_SHOWN
    payment = None if raw is UNSET or raw is None else read_payment(raw)
    if key is UNSET and payment is not None:
        key = payment.identifier
    if key is UNSET or key is None:
        return Shown(payment=payment)
    if not isinstance(key, str) or not is_key(key):
        raise BadPayment(
            "invalid_idempotency_key",
            "An idempotency key is a text of 1 to 128 visible characters without blanks: the same one for the same call.",
        )
    return Shown(payment=payment, key=key)


async def _in_time(run: Run, tool: ToolEntry, seconds: float | None) -> tuple[ToolResult, str]:
    """As long as its payment leaves time for it. Raises `AgentTooSlow`."""
    if seconds is None:
        return await run()
    with trio.CancelScope(deadline=trio.current_time() + seconds):
        return await run()
    raise AgentTooSlow(tool.tool.name, seconds)


async def _ask_agent(tool: ToolEntry, function: str, arguments: Mapping[str, Any]) -> str:
    backend = tool.backend
    if not isinstance(backend, PricingBackend):
        raise PriceUnknown(f"the agent of {tool.tool.name} cannot say what a call costs")
    return await backend.price(function, arguments)


def is_key(text: str) -> bool:
    return 0 < len(text) <= LONGEST_KEY and text.isascii() and text.isprintable() and " " not in text


def refused(till: Till, offer: Offer, call: PricedCall, refusal: Refusal) -> ToolResult:
    """The one shape that every client understands: a failed result, with what is to be paid where paying would help."""
    facts: dict[str, Any] = {"reason": refusal.reason, **refusal.facts}
    if refusal.retry_after is not None:
        facts["retryAfter"] = refusal.retry_after
    meta: dict[str, Any] = {REFUSAL: facts}
    if refusal.settlement is not None:
        meta[RECEIPT_KEY] = refusal.settlement
    challenge = till.challenge(offer, call, refusal.text) if refusal.asks else None
    if challenge is None:
        return ToolResult(content=(TextContent(text=refusal.text),), is_error=True, meta=meta)
    meta[ERROR_KEY] = challenge
    return ToolResult(
        content=(TextContent(text=msgspec.json.encode(challenge).decode()), TextContent(text=refusal.text)),
        structured=challenge,
        is_error=True,
        meta=meta,
    )


def _call(
    request: Request, tool: ToolEntry, till: Till, arguments: Mapping[str, Any], *, depends: bool
) -> PricedCall:
    principal = request.principal
    name = tool.tool.name
    return PricedCall(
        server=till.server,
        tool=name,
        arguments=arguments,
        fingerprint=till.fingerprint(name, arguments),
        caller=principal.key() if principal.identified else "",
        call_id=request.call_id,
        deadline_seconds=tool.terms.deadline_seconds,
        wallet=wallets.wallet_of(principal),
        client_id=principal.client_id,
        grant_id=principal.grant_id,
        address=request.address,
        depends=depends,
        patient=request.unhurried,
    )


def _failed(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),), is_error=True)


def _when_written(request: Request, till: Till, charge_id: str, *, keyed: bool, keeps_ms: int) -> None:
    request.when_written = lambda: till.answered(charge_id, keyed=keyed, keeps_ms=keeps_ms)
