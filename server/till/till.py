"""The till of one server: a priced call is begun here before its tool runs, and finished or released here afterwards.

    with a payment    reserve → verify → claim → (tool) → keep the answer, settle → serve
    on a balance      claim: plan, caps, hold, in one write → (tool) → charge, in one write → serve

Claiming makes the one row that stands for the call. A repeat of the same call finds it, and waits for its answer or is given it, and is
neither run nor charged again. What moves money on a chain is settlement.py's, which outlives the request.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import trio

from auth.values.model import PrincipalKind
from server.mcp.results import ToolResult
from server.observe.log import Logger
from server.store.jobs import Store, StoreError
from server.till import charges, claims, payments, words
from server.till.answers import MAX_ANSWER_BYTES, AnswerTooLarge, AnswerVault
from server.till.calls import RETRIES, Earlier, PricedCall, Refusal, Served, Shown, Started, Unpaid
from server.till.charges import KEPT_MS, Charge
from server.till.claims import NOTHING, NotClaimed, Rules
from server.till.fingerprint import fingerprint
from server.till.ledger import Books
from server.till.marks import Mark
from server.till.offers import CURRENCY, KIND_OF, AskAgent, Offer, PricedTool
from server.till.payments import PaymentRow
from server.till.penalties import Penalties
from server.till.quotes import BadQuote, Quotes
from server.till.receipts import SIGNED_RECEIPT, Receipts
from server.till.settlement import SENT_MS, Settlements, kept, settlement_of
from server.till.showcase import SETTLE_ROOM_SECONDS, Showcase, quote_in
from server.till.signed_terms import OFFER_RECEIPT, SignedTerms
from server.x402.facilitators import FacilitatorDown
from server.x402.in_band import RECEIPT_KEY
from server.x402.payments import BadPayment, Payment, check_window, match
from server.x402.requirements import Requirements
from server.x402.settlements import Rejected

KEY_PURPOSE: Final = "till-calls"
# What a settlement may take before whoever waits is told that nobody knows yet; a task can wait for longer.
SETTLE_SECONDS: Final = 60.0
PATIENT_SECONDS: Final = 3600.0
# How long an answer that was paid for on a chain may take to its caller, through whatever lies between.
GRACE_MS: Final = 3_000
# Whoever waits for somebody else's call is told so before its own time is over.
MARGIN_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 1.0
# A task that a call has become takes it over at once, or never.
TAKEN_OVER_MS: Final = 60_000
ID_BYTES: Final = 12
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


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
        showcase: Showcase,
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
        self._rules = rules
        self._store = store
        self._books = books
        self._answers = answers
        self._settlements = settlements
        self._receipts = receipts
        self._terms = terms  # signs receipts as x402 has them
        self._under_way = settlements.under_way
        self._penalties = Penalties(clock)
        self._handed_over: dict[str, tuple[Started, int]] = {}  # and since when
        self._key = key
        self._clock = clock
        self._entropy = entropy
        self._boot_id = boot_id
        self._log = log
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
            known = await self._known(brought.payment, call, plain)
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
        refusal = words.asks_payment(offer)
        if text:
            refusal = msgspec.structs.replace(refusal, text=f"{words.cost(offer)}. {text}")
        challenge = self._showcase.challenge(offer, requirements, refusal.text)
        v1 = self._showcase.challenge_v1(offer, refusal.text)
        return Unpaid(refusal=refusal, challenge=challenge, challenge_v1=v1)

    # ── before the tool runs ─────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, call: PricedCall, offer: Offer, brought: Shown) -> Started | Earlier | Refusal:
        """Raises `StoreUnavailable`."""
        if brought.payment is not None:
            return await self._with_payment(call, offer, brought.payment, brought.key)
        if call.wallet is None:
            return words.asks_payment(offer)
        charge_id = self._new_id("chg")
        wanted = self._charge(charge_id, call, offer, brought.key)
        while True:
            claim = partial(
                claims.claim,
                wanted=wanted,
                offer=offer,
                rules=self._rules,
                books=self._books,
                marks=(marks := self._settlements.take_marks()),
                now=self._clock(),
            )
            self._under_way.begin(charge_id)
            try:
                charge = await self._store.write(claim)
            except BaseException as error:
                self._under_way.end(charge_id)
                self._settlements.put_back(marks)
                if isinstance(error, NotClaimed):
                    payable = self._showcase.takes_payments and not offer.plan_only
                    return words.not_covered(offer, error, payable=payable)
                raise
            if charge.id == charge_id:
                return self._started(charge, call, offer)
            self._under_way.end(charge_id)
            earlier = await self._earlier(charge, call, offer)
            if earlier is not None:
                return earlier

    async def _with_payment(
        self, call: PricedCall, offer: Offer, payment: Payment, key: str | None
    ) -> Started | Earlier | Refusal:
        now = self._clock()
        wait = self._penalties.wait_seconds(call.caller, call.address)
        if wait:
            known = await self._known(payment, call, offer)  # what was paid for is nobody's try
            earlier = None if known is None else await self._of_known(known, call, offer, key)
            return earlier or words.too_many_failures(wait)
        try:
            requirements = match(
                payment,
                self._showcase.requirements(offer, (quote_in(payment) or "") if call.depends else ""),
                self._showcase.resources(call.tool),
            )
            check_window(
                payment,
                now // 1000,
                self._showcase.needed_seconds(call.deadline_seconds, upfront=offer.upfront),
            )
        except BadPayment as error:
            known = await self._known(payment, call, offer)  # it was good when it came first
            earlier = None if known is None else await self._of_known(known, call, offer, key)
            if earlier is not None:
                return earlier
            self._penalties.failed(call.caller, call.address)
            return words.bad_payment(offer, error.reason_code, error.sentence)
        row = self._row(call, offer, payment, requirements, now)
        known_key = self._call_key(call.caller, call, key) if call.caller else None
        while True:
            marks = self._settlements.take_marks()
            job = partial(claims.reserve, row=row, call_key=known_key, marks=marks, now=self._clock())
            self._under_way.begin(row.id)
            try:
                found = await self._store.write(job)
            except BaseException:
                self._under_way.end(row.id)
                self._settlements.put_back(marks)
                raise
            if found is None:
                return await self._reserved(call, offer, payment, requirements, row, key)
            self._under_way.end(row.id)
            if isinstance(found, PaymentRow):
                if not (
                    hmac.compare_digest(found.proof_hash, row.proof_hash)
                    and found.fingerprint == row.fingerprint
                ):
                    return words.payment_used()
                earlier = await self._of_known(found, call, offer, key)
                if earlier is not None:
                    return earlier
                continue
            earlier = await self._earlier(found, call, offer)
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
        """Ours alone now: is it good? Then the call is claimed for it, or it is let go because another stands for the call."""
        claimed = False
        try:
            try:
                verdict = await self._settlements.facilitators.verify(
                    payment, requirements, self._showcase.resource(call.tool)
                )
            except FacilitatorDown as error:
                self._log.warning("payment.facilitator_down", server=self.server, reason=error.for_log)
                return words.facilitator_down()
            if isinstance(verdict, Rejected):
                self._penalties.failed(call.caller, call.address)
                return words.bad_payment(offer, verdict.code, verdict.sentence)
            self._penalties.passed(call.caller, call.address)
            caller = call.caller or _payer_of(row)
            call = msgspec.structs.replace(call, caller=caller)
            charge_id = self._new_id("chg")
            wanted = msgspec.structs.replace(
                self._charge(charge_id, call, offer, key),
                how="payment",
                payment_id=row.id,
                amount=offer.amount,
                retries_left=RETRIES + 1
                if offer.upfront
                else 0,  # the first time is taken up like the others
            )
            self._under_way.begin(charge_id)
            claim = partial(
                claims.claim_paid,
                wanted=wanted,
                payment_id=row.id,
                facilitator=verdict.facilitator,
                marks=(marks := self._settlements.take_marks()),
                now=self._clock(),
            )
            try:
                charge = await self._store.write(claim)
            except BaseException:
                self._under_way.end(charge_id)
                self._settlements.put_back(marks)
                raise
            if charge.id != charge_id:  # signed anew for a call that is already paid for, or about to be
                self._under_way.end(charge_id)
            else:
                claimed = True
        finally:
            if not claimed:
                await self._let_go(row.id)
            self._under_way.end(row.id)
        if not claimed:
            earlier = await self._earlier(charge, call, offer)
            return earlier or await self._with_payment(call, offer, payment, key)
        started = self._started(charge, call, offer, valid_before=payment.authorization.valid_before)
        if not offer.upfront:
            return started
        refusal: Refusal | None = None
        try:
            refusal = await self._settle(started, None)
            return refusal or started
        finally:
            if not started.paid:
                self._under_way.end(started.id)

    async def _known(self, payment: Payment, call: PricedCall, offer: Offer) -> PaymentRow | None:
        """The row of an authorization that was shown for this very call before."""
        authorization = payment.authorization
        offered = self._showcase.requirements(offer)
        asset = next((each.asset for each in offered if each.network == payment.network), None)
        if payment.accepted is not None:
            asset = payment.accepted.get("asset")
        if not isinstance(asset, str):
            return None
        job = partial(
            payments.find_authorization,
            network=payment.network,
            asset=asset.lower(),
            payer=authorization.from_.lower(),
            nonce=authorization.nonce.lower(),
        )
        found = await self._store.read(job)
        same = (
            found is not None
            and hmac.compare_digest(found.proof_hash, payment.proof_hash)
            and found.fingerprint == call.fingerprint
        )
        return found if same else None

    async def _of_known(
        self, found: PaymentRow, call: PricedCall, offer: Offer, key: str | None
    ) -> Started | Earlier | Refusal | None:
        """What the call comes to that this authorization was shown for already. None: look again."""
        charge = await self._charge_of(found, call, offer, key)
        return await self._earlier(charge, call, offer) if isinstance(charge, Charge) else charge

    async def _charge_of(
        self, found: PaymentRow, call: PricedCall, offer: Offer, key: str | None
    ) -> Charge | Refusal | None:
        if found.state == "refused":
            return words.not_settled(found, offer)
        if found.caller != (call.caller or _payer_of(found)) and (call.caller or found.caller):
            return words.payment_used()
        if found.charge_id is None:
            if await self._under_way.wait(found.id, within=SETTLE_SECONDS):
                return None
            again = await self._store.read(lambda db: payments.find(db, found.id))
            return words.in_flight() if again is not None and again.charge_id is None else None
        charge_id = found.charge_id
        charge = await self._store.read(lambda db: charges.find(db, charge_id))
        if charge is None:
            return words.payment_used() if found.state in ("settled", "refused") else words.in_flight()
        if charge.caller != _payer_of(found):
            return charge
        # Who paid is the only thing known of this caller, and a payment can be read on the chain by anybody, as soon as it is sent there.
        if charge.keyed:
            return charge if self._is_key_of(charge, call, key) else words.without_its_key()
        if charge.state != "done":
            return charge
        job = partial(charges.is_unanswered, charge_id=charge_id, since=self._clock() - GRACE_MS)
        return charge if await self._store.read(job) else words.payment_used()

    async def _earlier(
        self, charge: Charge, call: PricedCall, offer: Offer
    ) -> Started | Earlier | Refusal | None:
        """What the charge that stands for this call comes to. None: it stands no more, so claim again."""
        if charge.fingerprint != call.fingerprint:
            return words.other_call_of_key()
        limit = PATIENT_SECONDS if call.patient else max(call.deadline_seconds - MARGIN_SECONDS, 1.0)
        if charge.state in ("running", "settling"):
            if ended := await self._under_way.wait(charge.id, within=limit):
                return ended.answer
            again = await self._store.read(lambda db: charges.find(db, charge.id))
            if again is None or again.state != charge.state:
                return None  # it ended between two looks
            if charge.payment_id is None or charge.state == "running":
                return words.in_flight()
            if await self._under_way.wait(charge.payment_id, within=limit):
                return None
            return words.unknown_outcome(charge.payment_id)
        if charge.state == "owed":
            if ended := await self._under_way.wait(charge.id, within=limit):
                return ended.answer  # somebody is about to take it up
            told = await self._settlement_of(
                charge
            )  # once it is taken up nothing is waited for: who has it must end it
            job = partial(charges.take_up, charge_id=charge.id, owner=self._boot_id, call_id=call.call_id)
            self._under_way.begin(charge.id)
            taken = False
            try:
                taken = await self._store.write(job)
            finally:
                if not taken:
                    self._under_way.end(charge.id)
            if taken:
                return Started(charge=charge, call=call, offer=offer, paid=True, settlement=told)
            again = await self._store.read(lambda db: charges.find(db, charge.id))
            return words.tried_often_enough() if again is not None and again.state == "owed" else None
        kept_of_it = await self._store.read(lambda db: charges.find_with_answer(db, charge.id))
        if kept_of_it is None:
            return None
        stored, sealed = kept_of_it
        if sealed is None:
            return words.answer_gone()
        answer = self._answers.open(charge.id, sealed)
        meta = self._meta(stored, await self._settlement_of(stored))
        return Earlier(
            charge_id=charge.id,
            answer=answer,
            keyed=charge.keyed,
            keeps_ms=offer.dedupe_seconds * 1000,
            on_chain=charge.payment_id is not None,
            meta=meta,
        )

    # ── after it ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self, started: Started, answer: ToolResult) -> Served | Refusal:
        """The tool has done it: take the money, and let the answer be given. Raises `StoreUnavailable`; then nothing was
        taken, or what was taken is found by the next call like this one."""
        try:
            sealed = self._answers.seal(started.id, answer)
        except AnswerTooLarge:
            await self.release(started)
            return words.answer_too_large(MAX_ANSWER_BYTES, paid=started.paid)
        except BaseException:
            await self.release(started)
            raise
        earlier: Earlier | None = None
        try:
            if started.charge.payment_id is not None and not started.paid:
                refusal = await self._settle(started, sealed)
                if refusal is not None:
                    return refusal
            else:
                await self._charge_wallet(started, sealed)
            self._settlements.counts.charge(started.charge.how)
            meta = self._meta(started.charge, started.settlement)
            earlier = Earlier(
                charge_id=started.id,
                answer=answer,
                keyed=started.charge.keyed,
                keeps_ms=started.keeps_ms,
                on_chain=started.charge.payment_id is not None,
                meta=meta,
            )
            return Served(charge_id=started.id, meta=meta)
        finally:
            self._under_way.end(started.id, earlier)

    async def _charge_wallet(self, started: Started, sealed: bytes) -> None:
        now = self._clock()
        job = partial(
            claims.finish,
            charge_id=started.id,
            answer=sealed,
            books=self._books,
            movement=None
            if started.paid or not started.charge.amount
            else claims.charge_of_wallet(started.charge),
            now=now,
            expires_at=now + KEPT_MS,
        )
        with trio.CancelScope(shield=True):
            try:
                await self._store.write(job)
            except Exception:
                await self.release(started)
                raise

    async def release(self, started: Started, *, asked: bool = False) -> None:
        """The tool has not done it: nothing is taken. What was paid beforehand is owed, and may be tried again. `asked`: it has a
        question first."""
        now = self._clock()
        job = partial(
            claims.release,
            charge_id=started.id,
            payment_id=started.charge.payment_id,
            now=now,
            expires_at=now + KEPT_MS,
            asked=asked,
        )
        with trio.CancelScope(shield=True):
            try:
                await self._store.write(job)
            except StoreError:
                self._settlements.later(job)
            finally:
                self._under_way.end(started.id)

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

    def answered(
        self, charge_id: str, *, keyed: bool, keeps_ms: int, on_chain: bool = False
    ) -> Callable[[], None] | None:
        """The answer was written to its caller. What comes back is to be called once it is known that the caller has it.

        `on_chain`: it was paid for by itself. Between here and its caller it may still get lost, and whoever lost it signs anew:
        so for a moment the call leads to the same answer, unless the caller is heard of before."""
        if on_chain and not keyed and keeps_ms < GRACE_MS:
            self._settlements.mark(Mark(charge_id=charge_id, keyed=False, keeps_ms=GRACE_MS))
            return lambda: self._settlements.mark(Mark(charge_id=charge_id, keyed=False, keeps_ms=keeps_ms))
        self._settlements.mark(Mark(charge_id=charge_id, keyed=keyed, keeps_ms=keeps_ms))
        return None

    async def _settle(self, started: Started, sealed: bytes | None) -> Refusal | None:
        """None: it is settled."""
        payment_id = started.charge.payment_id
        assert payment_id is not None
        row: PaymentRow | None = None
        with trio.CancelScope(shield=True):
            now = self._clock()
            job = partial(
                claims.send,
                charge_id=started.id,
                payment_id=payment_id,
                answer=sealed,
                next_try_at=now + SENT_MS,
            )
            try:
                await self._store.write(job)
            except Exception:
                await self.release(started)
                raise
            self._settlements.begin(payment_id)
            await self._under_way.wait(payment_id, within=SETTLE_SECONDS)
            row = await self._store.read(lambda db: payments.find(db, payment_id))
        if started.call.patient:
            row = await self._until_known(payment_id, row)
        if row is None or row.state == "unknown" or row.state == "settling":
            return words.unknown_outcome(payment_id)
        if row.state == "refused":
            self._penalties.failed(started.call.caller, started.call.address)
            return words.not_settled(row, started.offer)
        started.settlement = settlement_of(row)
        if sealed is None:  # upfront: the money is here, now the tool may run
            job = partial(
                charges.take_up,
                charge_id=started.id,
                owner=self._boot_id,
                call_id=started.call.call_id,
            )
            self._under_way.begin(started.id)
            if not await self._store.write(job):
                self._under_way.end(started.id)
                return words.in_flight()
            started.paid = True
        return None

    async def _until_known(self, payment_id: str, row: PaymentRow | None) -> PaymentRow | None:
        """What becomes of it, however long that takes: within reason."""
        with trio.move_on_after(PATIENT_SECONDS):
            while row is not None and row.state in ("settling", "unknown"):
                await trio.sleep(LOOK_SECONDS)
                row = await self._store.read(lambda db: payments.find(db, payment_id))
        return row

    async def _settlement_of(self, charge: Charge) -> Mapping[str, Any] | None:
        payment_id = charge.payment_id
        row = None if payment_id is None else await self._store.read(lambda db: payments.find(db, payment_id))
        return None if row is None else settlement_of(row)

    # ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call_key(self, caller: str, call: PricedCall, key: str | None) -> str:
        if key is not None:
            return self._mac("key", caller, self.server, call.tool, key)
        return self._mac("same", caller, call.fingerprint)

    def _is_key_of(self, charge: Charge, call: PricedCall, key: str | None) -> bool:
        return hmac.compare_digest(charge.call_key, self._call_key(charge.caller, call, key))

    def _mac(self, *what: object) -> str:
        return hmac.new(self._key, _encode(what), hashlib.sha256).hexdigest()

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self._entropy(ID_BYTES).hex()}"

    def _charge(self, charge_id: str, call: PricedCall, offer: Offer, key: str | None) -> Charge:
        now = self._clock()
        return Charge(
            id=charge_id,
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
            spent=NOTHING,
            payment_id=None,
            retries_left=RETRIES if offer.upfront else 0,
            owner=self._boot_id,
            created_at=now,
            expires_at=now + KEPT_MS,
        )

    def _row(
        self, call: PricedCall, offer: Offer, payment: Payment, requirements: Requirements, now: int
    ) -> PaymentRow:
        authorization = payment.authorization
        payment_id = self._new_id("pay")
        return PaymentRow(
            id=payment_id,
            network=requirements.network,
            asset=requirements.asset.lower(),
            payer=authorization.from_.lower(),
            nonce=authorization.nonce.lower(),
            proof_hash=payment.proof_hash,
            purpose="call",
            fingerprint=call.fingerprint,
            server=self.server,
            caller=call.caller,
            wallet=None,
            atomic=requirements.amount,
            amount=offer.amount,
            currency=CURRENCY,
            pay_to=requirements.pay_to,
            valid_before=authorization.valid_before,
            requirements=kept(requirements, self._showcase.resource(call.tool)),
            sealed=self._answers.seal_bytes(payment_id, _encode(payment.forward)),
            owner=self._boot_id,
            created_at=now,
            expires_at=max(now + KEPT_MS, authorization.valid_before * 1000),
        )

    def _started(
        self, charge: Charge, call: PricedCall, offer: Offer, *, valid_before: int | None = None
    ) -> Started:
        """`valid_before`: of a payment that is settled once the tool has answered, which must be in time for that."""
        seconds = None
        if valid_before is not None and not offer.upfront:
            left = valid_before - self._clock() / 1000 - SETTLE_ROOM_SECONDS
            seconds = min(self._showcase.tool_seconds(call.deadline_seconds), left)
        return Started(charge=charge, call=call, offer=offer, paid=charge.paid, seconds=seconds)

    def _meta(self, charge: Charge, settlement: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What goes with an answer that was paid for."""
        receipt = self._receipts.of(charge, settlement, at=self._clock())
        if settlement is None:
            return {SIGNED_RECEIPT: receipt}
        if self._terms is not None:
            signed = self._terms.receipt(settlement, self._showcase.resource(charge.tool).url)
            settlement = {**settlement, "extensions": {OFFER_RECEIPT: signed}}
        return {RECEIPT_KEY: settlement, SIGNED_RECEIPT: receipt}

    async def _let_go(self, payment_id: str) -> None:
        job = partial(payments.let_go, payment_id=payment_id)
        with trio.CancelScope(shield=True):
            try:
                await self._store.write(job)
            except StoreError:
                self._settlements.later(job)


def _payer_of(row: PaymentRow) -> str:
    """The caller that somebody is of whom nothing is known but the payment."""
    return f"payer:{row.network}:{row.payer}"
