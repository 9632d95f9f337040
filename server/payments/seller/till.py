"""The till of one server: what a call costs, and who has begun it and not finished it. A priced call is begun here before its tool
runs (start_charge.py), and finished or released here afterwards (finish_charge.py).

    with a payment    reserve → verify → claim → (tool) → keep the answer, settle → serve
    on a balance      claim: plan, caps, hold, in one write → (tool) → charge, in one write → serve

Claiming makes the one row that stands for the call. A repeat of the same call finds it, and waits for its answer or is given it (repeated_charges.py),
and is neither run nor charged again. What moves money on a chain is settlement.py's, which outlives the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from auth.values.identity_model import PrincipalKind
from server.lib.log.logger import Logger
from server.mcp.result_encoding import ToolResult
from server.payments.seller import refusals
from server.payments.seller.claims import Rules
from server.payments.seller.finish_charge import FinishCharge
from server.payments.seller.ledger import Books
from server.payments.seller.new_rows import NewRows
from server.payments.seller.offers import KIND_OF, AskAgent, Offer, PricedTool
from server.payments.seller.payment_backoff import PaymentBackoff
from server.payments.seller.payment_requirements import PaymentOffers, quote_in
from server.payments.seller.priced_call import Earlier, PricedCall, Refusal, Served, Shown, Started, Unpaid
from server.payments.seller.quotes import BadQuote, Quotes
from server.payments.seller.receipts import Receipts
from server.payments.seller.repeated_charges import Repeats
from server.payments.seller.settlement import Settlements
from server.payments.seller.signed_terms import SignedTerms
from server.payments.seller.start_charge import StartCharge
from server.payments.x402.requirements import Requirements
from server.store.idempotency.call_keys import fingerprint
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.jobs import Store

KEY_PURPOSE: Final = "till-calls"
# A task that a call has become takes it over at once, or never.
TAKEN_OVER_MS: Final = 60_000


class Till:
    def __init__(
        self,
        *,
        server: str,
        store: Store,
        books: Books,
        quotes: Quotes,
        answers: AnswerVault,
        settlements: Settlements,
        receipts: Receipts,
        showcase: PaymentOffers,
        rules: Rules,
        key: bytes,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        boot_id: str,
        log: Logger,
        terms: SignedTerms | None = None,
    ) -> None:
        self.server: Final = server
        self._quotes = quotes
        self._showcase = showcase
        self._key = key
        self._clock = clock
        self._handed_over: dict[str, tuple[Started, int]] = {}  # and since when
        penalties = PaymentBackoff(clock)
        drafts = NewRows(
            server=server,
            showcase=showcase,
            answers=answers,
            key=key,
            clock=clock,
            entropy=entropy,
            boot_id=boot_id,
        )
        self._finishing = FinishCharge(
            store=store,
            books=books,
            answers=answers,
            settlements=settlements,
            receipts=receipts,
            showcase=showcase,
            penalties=penalties,
            clock=clock,
            boot_id=boot_id,
            terms=terms,
        )
        self._repeats = Repeats(
            store=store,
            answers=answers,
            settlements=settlements,
            showcase=showcase,
            drafts=drafts,
            finishing=self._finishing,
            clock=clock,
            boot_id=boot_id,
        )
        self._beginning = StartCharge(
            server=server,
            store=store,
            books=books,
            settlements=settlements,
            showcase=showcase,
            rules=rules,
            penalties=penalties,
            drafts=drafts,
            repeats=self._repeats,
            finishing=self._finishing,
            clock=clock,
            log=log,
        )
        settlements.each_look.append(self.release_forgotten)

    # ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────────

    def fingerprint(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Raises `NotComparable`."""
        return fingerprint(self._key, self.server, tool, arguments)

    async def offer(
        self, price: PricedTool, call: PricedCall, kind: PrincipalKind, brought: Shown, ask_agent: AskAgent
    ) -> Offer | None:
        """What this call costs this caller, before plans; a price that was quoted for it holds. None: nothing.

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
            known = await self._repeats.known(brought.payment, call, plain)
            if known is None:
                raise
            # It was paid while the quote held; now its answer is asked for.
            return msgspec.structs.replace(plain, amount=known.amount, plan_only=False)

    def requirements(self, offer: Offer, call: PricedCall) -> Sequence[Requirements]:
        """What a payment for this must be like, one for each token that is taken."""
        quote = (
            self._quotes.seal(offer, fingerprint=call.fingerprint, caller=call.caller) if call.depends else ""
        )
        return self._showcase.requirements(offer, quote)

    def challenge(self, offer: Offer, call: PricedCall, text: str) -> Mapping[str, Any] | None:
        """What is to be paid, in the protocol's words. None: it cannot be paid for directly."""
        requirements = self.requirements(offer, call)
        return self._showcase.challenge(offer, requirements, text) if requirements else None

    def unpaid(self, offer: Offer, call: PricedCall, refusal: Refusal) -> Unpaid:
        """The refusal, with what is to be paid where paying would help."""
        challenge = self.challenge(offer, call, refusal.text) if refusal.asks else None
        v1 = None if challenge is None else self._showcase.challenge_v1(offer, refusal.text)
        return Unpaid(refusal=refusal, challenge=challenge, challenge_v1=v1)

    def poster(self, price: PricedTool, kind: PrincipalKind, text: str = "") -> Unpaid | None:
        """What such callers would pay, for somebody who asks for no call. None: nothing, or it depends on the call, or it cannot be
        paid for directly. `text`: behind the price."""
        offer = price.static(kind)
        requirements = () if offer is None else self._showcase.requirements(offer)
        if offer is None or not requirements:
            return None
        refusal = refusals.asks_payment(offer)
        if text:
            refusal = msgspec.structs.replace(refusal, text=f"{refusals.cost(offer)}. {text}")
        challenge = self._showcase.challenge(offer, requirements, refusal.text)
        v1 = self._showcase.challenge_v1(offer, refusal.text)
        return Unpaid(refusal=refusal, challenge=challenge, challenge_v1=v1)

    # ── one call ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, call: PricedCall, offer: Offer, brought: Shown) -> Started | Earlier | Refusal:
        """Before the tool runs. Who has what is started ends it: by `finish`, or by `release`. Raises `StoreUnavailable`."""
        return await self._beginning.begin(call, offer, brought)

    async def finish(self, started: Started, answer: ToolResult) -> Served | Refusal:
        """The tool has done it: take the money, and let the answer be given. Raises `StoreUnavailable`; then nothing was
        taken, or what was taken is found by the next call like this one."""
        return await self._finishing.finish(started, answer)

    async def release(self, started: Started, *, asked: bool = False) -> int | None:
        """The tool has not done it: nothing is taken. What was paid beforehand is owed: how often it may be tried again, if that
        is known. `asked`: it has a question first."""
        return await self._finishing.release(started, asked=asked)

    def answered(
        self, charge_id: str, *, keyed: bool, keeps_ms: int, on_chain: bool = False
    ) -> Callable[[], None] | None:
        """The answer was written to its caller. What comes back is to be called once it is known that the caller has it.

        `on_chain`: it was paid for by itself. Between here and its caller it may still get lost, and whoever lost it signs anew:
        so for a moment the call leads to the same answer, unless the caller is heard of before."""
        return self._finishing.answered(charge_id, keyed=keyed, keeps_ms=keeps_ms, on_chain=on_chain)

    async def interrupt(self, started: Started, failed: ToolResult | None = None) -> int | None:
        """Release a call whose tool was run and did not come to its end, or nobody knows how far it came: one with a key is not run again
        by itself, unless that does no harm. `failed`: what its caller is told, which is its answer from now on. Returned is what `release`
        returns."""
        return await self._finishing.interrupt(started, failed)

    def interruption_told(self, charge_id: str) -> None:
        """Let a call that was paid beforehand and interrupted be made again: its caller has been told, and decides."""
        self._finishing.interruption_told(charge_id)

    # ── one that becomes a task ──────────────────────────────────────────────────────────────────────────────────────

    def hand_over(self, started: Started) -> None:
        """To whoever runs it, as a task: who takes it over ends it."""
        self._handed_over[started.id] = started, self._clock()

    def take_over(self, charge_id: str) -> Started | None:
        """None: it came to nothing, with the process that began it, or because nobody took it over in time."""
        found = self._handed_over.pop(charge_id, None)
        return None if found is None else found[0]

    async def release_forgotten(self) -> None:
        """What was handed over and is not taken: its caller may have been shut out meanwhile. Whoever comes for it later begins anew."""
        now = self._clock()
        late = [each for each, at in self._handed_over.values() if now - at >= TAKEN_OVER_MS]
        for each in late:
            if self.take_over(each.id) is not None:
                await self.release(each)
