"""The steps that a priced call and a deposit have in common, and all that the seller of one server works with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio

from server.lib.log.logger import Logger
from server.lib.money.amounts import Micros
from server.payments.seller import payment_rows, refusals
from server.payments.seller.charge_rows import KEPT_MS
from server.payments.seller.claims import Rules
from server.payments.seller.ledger import Books
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.payment_backoff import PaymentBackoff
from server.payments.seller.payment_requirements import PaymentOffers
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.priced_call import Refusal, Unpaid
from server.payments.seller.quotes import Quotes
from server.payments.seller.receipts import Receipts
from server.payments.seller.settlement import Settlements, kept
from server.payments.seller.signed_terms import SignedTerms
from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.payment_payload import Payment
from server.payments.x402.requirements import Requirements
from server.payments.x402.settlements import Rejected, Verified
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.jobs import Store, StoreBroken, StoreDb, StoreError

ID_BYTES: Final = 12
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
T = TypeVar("T")


class SellerParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that the seller of one server works with."""

    server: str
    store: Store
    books: Books
    quotes: Quotes
    answers: AnswerVault
    settlements: Settlements
    receipts: Receipts
    showcase: PaymentOffers
    rules: Rules
    key: bytes
    clock: Callable[[], int]
    entropy: Callable[[int], bytes]
    boot_id: str
    log: Logger
    terms: SignedTerms | None = None  # signs receipts as x402 has them

    def __repr__(self) -> str:  # the key names calls
        return f"SellerParts(server={self.server!r})"


class PaymentTaking:
    """The taking of payments, of whatever is paid for."""

    def __init__(self, parts: SellerParts) -> None:
        self.server: Final = parts.server
        self._store = parts.store
        self._books = parts.books
        self._quotes = parts.quotes
        self._answers = parts.answers
        self._settlements = parts.settlements
        self._under_way = parts.settlements.under_way
        self._room = parts.settlements.room
        self._receipts = parts.receipts
        self._showcase = parts.showcase
        self._rules = parts.rules
        self._key = parts.key
        self._clock = parts.clock
        self._entropy = parts.entropy
        self._boot_id = parts.boot_id
        self._log = parts.log
        self._terms = parts.terms
        self._penalties = PaymentBackoff(parts.clock)

    def _asking(self, refusal: Refusal, offer: Offer, quote: str = "") -> Unpaid:
        """Add to a refusal what is to be paid, if that can be paid for directly."""
        requirements = self._showcase.requirements(offer, quote)
        if not requirements:
            return Unpaid(refusal=refusal)
        return Unpaid(
            refusal=refusal,
            challenge=self._showcase.challenge(offer, requirements, refusal.text),
            challenge_v1=self._showcase.challenge_v1(offer, refusal.text),
        )

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self._entropy(ID_BYTES).hex()}"

    def _new_payment(
        self,
        payment: Payment,
        requirements: Requirements,
        *,
        tool: str,
        purpose: str,
        fingerprint: str,
        caller: str,
        wallet: str | None,
        amount: Micros,
    ) -> PaymentRow:
        now = self._clock()
        authorization = payment.authorization
        payment_id = self._new_id("pay")
        return PaymentRow(
            id=payment_id,
            network=requirements.network,
            asset=requirements.asset.lower(),
            payer=authorization.from_.lower(),
            nonce=authorization.nonce.lower(),
            proof_hash=payment.proof_hash,
            purpose=purpose,
            fingerprint=fingerprint,
            server=self.server,
            caller=caller,
            wallet=wallet,
            atomic=requirements.amount,
            amount=amount,
            currency=CURRENCY,
            pay_to=requirements.pay_to,
            valid_before=authorization.valid_before,
            requirements=kept(requirements, self._showcase.resource(tool)),
            sealed=self._answers.seal_bytes(payment_id, _encode(payment.forward)),
            owner=self._boot_id,
            created_at=now,
            expires_at=max(now + KEPT_MS, authorization.valid_before * 1000),
        )

    async def _attempt(self, row_id: str, job: Callable[..., T], undo: Callable[[StoreDb], object]) -> T:
        """Make a row ours by one write, or find whose it would be; it is under way from before that, until whoever gets to know what came
        of it ends it. Marks that wait are written along. `undo`: for one of which nobody knows whether it was written, because nobody
        would go on with it."""
        marks = self._settlements.take_marks()
        self._under_way.begin(row_id)
        try:
            return await self._store.write(partial(job, marks=marks, now=self._clock()))
        except BaseException as problem:
            self._under_way.end(row_id)
            self._settlements.put_back(marks)
            if isinstance(problem, StoreBroken):
                self._settlements.later(undo)
            raise

    async def _verify(
        self, payment: Payment, requirements: Requirements, *, tool: str, caller: str, address: str
    ) -> Verified | Rejected | Refusal:
        """Ask a facilitator whether a payment is good, and count one that is not."""
        try:
            verdict = await self._settlements.facilitators.verify(
                payment, requirements, self._showcase.resource(tool)
            )
        except FacilitatorDown as error:
            self._log.warning("payment.facilitator_down", server=self.server, reason=error.for_log)
            return refusals.FACILITATOR_DOWN
        if isinstance(verdict, Rejected):
            self._penalties.failed(caller, address)
        else:
            self._penalties.passed(caller, address)
        return verdict

    async def _payment(self, payment_id: str) -> PaymentRow | None:
        return await self._store.read(partial(payment_rows.find, payment_id=payment_id))

    async def _let_go(self, payment_id: str) -> None:
        job = partial(payment_rows.let_go, payment_id=payment_id)
        with trio.CancelScope(shield=True):
            try:
                await self._store.write(job)
            except StoreError:
                self._settlements.later(job)
