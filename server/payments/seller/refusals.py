"""Refusals of the till: a word for programs, and a sentence for whoever reads it, which is often a model.

A model does what it reads. Told that a key is to be new for every request, it pays twice for one call; so what is said of keys and of
trying again leads to the same key, and `tests/payments/seller/test_refusals.py` holds the sentences."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from server.lib.counted import counted
from server.lib.money.amounts import Micros, shown
from server.payments.seller.charge_rows import Charge
from server.payments.seller.claims import NOT_FETCHED, Uncovered
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.priced_call import Refusal
from server.payments.x402.in_band import IDEMPOTENCY_KEY, PAYMENT_KEY
from server.payments.x402.payment_headers import PAYMENT_SIGNATURE

SAME_KEY: Final = (
    "If you make this very call again because its answer did not arrive, give it the same idempotency key as before"
    f' (`_meta["{IDEMPOTENCY_KEY}"]`, or the header Idempotency-Key) and the same payment: it is then paid for once, and you'
    " get its answer. A new key is only for a new call."
)
WHERE: Final = f'`_meta["{PAYMENT_KEY}"]`, or over plain HTTP in the header {PAYMENT_SIGNATURE}'
WAIT: Final = "Do not pay again. Make the same call again in a few seconds, with the same key or payment: it is paid for at most once, and its answer is kept."

# Room comes with the first answer that is fetched, or runs out.
NOT_FETCHED_SECONDS: Final = 300


# For whoever has no login here, but may call what they pay for.
NOT_WITHOUT_LOGIN: Final = Refusal(
    reason="login_required",
    text="This call costs nothing, and calls that cost nothing are for callers with a login: log in, and make it again.",
    status=401,
)
FACILITATOR_DOWN: Final = Refusal(
    reason="facilitator_unavailable",
    text="Payments cannot be checked at the moment. Nothing was taken, and nothing was done. Try again in a minute, with the same"
    " payment and the same key.",
    retry_after=30,
    status=503,
)
# The call itself, or what it came to.
NOT_WRITTEN: Final = Refusal(
    reason="temporarily_unavailable",
    text=f"What is paid for this call cannot be written down right now, so there is no answer. {WAIT}",
    retry_after=2,
    status=503,
)
IN_FLIGHT: Final = Refusal(
    reason="in_flight", text=f"The same call is still being made. {WAIT}", retry_after=2, status=409
)
PAYMENT_USED: Final = Refusal(
    reason="payment_used",
    text="This payment was used already, and one payment pays for one call. Nothing more was taken. For another call, sign another payment.",
    status=409,
)
# Somebody of whom nothing is known but the payment.
WITHOUT_ITS_KEY: Final = Refusal(
    reason="idempotency_key_differs",
    text="This payment was shown with an idempotency key, and the answer that it pays for is given with that key alone. Do not pay again."
    " Make the same call again with the same key and the same payment.",
    status=409,
)
OTHER_CALL_OF_KEY: Final = Refusal(
    reason="idempotency_conflict",
    text="This idempotency key was used for a call with another tool or other arguments. Nothing was taken. Use it again only to"
    " repeat that very call; a new call takes a new key.",
    status=409,
)
ANSWER_GONE: Final = Refusal(
    reason="answered",
    text="This call was answered already, and its answer is not kept any more. It was paid for once, and was not made again.",
    status=409,
)
# Nodes of two versions serve side by side, and the newer one kept it.
ANSWER_UNREADABLE: Final = Refusal(
    reason="answer_unreadable",
    text="This call was answered already, by a server of another version, and its answer cannot be read here. It was paid for once, and was"
    " not made again: ask once more with the same key or payment when all servers are of the newer version.",
    status=409,
)
# What was paid for and not given yet is never dropped for something new.
ANSWERS_NOT_FETCHED: Final = Refusal(
    reason=NOT_FETCHED,
    text="The call was not made and nothing was taken: too many answers are kept that were paid for and never fetched. Make those"
    " earlier calls again, each with the same key or payment as before: they cost nothing more, and you get their answers. What"
    " nobody fetches is kept for a day.",
    status=429,
    retry_after=NOT_FETCHED_SECONDS,
)


def cost(offer: Offer, due: Micros | None = None) -> str:
    return f"{offer.tool} costs {shown(offer.amount if due is None else due, CURRENCY)} a call"


def asks_payment(offer: Offer, *, used_up: str = "") -> Refusal:
    """Ask for the payment of a call that is paid for by itself. `used_up`: what would have covered it."""
    brief = f"{f'{used_up} ' if used_up else ''}{cost(offer)}."
    return Refusal(
        reason="payment_required",
        text=f'{brief} Pay with x402: sign one of the payments in "accepts", and make the call again with it in {WHERE}. {SAME_KEY}',
        brief=brief,
        asks=True,
        facts={"price": shown(offer.amount, CURRENCY)},
    )


_UNCOVERED: Final[Mapping[str, str]] = {
    "trial_exhausted": "Your free trial of it is used up.",
    "quota_exhausted": "Your calls of this month are used up; they come back on the first of the next one (UTC).",
    "plan_required": "It is only for callers on a plan that has it.",
}


def not_covered(offer: Offer, why: Uncovered, *, page: str, payable: bool) -> Refusal:
    """Refuse a known caller, whose plan or balance does not do for a call. `page`: where they put money on it. `payable`: paying for the
    call itself would do as well."""
    price = shown(why.due, CURRENCY)
    used_up = _UNCOVERED.get(why.used_up, "")
    if why.reason == "balance_too_low":
        balance = shown(why.balance, CURRENCY)
        said = f"{cost(offer, why.due)}, and your balance is {balance}."
        way = f"Put money on it at {page}, with a voucher from whoever runs this server, and make the call again."
        brief = " ".join(part for part in (used_up, said, way) if part)
        or_pay = f' Or pay for this call with x402: one of the payments in "accepts", sent in {WHERE}.'
        return Refusal(
            reason=why.reason,
            text=f"{brief}{or_pay if payable else ''} {SAME_KEY}",
            brief=brief,
            asks=payable,
            facts={"price": price, "balance": balance},
        )
    if why.reason == "payment_required":
        return asks_payment(offer, used_up=used_up)
    if why.reason == "spend_cap_exceeded":
        return Refusal(
            reason=why.reason, text=f"Not paid for: {why.words}. Nothing was taken.", facts={"price": price}
        )
    if why.reason == NOT_FETCHED:
        return ANSWERS_NOT_FETCHED
    words = _UNCOVERED.get(why.reason, "It cannot be paid for like that.")
    return Refusal(reason=why.reason, text=f"{offer.tool} was not called: {words}")


def bad_payment(offer: Offer, reason: str, sentence: str) -> Refusal:
    return Refusal(
        reason=reason,
        text=f"{sentence} Nothing was taken. {cost(offer)}.",
        asks=True,
        facts={"price": shown(offer.amount, CURRENCY)},
    )


def not_settled(row: PaymentRow, offer: Offer) -> Refusal:
    return Refusal(
        reason="settlement_failed",
        text=f"Settlement failed. {row.problem or 'The payment was turned down.'} Nothing was taken, and the answer is withheld. {cost(offer)}.",
        asks=True,
        settlement=failed_settlement(row),
    )


def failed_settlement(row: PaymentRow) -> Mapping[str, Any]:
    """Return what the protocol says of a settlement that failed."""
    return {
        "success": False,
        "errorReason": "settlement_failed",
        "transaction": "",
        "network": row.network,
        "payer": row.payer,
    }


def unreadable(reason: str, sentence: str) -> Refusal:
    """Refuse what was brought to pay with and cannot be read. The price goes with it, so that the next try can be better."""
    return Refusal(reason=reason, text=f"{_sentence(sentence)} Nothing was taken.", asks=True, status=400)


def no_price(problem: str) -> Refusal:
    return Refusal(
        reason="price_unknown", text=f"{_sentence(problem)} Nothing was taken.", status=503, retry_after=30
    )


def no_price_for_arguments(problem: str) -> Refusal:
    return Refusal(
        reason="no_price_for_arguments",
        text=f"{_sentence(problem)} Nothing was taken. Call it with other arguments.",
        status=422,
    )


def too_many_failures(seconds: int) -> Refusal:
    return Refusal(
        reason="too_many_failures",
        text=f"Your last payments were not good. Wait {counted(seconds, 'second')} before the next one; nothing was taken.",
        retry_after=seconds,
        status=429,
    )


def unknown_outcome(payment_id: str | None, ends_at: int | None = None) -> Refusal:
    """Tell that nobody knows yet what became of a payment. `ends_at`: by when it has an outcome by itself, as it stands."""
    ends = ""
    if ends_at is not None:
        when = datetime.fromtimestamp(ends_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        ends = f" As it stands this ends by {when}: if the payment has not gone through by then, it is refused, and nothing is taken."
    return Refusal(
        reason="settlement_unknown",
        text=f"The payment was sent to be settled, and it is not known yet whether it went through. {WAIT}{ends}",
        retry_after=5,
        status=503,
        facts={"payment": payment_id} if payment_id else {},
    )


def settled_after_refusal(row: PaymentRow) -> Refusal:
    return Refusal(
        reason="settled_after_refusal",
        text="This payment was refused at first, and went through after all, when its call was over. Nothing was done for it, and it pays for no"
        f" other call: ask whoever runs this server to give it back, as the payment {row.id}.",
        status=409,
        facts={"payment": row.id},
    )


def interrupted(charge: Charge, settlement: Mapping[str, Any] | None) -> Refusal:
    """Refuse to repeat a call with a key whose process was killed."""
    begun = "The call with this key was begun and interrupted, and nobody knows how far it came. It was not made again"
    if charge.paid:
        then = f"Look whether it was done. {paid_and_failed(charge.retries_left)}"
    else:
        then = "Nothing was taken: look whether it was done. To make it all the same is a new call; a new call takes a new key."
    return Refusal(
        reason="interrupted",
        text=f"{begun}. {then}",
        status=409,
        settlement=settlement,
        facts={"paid": charge.paid},
        resumes=charge.id if charge.paid else None,
    )


def paid_and_failed(tries: int) -> str:
    """Return what is said behind a tool's own words of a call that was paid for beforehand."""
    if not tries:
        return "This call was paid for and failed each time it was tried. It is not tried again; ask whoever runs this server for a refund."
    return (
        "It was paid for before it was made, and you have not lost that. Do not pay again. Make the same call again, with the same key or"
        f" payment: it costs nothing more, and can be made {tries} more time{'' if tries == 1 else 's'} within a day."
    )


TRIED_OFTEN_ENOUGH: Final = Refusal(reason="retries_exhausted", text=paid_and_failed(0), status=409)


def answer_too_large(limit: int, paid: str | None) -> Refusal:
    """Refuse an answer for its size. `paid`: the charge of one that was paid beforehand."""
    then = (
        "It was paid for before it was made: it can be made again, or ask whoever runs this server for a refund."
        if paid is not None
        else "Nothing was taken."
    )
    return Refusal(
        reason="answer_too_large",
        text=f"The tool's answer is larger than {limit / 1048576:.1f} MiB, which is more than can be sold. {then}",
        status=500,
        resumes=paid,
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
