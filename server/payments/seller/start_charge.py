"""The beginning of a priced call: who pays for it and by which way, before its tool runs.

    with a payment    match → reserve → verify → claim
    on a balance      claim: plan, caps, hold, in one write

Claiming makes the one row that stands for the call. Who finds another there is told what that one comes to (repeated_charges.py)."""

from __future__ import annotations

import hmac
from functools import partial

import msgspec

from server.payments.seller import claims, payment_rows, refusals
from server.payments.seller.charge_rows import KEPT_MS, Charge
from server.payments.seller.claims import NOT_FETCHED, NotClaimed, Uncovered
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.payment_requirements import SETTLE_ROOM_SECONDS, quote_in
from server.payments.seller.payment_rows import PaymentRow, payer_of
from server.payments.seller.priced_call import RETRIES, Earlier, PricedCall, Refusal, Shown, Started
from server.payments.seller.repeated_charges import RepeatedCharges
from server.payments.x402.payment_payload import BadPayment, Payment, check_window, match
from server.payments.x402.requirements import Requirements
from server.payments.x402.settlements import Rejected


class StartCharge(RepeatedCharges):
    """The beginning of each priced call of one server."""

    async def begin(self, call: PricedCall, offer: Offer, brought: Shown) -> Started | Earlier | Refusal:
        """Begin a call before its tool runs. Who has what is started ends it: by `finish`, or by `release`. Raises `StoreUnavailable`."""
        if brought.payment is not None:
            try:
                return await self._with_payment(call, offer, brought.payment, brought.key)
            except NotClaimed as problem:
                # As in `FinishCharge.finish`: others took this process for dead, and let go of what it had begun before anything was sent.
                self._log.warning("payment.let_go_by_others", server=self.server, reason=str(problem))
                return refusals.NOT_WRITTEN
        if call.wallet is None:
            return refusals.asks_payment(offer)
        return await self._on_balance(call, offer, brought.key)

    # ── on a balance ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _on_balance(
        self, call: PricedCall, offer: Offer, key: str | None
    ) -> Started | Earlier | Refusal:
        wanted = self._new_charge(call, offer, key)
        room = await self._room.is_left(call.caller)
        while True:
            claim = partial(
                claims.claim, wanted=wanted, offer=offer, rules=self._rules, books=self._books, room=room
            )
            charge = await self._attempt(wanted.id, claim, self._undoing(wanted.id, wanted.call_id, None))
            if isinstance(charge, Charge) and charge.id == wanted.id:
                return self._started(charge, call, offer)
            self._under_way.end(wanted.id)
            if isinstance(charge, Uncovered):
                if charge.reason == NOT_FETCHED and (room := await self._room.make(call.caller)):
                    continue
                payable = self._showcase.takes_payments and not offer.plan_only
                return refusals.not_covered(offer, charge, page=self._showcase.money_page, payable=payable)
            earlier = await self._of_charge(charge, call, offer)
            if earlier is not None:
                return earlier

    # ── with a payment ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _with_payment(
        self, call: PricedCall, offer: Offer, payment: Payment, key: str | None
    ) -> Started | Earlier | Refusal:
        wait = self._penalties.wait_seconds(call.caller, call.address)
        if wait:
            # What was paid for is nobody's try.
            return await self._shown_before(call, offer, payment, key) or refusals.too_many_failures(wait)
        try:
            requirements = match(
                payment,
                self._showcase.requirements(offer, (quote_in(payment) or "") if call.depends else ""),
                self._showcase.resources(call.tool),
            )
            check_window(
                payment,
                self._clock() // 1000,
                self._showcase.needed_seconds(call.deadline_seconds, upfront=offer.upfront),
            )
        except BadPayment as error:
            earlier = await self._shown_before(call, offer, payment, key)  # it was good when it came first
            if earlier is not None:
                return earlier
            self._penalties.failed(call.caller, call.address)
            return refusals.bad_payment(offer, error.reason_code, error.sentence)
        row = self._new_payment(
            payment,
            requirements,
            tool=call.tool,
            purpose="call",
            fingerprint=call.fingerprint,
            caller=call.caller,
            wallet=None,
            amount=offer.amount,
        )
        known_key = self._call_key(call.caller, call, key) if call.caller else None
        while True:
            reserve = partial(claims.reserve, row=row, call_key=known_key)
            found = await self._attempt(row.id, reserve, partial(payment_rows.let_go, payment_id=row.id))
            if found is None:
                return await self._reserved(call, offer, payment, requirements, row, key)
            self._under_way.end(row.id)
            if isinstance(found, PaymentRow):
                if not (
                    hmac.compare_digest(found.proof_hash, row.proof_hash)
                    and found.fingerprint == row.fingerprint
                ):
                    return refusals.PAYMENT_USED
                earlier = await self._of_payment(found, call, offer, key)
            else:
                earlier = await self._of_charge(found, call, offer)
            if earlier is not None:
                return earlier

    async def _reserved(
        self,
        call: PricedCall,
        offer: Offer,
        payment: Payment,
        requirements: Requirements,
        row: PaymentRow,
        key: str | None,
    ) -> Started | Earlier | Refusal:
        """Look whether a payment that is ours alone now is good. Then the call is claimed for it, or it is let go because another stands
        for the call."""
        claimed = False
        try:
            verdict = await self._verify(
                payment, requirements, tool=call.tool, caller=call.caller, address=call.address
            )
            if isinstance(verdict, Refusal):
                return verdict
            if isinstance(verdict, Rejected):
                return refusals.bad_payment(offer, verdict.code, verdict.sentence)
            call = msgspec.structs.replace(call, caller=call.caller or payer_of(row))
            wanted = msgspec.structs.replace(
                self._new_charge(call, offer, key),
                how="payment",
                payment_id=row.id,
                # The first time is taken up like the others.
                retries_left=RETRIES + 1 if offer.upfront else 0,
            )
            charge = await self._claim_paid(wanted, row, verdict.facilitator)
            claimed = isinstance(charge, Charge) and charge.id == wanted.id
            # Else it was signed anew for a call that is already paid for, or about to be.
        finally:
            if not claimed:
                await self._let_go(row.id)
            self._under_way.end(row.id)
        if isinstance(charge, Uncovered):
            return refusals.not_covered(offer, charge, page=self._showcase.money_page, payable=False)
        if not claimed:
            earlier = await self._of_charge(charge, call, offer)
            return earlier or await self._with_payment(call, offer, payment, key)
        started = self._started(charge, call, offer, valid_before=payment.authorization.valid_before)
        if not offer.upfront:
            return started
        try:
            return await self._settle(started, None) or started
        finally:
            if not started.paid:
                self._under_way.end(started.id)

    async def _claim_paid(self, wanted: Charge, row: PaymentRow, facilitator: str) -> Charge | Uncovered:
        room, payment_id = await self._room.is_left(wanted.caller), row.id
        while True:
            claim = partial(
                claims.claim_paid, wanted=wanted, payment_id=payment_id, facilitator=facilitator, room=room
            )
            undo = self._undoing(wanted.id, wanted.call_id, payment_id)
            charge = await self._attempt(wanted.id, claim, undo)
            if isinstance(charge, Charge) and charge.id == wanted.id:
                return charge
            self._under_way.end(wanted.id)
            full = isinstance(charge, Uncovered)
            if not (full and (room := await self._room.make(wanted.caller))):
                return charge

    async def _shown_before(
        self, call: PricedCall, offer: Offer, payment: Payment, key: str | None
    ) -> Started | Earlier | Refusal | None:
        known = await self._known(payment, call, offer)
        return None if known is None else await self._of_payment(known, call, offer, key)

    def _new_charge(self, call: PricedCall, offer: Offer, key: str | None) -> Charge:
        """Make the charge of a call on a balance."""
        now = self._clock()
        return Charge(
            id=self._new_id("chg"),
            call_key=self._call_key(call.caller, call, key),
            fingerprint=call.fingerprint,
            keyed=key is not None,
            state="running",
            paid=False,
            how="balance",
            server=call.server,
            tool=call.tool,
            call_id=call.call_id,
            caller=call.caller,
            client_id=call.client_id,
            grant_id=call.grant_id,
            wallet=call.wallet,
            amount=offer.amount,
            currency=CURRENCY,
            price=offer.version,
            spent=claims.NOTHING,
            payment_id=None,
            retries_left=RETRIES if offer.upfront else 0,
            owner=self._boot_id,
            created_at=now,
            expires_at=now + KEPT_MS,
        )

    def _started(
        self, charge: Charge, call: PricedCall, offer: Offer, *, valid_before: int | None = None
    ) -> Started:
        """Make what is started. `valid_before`: of a payment that is settled once the tool has answered, which must be in time for that."""
        seconds = None
        if valid_before is not None and not offer.upfront:
            left = valid_before - self._clock() / 1000 - SETTLE_ROOM_SECONDS
            seconds = min(self._showcase.tool_seconds(call.deadline_seconds), left)
        return Started(charge=charge, call=call, offer=offer, paid=charge.paid, seconds=seconds)
