"""Deposits: one payment puts money into a wallet, and calls are then paid from it without a chain being asked each time.

    match → reserve → verify → send → settle → in the wallet

The same guarantees as for a paid call: an authorization counts once, here and there; what was sent is looked after until it is known what
became of it (settlement.py); the same payment shown twice deposits once, and both are told so.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import trio

from auth.values.identity_model import PAYER
from server.lib.log.logger import Logger
from server.lib.money.amounts import Micros, shown
from server.payments.seller import claims, payment_rows, refusals, wallets
from server.payments.seller.charge_rows import KEPT_MS
from server.payments.seller.finish_charge import SETTLE_SECONDS as WAIT_SECONDS
from server.payments.seller.new_rows import ID_BYTES
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.payment_backoff import PaymentBackoff
from server.payments.seller.payment_requirements import SETTLE_ROOM_SECONDS, PaymentOffers
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.priced_call import Refusal, Unpaid
from server.payments.seller.settlement import SENT_MS, Settlements, kept, settlement_of
from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.payment_payload import BadPayment, Payment, check_window, match
from server.payments.x402.requirements import Requirements
from server.payments.x402.settlements import Rejected
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.jobs import Store, StoreBroken, StoreError, StoreUnavailable

KEY_PURPOSE: Final = "till-deposits"
PURPOSE: Final = "deposit"
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Depositor(msgspec.Struct, frozen=True, kw_only=True):
    """Who deposits. `wallet` None: whoever paid, into the payer's own wallet. `key`: the idempotency key that came along, if one did."""

    wallet: str | None
    caller: str
    key: str | None = None
    address: str = ""


class Deposited(msgspec.Struct, frozen=True, kw_only=True):
    """It is in the wallet. `fresh`: for the first time now. `known`: who shows it is who showed it first, or knows their key."""

    payment_id: str
    wallet: str
    amount: Micros
    balance: Micros
    settlement: Mapping[str, Any]
    fresh: bool
    known: bool


class Deposits:
    """Of one server."""

    def __init__(
        self,
        *,
        server: str,
        store: Store,
        answers: AnswerVault,
        settlements: Settlements,
        showcase: PaymentOffers,
        least: Micros,
        most: Micros,
        key: bytes,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        boot_id: str,
        log: Logger,
    ) -> None:
        """`showcase`: of addresses below the server's, so that `deposit` is one."""
        self.server: Final = server
        self.least: Final = least
        self.most: Final = most
        self._store = store
        self._answers = answers
        self._settlements = settlements
        self._under_way = settlements.under_way
        self._showcase = showcase
        self._penalties = PaymentBackoff(clock)
        self._key = key
        self._clock = clock
        self._entropy = entropy
        self._boot_id = boot_id
        self._log = log

    def challenge(self, amount: Micros) -> Unpaid:
        """What a payment of so much must be like."""
        text = (
            f'To put {shown(amount, CURRENCY)} on your balance, pay with x402: sign one of the payments in "accepts", and make the same'
            " request again with it in the header PAYMENT-SIGNATURE. If its answer does not arrive, send the same payment again: it is"
            " deposited once."
        )
        return self._unpaid(amount, Refusal(reason="payment_required", text=text, asks=True))

    async def take(self, amount: Micros, payment: Payment, who: Depositor) -> Deposited | Unpaid:
        """Raises `StoreUnavailable`; then nothing was sent."""
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
        row = self._row(amount, payment, requirements, who, now)
        try:
            check_window(payment, now // 1000, SETTLE_ROOM_SECONDS)
        except BadPayment as error:
            outcome = await self._shown_before(amount, row)
            if outcome is not None:
                return outcome
            self._penalties.failed(who.caller, who.address)
            return self._bad(amount, error.reason_code, error.sentence)
        while True:
            self._under_way.begin(row.id)
            job = partial(claims.reserve, row=row, call_key=None, marks=(), now=self._clock())
            try:
                found = await self._store.write(job)
            except BaseException as problem:
                self._under_way.end(row.id)
                if isinstance(problem, StoreBroken):  # it may be there, and nobody goes on with it
                    self._settlements.later(partial(payment_rows.let_go, payment_id=row.id))
                raise
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
            try:
                verdict = await self._settlements.facilitators.verify(
                    payment, requirements, self._showcase.resource(PURPOSE)
                )
            except FacilitatorDown as error:
                self._log.warning("payment.facilitator_down", server=self.server, reason=error.for_log)
                return Unpaid(refusal=refusals.facilitator_down())
            if isinstance(verdict, Rejected):
                self._penalties.failed(who.caller, who.address)
                return self._bad(amount, verdict.code, verdict.sentence)
            self._penalties.passed(who.caller, who.address)
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
            return Unpaid(refusal=refusals.in_flight())
        try:
            return await self._outcome(amount, row.id, fresh=True, known=True)
        except StoreUnavailable as problem:
            self._log.warning("payment.store_unavailable", payment=row.id, reason=str(problem))
            return Unpaid(refusal=refusals.unknown_outcome(row.id))

    async def _shown_before(self, amount: Micros, row: PaymentRow) -> Deposited | Unpaid | None:
        """It was good when it came first; now what became of it is asked for. None: it was not shown before."""
        job = partial(
            payment_rows.find_authorization,
            network=row.network,
            asset=row.asset,
            payer=row.payer,
            nonce=row.nonce,
        )
        found = await self._store.read(job)
        return None if found is None else await self._again(amount, found, row)

    async def _again(self, amount: Micros, found: PaymentRow, row: PaymentRow) -> Deposited | Unpaid | None:
        """What became of a payment that was shown before. None: look again."""
        same = (found.purpose, found.server, found.wallet) == (PURPOSE, self.server, row.wallet)
        # Anybody can read it on the chain, and would see the balance for ever.
        over = found.ended_at is not None and found.ended_at + KEPT_MS <= self._clock()
        if over and found.state == "settled":
            return Unpaid(refusal=refusals.payment_used())
        if not same or not hmac.compare_digest(found.proof_hash, row.proof_hash):
            return Unpaid(refusal=refusals.payment_used())
        if found.state in ("reserved", "verified"):
            if await self._under_way.wait(found.id, within=WAIT_SECONDS):
                return None
            again = await self._store.read(lambda db: payment_rows.find(db, found.id))
            return (
                None if again is None or again.state != found.state else Unpaid(refusal=refusals.in_flight())
            )
        known = hmac.compare_digest(found.fingerprint, row.fingerprint) and self._has_key(row)
        return await self._outcome(amount, found.id, fresh=False, known=known)

    async def _outcome(
        self, amount: Micros, payment_id: str, *, fresh: bool, known: bool
    ) -> Deposited | Unpaid:
        """Wait for its outcome, and tell it as far as it is known then."""
        await self._under_way.wait(payment_id, within=WAIT_SECONDS)
        row = await self._store.read(lambda db: payment_rows.find(db, payment_id))
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
        offer = self._offer(amount)
        requirements = self._showcase.requirements(offer)
        if not requirements:
            none = Refusal(
                reason="not_payable", text="No payments are taken here for that amount.", status=400
            )
            return Unpaid(refusal=none)
        return Unpaid(
            refusal=refusal,
            challenge=self._showcase.challenge(offer, requirements, refusal.text),
            challenge_v1=self._showcase.challenge_v1(offer, refusal.text),
        )

    def _bad(self, amount: Micros, reason: str, sentence: str) -> Unpaid:
        text = f"{sentence} Nothing was taken, and nothing deposited."
        return self._unpaid(amount, Refusal(reason=reason, text=text, asks=True))

    def _row(
        self, amount: Micros, payment: Payment, requirements: Requirements, who: Depositor, now: int
    ) -> PaymentRow:
        authorization = payment.authorization
        payment_id = f"pay_{self._entropy(ID_BYTES).hex()}"
        payer = f"{PAYER}{requirements.network}:{authorization.from_.lower()}"
        return PaymentRow(
            id=payment_id,
            network=requirements.network,
            asset=requirements.asset.lower(),
            payer=authorization.from_.lower(),
            nonce=authorization.nonce.lower(),
            proof_hash=payment.proof_hash,
            purpose=PURPOSE,
            fingerprint=self._fingerprint(who.wallet or payer, who.key),
            server=self.server,
            caller=who.caller or payer,
            wallet=who.wallet or payer,
            atomic=requirements.amount,
            amount=amount,
            currency=CURRENCY,
            pay_to=requirements.pay_to,
            valid_before=authorization.valid_before,
            requirements=kept(requirements, self._showcase.resource(PURPOSE)),
            sealed=self._answers.seal_bytes(payment_id, _encode(payment.forward)),
            owner=self._boot_id,
            created_at=now,
            expires_at=max(now + KEPT_MS, authorization.valid_before * 1000),
        )

    def _fingerprint(self, wallet: str, key: str | None) -> str:
        """Whose wallet it is for, and the key that only who sent it knows: everything else of a payment can be read on the chain."""
        what = _encode([PURPOSE, self.server, wallet, key])
        return hmac.new(self._key, what, hashlib.sha256).hexdigest()

    def _has_key(self, row: PaymentRow) -> bool:
        assert row.wallet is not None
        return not hmac.compare_digest(row.fingerprint, self._fingerprint(row.wallet, None))

    async def _let_go(self, payment_id: str) -> None:
        job = partial(payment_rows.let_go, payment_id=payment_id)
        with trio.CancelScope(shield=True):
            try:
                await self._store.write(job)
            except StoreError:
                self._settlements.later(job)
