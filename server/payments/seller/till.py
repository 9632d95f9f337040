"""The till of one server: what a call costs, and who has begun it and not finished it.

    with a payment    reserve → verify → claim → (tool) → keep the answer, settle → serve
    on a balance      claim: plan, caps, hold, in one write → (tool) → charge, in one write → serve

A priced call is begun before its tool runs (start_charge.py), and finished or released afterwards (finish_charge.py). Claiming makes the
one row that stands for the call. A repeat of the same call finds it (repeated_charges.py), and is neither run nor charged again. Moving
money on a chain is settlement.py's, which outlives the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from auth.values.identity_model import PrincipalKind
from server.payments.seller import refusals
from server.payments.seller.offers import KIND_OF, AskAgent, Offer, PricedTool
from server.payments.seller.payment_requirements import quote_in
from server.payments.seller.payment_taking import SellerParts
from server.payments.seller.priced_call import PricedCall, Refusal, Shown, Started, Unpaid
from server.payments.seller.quotes import BadQuote
from server.payments.seller.start_charge import StartCharge
from server.store.idempotency.call_keys import fingerprint

KEY_PURPOSE: Final = "till-calls"
# A task that a call has become takes it over at once, or never.
TAKEN_OVER_MS: Final = 60_000


class Till(StartCharge):
    """The seller of the tools of one server."""

    def __init__(self, parts: SellerParts) -> None:
        super().__init__(parts)
        self._handed_over: dict[str, tuple[Started, int]] = {}  # and since when
        self._settlements.each_look.append(self.release_forgotten)

    # ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────────

    def fingerprint(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return the fingerprint of a call. Raises `NotComparable`."""
        return fingerprint(self._key, self.server, tool, arguments)

    async def offer(
        self, price: PricedTool, call: PricedCall, kind: PrincipalKind, brought: Shown, ask_agent: AskAgent
    ) -> Offer | None:
        """Return what this call costs this caller, before plans; a price that was quoted for it holds. None: nothing.

        Raises `PriceUnknown`, `BadQuote`."""
        quote = None if brought.payment is None else quote_in(brought.payment)
        if quote is None or not price.depends(kind):
            return await price.offer(kind, call.arguments, ask_agent)
        written = price.prices[KIND_OF[kind]]
        assert written is not None  # it depends on something
        plain = price.make(written, 0)
        try:
            return self._quotes.open(quote, plain, fingerprint=call.fingerprint, caller=call.caller)
        except BadQuote:
            assert brought.payment is not None
            known = await self._known(brought.payment, call, plain)
            if known is None:
                raise
            # It was paid while the quote held; now its answer is asked for.
            return msgspec.structs.replace(plain, amount=known.amount, plan_only=False)

    def unpaid(self, offer: Offer, call: PricedCall, refusal: Refusal) -> Unpaid:
        """Return the refusal, with what is to be paid where paying would help."""
        if not refusal.asks:
            return Unpaid(refusal=refusal)
        quote = (
            self._quotes.seal(offer, fingerprint=call.fingerprint, caller=call.caller) if call.depends else ""
        )
        return self._asking(refusal, offer, quote)

    def poster(self, price: PricedTool, kind: PrincipalKind, text: str = "") -> Unpaid | None:
        """Return what such callers would pay, for somebody who asks for no call. None: nothing, or it depends on the call, or it cannot be
        paid for directly. `text`: behind the price."""
        offer = price.static(kind)
        if offer is None or not self._showcase.requirements(offer):
            return None
        refusal = refusals.asks_payment(offer)
        if text:
            refusal = msgspec.structs.replace(refusal, text=f"{refusals.cost(offer)}. {text}")
        return self._asking(refusal, offer)

    # ── one that becomes a task ──────────────────────────────────────────────────────────────────────────────────────

    def hand_over(self, started: Started) -> None:
        """Hand a call over to whoever runs it, as a task: who takes it over ends it."""
        self._handed_over[started.id] = started, self._clock()

    def take_over(self, charge_id: str) -> Started | None:
        """Take over a call. None: it came to nothing, with the process that began it, or because nobody took it over in time."""
        found = self._handed_over.pop(charge_id, None)
        return None if found is None else found[0]

    async def release_forgotten(self) -> None:
        """Release what was handed over and is not taken: its caller may have been shut out meanwhile. Who comes for it later begins anew."""
        now = self._clock()
        late = [each for each, at in self._handed_over.values() if now - at >= TAKEN_OVER_MS]
        for each in late:
            if self.take_over(each.id) is not None:
                await self.release(each)
