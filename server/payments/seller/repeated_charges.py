"""Calls that were made before: what the charge that stands for them comes to, and whose an authorization is that was shown before.

A second call waits for the first, is given its answer, or is told what is wrong; a call that was paid beforehand and not served is taken
up again. Nothing is charged a second time, or run: what was interrupted only if that does no harm, or its caller was told and it is paid,
or by the task that it is, which goes on after a restart."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import trio

from server.payments.seller import charge_rows, payment_rows, refusals
from server.payments.seller.charge_rows import Charge
from server.payments.seller.finish_charge import PATIENT_SECONDS, SETTLE_SECONDS, FinishCharge
from server.payments.seller.offers import Offer
from server.payments.seller.payment_rows import PaymentRow, payer_of
from server.payments.seller.priced_call import Earlier, PricedCall, Refusal, Started, earlier_of
from server.payments.seller.settlement import settlement_of
from server.payments.x402.payment_payload import Payment
from server.store.idempotency.call_keys import call_key
from server.store.idempotency.kept_answers import GRACE_MS

# Whoever waits for somebody else's call is told so before its own time is over.
MARGIN_SECONDS: Final = 2.0
# How often it is looked for whether another process has come to an end with a call.
LOOK_SECONDS: Final = 0.25
# Of a failure, which nobody paid for.
NO_META: Final[Mapping[str, Any]] = {}


class RepeatedCharges(FinishCharge):
    """The charges of one server, as the same calls find them."""

    def _call_key(self, caller: str, call: PricedCall, key: str | None) -> str:
        of_call = {"server": self.server, "tool": call.tool, "fingerprint": call.fingerprint}
        return call_key(self._key, caller=caller, key=key, **of_call)

    # ── by the call ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _of_charge(
        self, charge: Charge, call: PricedCall, offer: Offer
    ) -> Started | Earlier | Refusal | None:
        """Return what the charge that stands for this call comes to. None: it stands no more, so claim again."""
        if charge.fingerprint != call.fingerprint:
            return refusals.OTHER_CALL_OF_KEY
        limit = PATIENT_SECONDS if call.patient else max(call.deadline_seconds - MARGIN_SECONDS, 1.0)
        if charge.state in ("running", "settling"):
            return await self._of_running(charge, limit)
        if charge.state == "owed":
            return await self._of_owed(charge, call, offer, limit)
        if charge.state == "interrupted":
            return await self._of_interrupted(charge, call)
        kept_of_it = await self._store.read(partial(charge_rows.find_with_answer, charge_id=charge.id))
        if kept_of_it is None:
            return None
        stored, sealed = kept_of_it
        if sealed is None:
            return refusals.ANSWER_GONE if stored.paid else await self._of_interrupted(stored, call)
        try:
            answer = self._answers.open(charge.id, sealed)
        except ValueError:  # msgspec's is one
            return refusals.ANSWER_UNREADABLE
        meta = self._meta_of(stored, await self._settlement_of(stored)) if stored.paid else NO_META
        return earlier_of(charge, offer, answer, meta)

    async def _of_running(self, charge: Charge, limit: float) -> Earlier | Refusal | None:
        if ended := await self._under_way.wait(charge.id, within=limit):
            return ended.answer
        again = await self._charge(charge.id)
        if again is not None and again.state == charge.state and again.owner not in (None, self._boot_id):
            again = await self._ended_elsewhere(charge, limit)
        if again is None or again.state != charge.state:
            return None  # it ended between two looks
        payment_id = charge.payment_id
        if payment_id is None or charge.state == "running":
            return refusals.IN_FLIGHT
        if await self._under_way.wait(payment_id, within=limit):
            return None
        row = await self._payment(payment_id)
        return refusals.unknown_outcome(payment_id, self._settlements.ends_at(row))

    async def _ended_elsewhere(self, charge: Charge, limit: float) -> Charge | None:
        """Return the charge when the process that has it in hand has got further with it, or is gone; or after so long."""
        again: Charge | None = charge
        with trio.move_on_after(limit):
            while again is not None and again.state == charge.state and again.owner is not None:
                await trio.sleep(LOOK_SECONDS)
                again = await self._charge(charge.id)
        return again

    async def _of_owed(
        self, charge: Charge, call: PricedCall, offer: Offer, limit: float
    ) -> Started | Earlier | Refusal | None:
        if ended := await self._under_way.wait(charge.id, within=limit):
            return ended.answer  # somebody is about to take it up
        # Once it is taken up nothing is waited for: who has it must end it.
        told = await self._settlement_of(charge)
        if await self._take_up(charge, call):
            return Started(charge=charge, call=call, offer=offer, paid=True, settlement=told)
        again = await self._charge(charge.id)
        return refusals.TRIED_OFTEN_ENOUGH if again is not None and again.state == "owed" else None

    async def _of_interrupted(self, charge: Charge, call: PricedCall) -> Refusal | None:
        # A task goes on as the very call that it was: ids of calls are ours, and no caller can bring one.
        own = call.patient and charge.call_id == call.call_id
        if not own and not call.idempotent:
            return refusals.interrupted(charge, await self._settlement_of(charge) if charge.paid else None)
        await self._store.write(partial(charge_rows.resume, charge_id=charge.id, own=own))
        return None

    async def _charge(self, charge_id: str) -> Charge | None:
        return await self._store.read(partial(charge_rows.find, charge_id=charge_id))

    async def _settlement_of(self, charge: Charge) -> Mapping[str, Any] | None:
        row = None if charge.payment_id is None else await self._payment(charge.payment_id)
        return None if row is None else settlement_of(row)

    # ── by the payment ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _known(self, payment: Payment, call: PricedCall, offer: Offer) -> PaymentRow | None:
        """Find the row of an authorization that was shown for this very call before."""
        authorization = payment.authorization
        offered = self._showcase.requirements(offer)
        asset = next((each.asset for each in offered if each.network == payment.network), None)
        if payment.accepted is not None:
            asset = payment.accepted.get("asset")
        if not isinstance(asset, str):
            return None
        key = (payment.network, asset.lower(), authorization.from_.lower(), authorization.nonce.lower())
        found = await self._store.read(partial(payment_rows.find_authorization, key=key))
        same = (
            found is not None
            and hmac.compare_digest(found.proof_hash, payment.proof_hash)
            and found.fingerprint == call.fingerprint
        )
        return found if same else None

    async def _of_payment(
        self, found: PaymentRow, call: PricedCall, offer: Offer, key: str | None
    ) -> Started | Earlier | Refusal | None:
        """Return what the call comes to that this authorization was shown for already. None: look again."""
        charge = await self._charge_of(found, call, offer, key)
        return await self._of_charge(charge, call, offer) if isinstance(charge, Charge) else charge

    async def _charge_of(
        self, found: PaymentRow, call: PricedCall, offer: Offer, key: str | None
    ) -> Charge | Refusal | None:
        if found.state == "refused":
            return refusals.not_settled(found, offer)
        if found.caller != (call.caller or payer_of(found)) and (call.caller or found.caller):
            return refusals.PAYMENT_USED
        if found.charge_id is None:
            if await self._under_way.wait(found.id, within=SETTLE_SECONDS):
                return None
            again = await self._payment(found.id)
            return refusals.IN_FLIGHT if again is not None and again.charge_id is None else None
        charge_id = found.charge_id
        charge = await self._charge(charge_id)
        if charge is None and found.went_through_refused:
            return refusals.settled_after_refusal(found)
        if charge is None:
            return refusals.PAYMENT_USED if found.state in ("settled", "refused") else refusals.IN_FLIGHT
        if charge.caller != payer_of(found):
            return charge
        # Who paid is the only thing known of this caller, and a payment can be read on the chain by anybody, as soon as it is sent there.
        if charge.keyed:
            same = hmac.compare_digest(charge.call_key, self._call_key(charge.caller, call, key))
            return charge if same else refusals.WITHOUT_ITS_KEY
        if charge.state != "done":
            return charge
        job = partial(charge_rows.is_unanswered, charge_id=charge_id, since=self._clock() - GRACE_MS)
        return charge if await self._store.read(job) else refusals.PAYMENT_USED
