"""The payer: a wallet that pays, and one call that it pays for: at most one payment, whatever gets lost on the way.

A payment that was signed for a call is shown again when the same call is made again, for as long as it has no answer, or was let go
unpaid. Another one is signed only when that one can no longer be cashed, and where it is not known to have been refused, only after
somebody was told."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

import msgspec
from trio.to_thread import run_sync

from server.lib.evm.eip712 import NONCE_BYTES
from server.lib.evm.payment_networks import find_network
from server.lib.evm.secp256k1 import PrivateKey
from server.lib.money.amounts import Micros, shown
from server.payments.buyer.choice import Purchase, choose, in_words
from server.payments.buyer.signing import sign_payment
from server.payments.buyer.spending import SignedPayment, SpendingFile, check_day
from server.payments.buyer.spending_policy import CannotPay, Changing, Dearer, SpendPolicy
from server.payments.x402.facilitator_reasons import kept
from server.payments.x402.in_band import (
    IDEMPOTENCY_KEY,
    PAYMENT_KEY,
    find_challenge,
    find_challenge_in_error,
    find_receipt,
    opened,
)
from server.payments.x402.payment_headers import (
    PAYMENT_REQUIRED,
    PAYMENT_RESPONSE,
    X_PAYMENT_RESPONSE,
    payment_header,
)

# Whether a person agrees to what these words say.
Agree: TypeAlias = Callable[[str], Awaitable[bool]]
PAYMENT_REQUIRED_STATUS: Final = 402
IDENTIFIER_BYTES: Final = 16
# It was not looked at, or somebody on the way cannot say what became of it.
NOT_NOW: Final = frozenset({408, 425, 429, 502, 503, 504})
DEPOSIT: Final = "a deposit"
NAMELESS: Final = "nameless"
REFUSAL_KEY: Final = "io.ostiary/payment"
INTERRUPTED: Final = "interrupted"
FAILED: Final = "failed"
# A drift of clocks within which a payment that has ended here may still be cashed elsewhere.
DRIFT_SECONDS: Final = 60
_NOTHING: Final[Mapping[str, Any]] = {}
_TRANSACTION: Final = re.compile(r"0x[0-9a-fA-F]{64}")


def purpose_of(place: str, what: str, arguments: object) -> str:
    """Return what is the same for the same call, and for no other. The arguments cannot be told from it."""
    text = json.dumps([place, what, arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """A call or deposit that is to be paid for."""

    purpose: str  # the same for the same call, and for no other
    what: str  # for people
    note: str = ""  # kept with the payment, for whoever makes the call again
    deposit: Micros | None = None  # it is no call: exactly so much is put on a balance
    asks: bool = False  # a person has to agree, however little it is
    most: Micros | None = None  # what was said before that it costs: beyond it nothing is paid


class Payer:
    """A wallet that pays. Calls may be paid for side by side, here and in other processes."""

    def __init__(
        self,
        key: PrivateKey,
        policy: SpendPolicy,
        spending: SpendingFile,
        *,
        now: Callable[[], float],
        random: Callable[[int], bytes],
        change: Changing,
        agree: Agree | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take a wallet. `agree` is None where nobody can be asked. `tell` gets a line for each thing that is done with money."""
        self.policy = policy
        self.address = key.address
        self.tell = tell
        self._key = key
        self._spending = spending
        self._now = now
        self._random = random
        self._change = change
        self._agree = agree

    def call(
        self, place: str, what: str, arguments: object, *, note: str = "", most: Micros | None = None
    ) -> PaidCall:
        """Begin to pay for a call. `what` is for people: what is bought at `place`. `note` is kept with the payment, for whoever makes the
        call again. `most`: what was said before that it costs."""
        errand = Errand(purpose=purpose_of(place, what, arguments), what=what, note=note, most=most)
        return PaidCall(self, errand)

    def price(self, challenge: Mapping[str, Any]) -> Micros:
        """Return what would be paid for this. Raises `CannotPay`."""
        return choose(challenge, self.policy, self._change).amount

    def deposit(self, place: str, amount: Micros, *, asks: bool, nameless: bool) -> PaidCall:
        """Begin to pay so much for a balance at `place`. While a deposit of as much has no answer, it is the same one. `asks`: a person
        has to agree. `nameless`: the balance is that of the address that pays, and not of a login."""
        errand = Errand(
            purpose=purpose_of(place, DEPOSIT, amount),
            what=f"{DEPOSIT} at {place}",
            note=NAMELESS if nameless else "",
            deposit=amount,
            asks=asks,
        )
        return PaidCall(self, errand)

    def now(self) -> int:
        return int(self._now())

    async def recall(self, purpose: str) -> SignedPayment | None:
        """Find what was signed for a purpose and has no answer. A payment that was refused and has ended is forgotten."""
        found = await run_sync(self._spending.find, purpose)
        if found is None:
            return None
        if found.refused and self.ended(found):
            await self.close(found)
            return None
        return found

    def ended(self, signed: SignedPayment) -> bool:
        return self.now() >= signed.valid_before + DRIFT_SECONDS

    async def buy(self, challenge: Mapping[str, Any], errand: Errand) -> SignedPayment:
        """Sign a payment. Raises `CannotPay`; then nothing was signed that anybody has seen."""
        purchase = choose(challenge, self.policy, self._change, deposit=errand.deposit)
        words = in_words(purchase, errand.what)
        if errand.most is not None and purchase.amount > errand.most:
            raise Dearer(f"it costs {words}, and {shown(errand.most)} was said before")
        # Before anybody is asked whether they want what they cannot have; it counts when it is written down.
        spent = await run_sync(self._spending.spent, self.address, self.now())
        check_day(purchase.amount, spent, self.policy.per_day, self._change)
        await self._agreed(purchase, words, asks=errand.asks)
        identifier = self._random(IDENTIFIER_BYTES).hex()
        now = self.now()
        payment, valid_before = sign_payment(
            purchase,
            challenge,
            self._key,
            identifier=identifier,
            nonce=self._random(NONCE_BYTES),
            now_seconds=now,
        )
        signed = SignedPayment(
            identifier=identifier,
            purpose=errand.purpose,
            words=words,
            payer=self.address,
            amount=purchase.amount,
            signed_at=now,
            valid_before=valid_before,
            payment=payment,
            note=errand.note,
        )
        added = await run_sync(self._spending.add, signed, self.policy.per_day, now, self._change)
        self.tell(f"paying {words}" if added is signed else f"paying as another call like it does: {words}")
        return added

    async def refuse(self, signed: SignedPayment, *, interrupted: bool = False) -> None:
        await run_sync(partial(self._spending.refuse, signed, interrupted=interrupted))

    async def show_again(self, signed: SignedPayment) -> None:
        if signed.refused:
            await run_sync(self._spending.show_again, signed)
        self.tell(f"showing the payment of before again: {signed.words}")

    async def close(self, signed: SignedPayment) -> None:
        await run_sync(self._spending.close, signed.identifier)

    async def _agreed(self, purchase: Purchase, words: str, *, asks: bool) -> None:
        above = 0 if asks else self.policy.confirm_above
        if above is None or purchase.amount <= above:
            return
        if self._agree is None:
            raise CannotPay(
                f"this costs {words}, and beyond {shown(above)} a person has to agree: nobody is here to be asked",
                hint=self._change("confirm-above", shown(purchase.amount)),
            )
        if not await self._agree(words):
            raise CannotPay("not paid")


class PaidCall:
    """One call from the first time that it is sent to its answer: `begin`, then `pay` for each challenge, then `answered`."""

    def __init__(self, payer: Payer, errand: Errand) -> None:
        self._payer = payer
        self._errand = errand
        self.signed: SignedPayment | None = None  # goes along

    @property
    def paying(self) -> bool:
        return self.signed is not None

    @property
    def note(self) -> str:
        """After `begin`, the note of the payment of before, if there is one."""
        return self._errand.note if self.signed is None else self.signed.note

    @property
    def meta(self) -> dict[str, Any]:
        """Members for `_meta` of the request."""
        signed = self.signed
        return {} if signed is None else {PAYMENT_KEY: signed.sent, IDEMPOTENCY_KEY: signed.key}

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """Headers for a request over HTTP."""
        signed = self.signed
        return () if signed is None else (payment_header(signed.sent), ("Idempotency-Key", signed.key))

    async def begin(self) -> None:
        """Let the payment of before go along from the start, if this call was paid for and nobody knows its answer. Raises `CannotPay`."""
        self.signed = await self._payer.recall(self._errand.purpose)
        if self.signed is not None and self._errand.deposit is not None:
            _check_balance(self.signed, self._errand)
        if self.signed is not None:
            await self._payer.show_again(self.signed)

    async def pay(self, challenge: Mapping[str, Any], receipt: Mapping[str, Any] | None = None) -> None:
        """Sign a payment that the server asks for. Raises `CannotPay`, also where a payment went along already and this is the answer to
        it. `receipt` is what came of settling that."""
        signed = self.signed
        if signed is None:
            bought = await self._payer.buy(challenge, self._errand)
            if bought.note != self._errand.note:
                raise CannotPay("another call like this one is being paid for at this moment")
            self.signed = bought
            return
        error = challenge.get("error")
        said = kept(error) if isinstance(error, str) else ""
        # A server that tried to move the money and says that it failed need not know.
        refused = receipt is None and "settle" not in said.lower()
        if refused:
            await self._payer.refuse(signed)
        if self._payer.ended(signed):
            await self._payer.close(signed)
            raise CannotPay(
                f"the payment of before has ended ({signed.words}), and nobody can say whether it was taken",
                hint="making the same call once more pays anew",
            )
        if refused and not _offers(challenge, signed):
            await self._payer.close(signed)
            raise CannotPay(
                f"the price has changed since this was signed: {signed.words}",
                hint="making the same call once more pays the new one",
            )
        left = signed.valid_before + DRIFT_SECONDS - self._payer.now()
        raise CannotPay(
            f"the payment was not taken ({signed.words}): {said or 'no reason given'}",
            hint=f"the same call shows the same payment again for {left} seconds, and pays no second time",
        )

    async def again(self, result: Mapping[str, Any]) -> bool:
        """Look at a result of MCP. True: it asked for money and that was signed for, so the same request is to be sent again. Raises
        `CannotPay`."""
        challenge = find_challenge(result)
        if challenge is not None:
            await self.pay(challenge, find_receipt(result))
            return True
        # A question is no answer: what was signed goes along with what is said to it.
        if result.get("resultType") != "input_required":
            facts = _facts(result)
            await self.answered(
                find_receipt(result),
                failed=result.get("isError") is True,
                later="retryAfter" in facts,
                facts=facts,
            )
        return False

    async def again_after_error(self, error: Mapping[str, Any]) -> bool:
        """Look at a JSON-RPC error in the same way."""
        challenge = find_challenge_in_error(error)
        if challenge is None:
            return False
        await self.pay(challenge)
        return True

    async def again_over_http(self, status: int, header: Callable[[str], str], body: bytes) -> bool:
        """Look at an answer over HTTP in the same way: version 2 asks in a header, version 1 in the body. `header` gives an empty text for
        one that is not there."""
        receipt = opened(header(PAYMENT_RESPONSE) or header(X_PAYMENT_RESPONSE))
        if status != PAYMENT_REQUIRED_STATUS:
            failed = not 200 <= status < 300
            later = status in NOT_NOW or bool(header("Retry-After"))
            said = (opened(body.decode("utf-8", "replace")) if failed else None) or {}
            await self.answered(receipt, failed=failed, later=later, facts={**_facts(said), **said})
            return False
        challenge = opened(header(PAYMENT_REQUIRED)) or opened(body.decode("utf-8", "replace"))
        if challenge is None or "accepts" not in challenge:
            return False
        await self.pay(challenge, receipt)
        return True

    async def answered(
        self,
        receipt: Mapping[str, Any] | None,
        *,
        failed: bool,
        later: bool = False,
        facts: Mapping[str, Any] = _NOTHING,
    ) -> None:
        """Note an answer that asks for no payment. A call that failed is to be made again with the same payment: it was not taken, or it
        is good for another try. `later`: the server says that it will have an answer. `facts`: what one of our own servers says of a
        failure for programs."""
        signed = self.signed
        if signed is None:
            return
        taken = receipt is not None and receipt.get("success") is True
        reason = facts.get("reason")
        if failed and reason == INTERRUPTED and (taken or facts.get("paid") is False):
            await self._interrupted(signed, taken=taken)
        elif failed and reason == FAILED and facts.get("paid") is False and not taken:
            # It is the answer for that key, and whoever made the call has it.
            await self._payer.refuse(signed, interrupted=True)
        elif not failed:
            await self._payer.close(signed)
        elif self._payer.ended(signed) and not taken and not later:
            await self._payer.close(signed)
            self._payer.tell(
                f"the payment of before has ended ({signed.words}): making the same call once more pays anew"
            )
        if receipt is not None or not failed:
            self._payer.tell(receipt_words(receipt, signed))

    async def _interrupted(self, signed: SignedPayment, *, taken: bool) -> None:
        """Tell whoever made the call, since nobody knows how far it came, to look and decide. Made once more it is a new call. That
        signature pays for it while that can be cashed: a server that says that it has not taken it may still do so."""
        told = f"the call was interrupted ({signed.words}): it may have been done, so look first"
        if taken:
            self._payer.tell(f"{told}; it was paid for, and making it once more costs nothing")
            return
        left = signed.valid_before + DRIFT_SECONDS - self._payer.now()
        again = f"with the same payment for {left} seconds, then with another" if left > 0 else "anew"
        # Told first: what is made once more has to be somebody's decision, whatever happens here.
        self._payer.tell(
            f"{told}; the server says that nothing was taken, and making it once more pays {again}"
        )
        await self._payer.refuse(signed, interrupted=True)


def _check_balance(signed: SignedPayment, errand: Errand) -> None:
    """Refuse to show a deposit's payment for another balance: that would be told to be used, and could be thought lost."""
    if signed.note == errand.note:
        return
    without = signed.note == NAMELESS
    raise CannotPay(
        f"a deposit like this was begun {'without' if without else 'with'} a login, and its answer never came: {signed.words}",
        hint=f"log {'out' if without else 'in'} there, and make it again: it is paid once",
    )


def receipt_words(receipt: Mapping[str, Any] | None, signed: SignedPayment) -> str:
    """Return what a server says that it took, as far as it fits what was signed."""
    if receipt is None:
        return "the server gave no receipt for the payment"
    if receipt.get("success") is not True:
        return "the server says that the payment was not settled"
    network = find_network(str(receipt.get("network")))
    transaction = receipt.get("transaction")
    payer = receipt.get("payer")
    theirs = payer.lower() if isinstance(payer, str) else signed.payer.lower()
    if network is None or network != _network_of(signed) or theirs != signed.payer.lower():
        return "the server gave a receipt for another payment than this"
    if not isinstance(transaction, str) or not _TRANSACTION.fullmatch(transaction):
        return f"paid {shown(signed.amount)} on {network.title}"
    return f"paid {shown(signed.amount)} on {network.title}, transaction {transaction}"


def _facts(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what our own servers say for programs: why they do not serve, and when to ask again for what is not known yet."""
    facts: Any = result.get("_meta")
    facts = cast("Mapping[str, Any]", facts).get(REFUSAL_KEY) if isinstance(facts, Mapping) else None
    return cast("Mapping[str, Any]", facts) if isinstance(facts, Mapping) else _NOTHING


def _network_of(signed: SignedPayment) -> object:
    stated: Any = signed.payment.get("accepted", signed.payment)
    return find_network(str(cast("Mapping[str, Any]", stated).get("network")))


def _offers(challenge: Mapping[str, Any], signed: SignedPayment) -> bool:
    """Return whether what was signed is still for sale. Version 1 does not say which offer a payment is for."""
    accepted = signed.payment.get("accepted")
    accepts: object = challenge.get("accepts")
    return accepted is None or (isinstance(accepts, list) and accepted in cast("list[object]", accepts))
