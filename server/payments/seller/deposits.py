"""Deposits: one payment puts money into a wallet, and calls are then paid from it without a chain being asked each time.

    match → reserve → verify → send → settle → in the wallet

As with a paid call, an authorization counts once, here and there; what was sent is looked after until it is known what became of it
(settlement.py); the same payment shown twice deposits once, and both are told so."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec
import trio

from auth.values.identity_model import PAYER
from server.lib.money.amounts import Micros, shown
from server.payments.seller import claims, payment_rows, refusals, wallets
from server.payments.seller.charge_rows import KEPT_MS
from server.payments.seller.finish_charge import SETTLE_SECONDS as WAIT_SECONDS
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.payment_requirements import SETTLE_ROOM_SECONDS
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.payment_taking import PaymentTaking, SellerParts
from server.payments.seller.priced_call import Refusal, Unpaid
from server.payments.seller.settlement import SENT_MS, settlement_of
from server.payments.x402.payment_payload import BadPayment, Payment, check_window, match
from server.payments.x402.requirements import Requirements
from server.payments.x402.settlements import Rejected
from server.store.jobs import StoreBroken, StoreUnavailable

KEY_PURPOSE: Final = "till-deposits"
PURPOSE: Final = "deposit"
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Depositor(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who deposits. `wallet` None: into the payer's own wallet. `key`: the idempotency key that came along, if one did."""

    wallet: str | None
    caller: str
    key: str | None = None
    address: str = ""


class Deposited(msgspec.Struct, frozen=True, kw_only=True):
    """A deposit that is in the wallet. `fresh`: for the first time now. `known`: who shows it is who showed it first, or knows their key."""

    payment_id: str
    wallet: str
    amount: Micros
    balance: Micros
    settlement: Mapping[str, Any]
    fresh: bool
    known: bool


class Deposits(PaymentTaking):
    """The deposits of one server."""

    def __init__(self, parts: SellerParts, *, least: Micros, most: Micros) -> None:
        """Take deposits. The showcase of `parts` is of addresses below the server's, so that `deposit` is one."""
        super().__init__(parts)
        self.least: Final = least
        self.most: Final = most

    def challenge(self, amount: Micros) -> Unpaid:
        """Return what a payment of so much must be like."""
        text = (
            f'To put {shown(amount, CURRENCY)} on your balance, pay with x402: sign one of the payments in "accepts", and make the same'
            " request again with it in the header PAYMENT-SIGNATURE. If its answer does not arrive, send the same payment again: it is"
            " deposited once."
        )
        return self._unpaid(amount, Refusal(reason="payment_required", text=text, asks=True))

    async def take(self, amount: Micros, payment: Payment, who: Depositor) -> Deposited | Unpaid:
        """Take a deposit. Raises `StoreUnavailable`; then nothing was sent."""
        now = self._clock()
        wait = self._penalties.wait_seconds(who.caller, who.address)
        if wait:
            return Unpaid(refusal=refusals.too_many_failures(wait))
        try:
            wanted = self._showcase.requirements(self._offer(amount))
            requirements = match(payment, wanted, {self._showcase.resource(PURPOSE).url})
        except BadPayment as error:
            self._penalties.failed(who.caller, who.address)
            return self._bad(amount, error.reason_code, error.sentence)
        row = self._row(amount, payment, requirements, who)
        try:
            check_window(payment, now // 1000, SETTLE_ROOM_SECONDS)
        except BadPayment as error:
            outcome = await self._shown_before(amount, row)
            if outcome is not None:
                return outcome
            self._penalties.failed(who.caller, who.address)
            return self._bad(amount, error.reason_code, error.sentence)
        while True:
            reserve = partial(claims.reserve, row=row, call_key=None)
            found = await self._attempt(row.id, reserve, partial(payment_rows.let_go, payment_id=row.id))
            if found is None:
                return await self._reserved(amount, payment, requirements, row, who)
            self._under_way.end(row.id)
            assert isinstance(found, PaymentRow)  # there is no call
            outcome = await self._again(amount, found, row)
            if outcome is not None:
                return outcome

    # ── ours alone now ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _reserved(
        self, amount: Micros, payment: Payment, requirements: Requirements, row: PaymentRow, who: Depositor
    ) -> Deposited | Unpaid:
        sent = False
        try:
            verdict = await self._verify(
                payment, requirements, tool=PURPOSE, caller=who.caller, address=who.address
            )
            if isinstance(verdict, Refusal):
                return Unpaid(refusal=verdict)
            if isinstance(verdict, Rejected):
                return self._bad(amount, verdict.code, verdict.sentence)
            until = self._clock() + SENT_MS
            job = partial(
                claims.send_deposit,
                payment_id=row.id,
                caller=row.caller,
                facilitator=verdict.facilitator,
                next_try_at=until,
            )
            with trio.CancelScope(shield=True):
                try:
                    sent = await self._store.write(job)
                except StoreBroken as problem:
                    # It may have been written. Then nothing is let go, and it is sent soon.
                    self._settlements.not_begun(row.id, until)
                    self._log.warning("payment.store_unavailable", payment=row.id, reason=str(problem))
                    return Unpaid(refusal=refusals.unknown_outcome(row.id))
                if sent:
                    self._settlements.begin(row.id, until)
        finally:
            if not sent:
                await self._let_go(row.id)
                self._under_way.end(row.id)
        if not sent:
            return Unpaid(refusal=refusals.IN_FLIGHT)
        try:
            return await self._outcome(amount, row.id, fresh=True, known=True)
        except StoreUnavailable as problem:
            self._log.warning("payment.store_unavailable", payment=row.id, reason=str(problem))
            return Unpaid(refusal=refusals.unknown_outcome(row.id))

    async def _shown_before(self, amount: Micros, row: PaymentRow) -> Deposited | Unpaid | None:
        """Ask what became of a payment that was good when it came first. None: it was not shown before."""
        found = await self._store.read(partial(payment_rows.find_authorization, key=row.authorization))
        return None if found is None else await self._again(amount, found, row)

    async def _again(self, amount: Micros, found: PaymentRow, row: PaymentRow) -> Deposited | Unpaid | None:
        """Return what became of a payment that was shown before. None: look again."""
        same = (found.purpose, found.server, found.wallet) == (PURPOSE, self.server, row.wallet)
        # Anybody can read it on the chain, and would see the balance for ever.
        over = found.ended_at is not None and found.ended_at + KEPT_MS <= self._clock()
        if over and found.state == "settled":
            return Unpaid(refusal=refusals.PAYMENT_USED)
        if not same or not hmac.compare_digest(found.proof_hash, row.proof_hash):
            return Unpaid(refusal=refusals.PAYMENT_USED)
        if found.state in ("reserved", "verified"):
            if await self._under_way.wait(found.id, within=WAIT_SECONDS):
                return None
            again = await self._payment(found.id)
            return None if again is None or again.state != found.state else Unpaid(refusal=refusals.IN_FLIGHT)
        known = hmac.compare_digest(found.fingerprint, row.fingerprint) and self._has_key(row)
        return await self._outcome(amount, found.id, fresh=False, known=known)

    async def _outcome(
        self, amount: Micros, payment_id: str, *, fresh: bool, known: bool
    ) -> Deposited | Unpaid:
        """Wait for its outcome, and tell it as far as it is known then."""
        await self._under_way.wait(payment_id, within=WAIT_SECONDS)
        row = await self._payment(payment_id)
        if row is None or row.state in ("settling", "unknown"):
            return Unpaid(refusal=refusals.unknown_outcome(payment_id, self._settlements.ends_at(row)))
        if row.state == "refused":
            text = f"Settlement failed. {row.problem or 'The payment was turned down.'} Nothing was taken, and nothing deposited."
            settlement = refusals.failed_settlement(row)
            return self._unpaid(
                amount,
                Refusal(reason="settlement_failed", text=text, asks=True, settlement=settlement),
            )
        assert row.wallet is not None
        name = row.wallet
        wallet = await self._store.read(lambda db: wallets.find(db, name))
        return Deposited(
            payment_id=payment_id,
            wallet=name,
            amount=row.amount,
            balance=0 if wallet is None else wallet.free,
            settlement=settlement_of(row),
            fresh=fresh,
            known=known,
        )

    # ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _offer(self, amount: Micros) -> Offer:
        return Offer(server=self.server, tool=PURPOSE, amount=amount, version=PURPOSE)

    def _unpaid(self, amount: Micros, refusal: Refusal) -> Unpaid:
        found = self._asking(refusal, self._offer(amount))
        if found.challenge is None:
            return Unpaid(
                refusal=Refusal(
                    reason="not_payable", text="No payments are taken here for that amount.", status=400
                )
            )
        return found

    def _bad(self, amount: Micros, reason: str, sentence: str) -> Unpaid:
        text = f"{sentence} Nothing was taken, and nothing deposited."
        return self._unpaid(amount, Refusal(reason=reason, text=text, asks=True))

    def _row(
        self, amount: Micros, payment: Payment, requirements: Requirements, who: Depositor
    ) -> PaymentRow:
        payer = f"{PAYER}{requirements.network}:{payment.authorization.from_.lower()}"
        return self._new_payment(
            payment,
            requirements,
            tool=PURPOSE,
            purpose=PURPOSE,
            fingerprint=self._fingerprint(who.wallet or payer, who.key),
            caller=who.caller or payer,
            wallet=who.wallet or payer,
            amount=amount,
        )

    def _fingerprint(self, wallet: str, key: str | None) -> str:
        """Tell whose wallet it is for, and the key that only who sent it knows: everything else of a payment can be read on the chain."""
        what = _encode([PURPOSE, self.server, wallet, key])
        return hmac.new(self._key, what, hashlib.sha256).hexdigest()

    def _has_key(self, row: PaymentRow) -> bool:
        assert row.wallet is not None
        return not hmac.compare_digest(row.fingerprint, self._fingerprint(row.wallet, None))
