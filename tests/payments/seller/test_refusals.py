"""What is said of keys and of trying again, word by word: a model does what it reads, and some words make it pay twice."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import asdict, replace

from server.payments.seller import refusals
from server.payments.seller.charge_rows import Charge
from server.payments.seller.claims import NOT_FETCHED, Uncovered
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.priced_call import Refusal
from tests.payments.seller.open_till import an_offer
from tests.snapshots import Snapshot

OFFER = an_offer(20_000)
PAID = PaymentRow(
    id="pay_1", network="eip155:84532", asset="0x0", payer="0x1", nonce="0x2", proof_hash="", purpose="call", fingerprint="", server="main",
    caller="", wallet=None, atomic="20000", amount=20_000, currency="USD", pay_to="0x3", valid_before=0, requirements="", created_at=0,
    expires_at=0,
)  # fmt: skip
PAGE = "https://shop.example/account/you"
HELD = Charge(
    id="chg_1", call_key="", fingerprint="", keyed=True, state="interrupted", paid=False, how="balance", server="main", tool="search",
    call_id="", caller="", client_id=None, grant_id=None, wallet=None, amount=20_000, currency="USD", price="", spent="[]",
    payment_id=None, retries_left=0, owner=None, created_at=0, expires_at=0,
)  # fmt: skip
USED_UP = Uncovered(reason="payment_required", due=20_000, used_up="trial_exhausted")
POOR = Uncovered(reason="balance_too_low", due=20_000, balance=0)

# After these the very same call is to come again: with what it was paid with.
TRY_AGAIN = {
    "asks_payment": refusals.asks_payment(OFFER),
    "balance, payable": refusals.not_covered(OFFER, POOR, page=PAGE, payable=True),
    "balance, not payable": refusals.not_covered(OFFER, POOR, page=PAGE, payable=False),
    "facilitator_down": refusals.FACILITATOR_DOWN,
    "unknown_outcome": refusals.unknown_outcome("pay_1"),
    "unknown_outcome, with its end": refusals.unknown_outcome("pay_1", 1_795_000_000_000),
    "unknown_outcome, of no payment": refusals.unknown_outcome(None),
    "not_written": refusals.NOT_WRITTEN,
    "in_flight": refusals.IN_FLIGHT,
    "without_its_key": refusals.WITHOUT_ITS_KEY,
}
# After these nobody can know whether money moves: nothing else may be paid meanwhile.
OPEN = ("unknown_outcome", "unknown_outcome, with its end", "unknown_outcome, of no payment", "not_written", "in_flight", "without_its_key")  # fmt: skip
ALL: dict[str, Refusal] = {
    **TRY_AGAIN,
    "payment_used": refusals.PAYMENT_USED,
    "settled_after_refusal": refusals.settled_after_refusal(PAID),
    "other_call_of_key": refusals.OTHER_CALL_OF_KEY,
    "answer_gone": refusals.ANSWER_GONE,
    "interrupted": refusals.interrupted(HELD, None),
    "interrupted, paid": refusals.interrupted(replace(HELD, paid=True, retries_left=3), {"success": True}),
    "tried_often_enough": refusals.TRIED_OFTEN_ENOUGH,
    "too_many_failures": refusals.too_many_failures(4),
    "bad_payment": refusals.bad_payment(OFFER, "invalid_network", "Not on that network."),
    "answers_not_fetched": refusals.not_covered(
        OFFER, Uncovered(reason=NOT_FETCHED), page=PAGE, payable=True
    ),
    "no price": refusals.no_price("the tool's price was not computed"),
    "no price for arguments": refusals.no_price_for_arguments("that has no price"),
    "login required": refusals.NOT_WITHOUT_LOGIN,
    "unreadable": refusals.unreadable("invalid_payload", "that is no payment"),
    "not settled": refusals.not_settled(PAID, OFFER),
    "answer unreadable": refusals.ANSWER_UNREADABLE,
    "answer too large": refusals.answer_too_large(1 << 20, None),
    "answer too large, paid": refusals.answer_too_large(1 << 20, "chg_1"),
    "spend cap": refusals.not_covered(
        OFFER, Uncovered(reason="spend_cap_exceeded", words="the cap"), page=PAGE, payable=True
    ),
    "quota": refusals.not_covered(OFFER, Uncovered(reason="quota_exhausted"), page=PAGE, payable=True),
    "plan required": refusals.not_covered(OFFER, Uncovered(reason="plan_required"), page=PAGE, payable=True),
    "used up, payable": refusals.not_covered(OFFER, USED_UP, page=PAGE, payable=True),
    "used up": refusals.not_covered(OFFER, Uncovered(reason="trial_exhausted"), page=PAGE, payable=True),
    "used up, poor": refusals.not_covered(
        OFFER, replace(POOR, used_up="trial_exhausted"), page=PAGE, payable=True
    ),
    "unheard of": refusals.not_covered(OFFER, Uncovered(reason="no_such_way"), page=PAGE, payable=True),
}


def _told(name: str, said: Refusal) -> list[str]:
    """Return all that it says, whatever it will say besides, too."""
    wait = "" if said.retry_after is None else f", again after {said.retry_after} s"
    asks = ", asks for a payment" if said.asks else ""
    rest = asdict(said)
    for told in ("reason", "text", "asks", "retry_after", "status"):
        del rest[told]
    besides = [f"  {field}: {value}" for field, value in rest.items() if value]
    return [name, f"  {said.status} {said.reason}{asks}{wait}: {said.text}", *besides]


def test_the_words_of_the_till(snapshot: Snapshot) -> None:
    lines = [line for name, said in ALL.items() for line in _told(name, said)]
    lines += [f"paid, failed, {tries} tries left\n  {refusals.paid_and_failed(tries)}" for tries in (2, 1, 0)]
    snapshot("till", "\n".join(lines))


@pytest.mark.parametrize("name", TRY_AGAIN)
def test_whoever_is_to_try_again_is_told_with_what(name: str) -> None:
    text = TRY_AGAIN[name].text
    assert "same key" in text or "same idempotency key" in text
    assert "same payment" in text or "same key or payment" in text


@pytest.mark.parametrize("name", OPEN)
def test_where_money_may_be_moving_nobody_is_asked_to_pay(name: str) -> None:
    assert "Do not pay again." in ALL[name].text
    assert not ALL[name].asks  # or a client would sign anew


@pytest.mark.parametrize("name", ALL)
def test_no_words_lead_to_a_new_key_for_the_same_call(name: str) -> None:
    text = ALL[name].text.lower()
    for trap in (
        "unique",
        "every request",
        "each request",
        "every call",
        "fresh key",
        "another key",
        "different key",
    ):
        assert trap not in text
    # Wherever a new key is spoken of, it is said what for.
    assert all("a new call" in part for part in re.split("[.;] ", text) if "new key" in part)


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_whoever_paid_for_what_failed_is_led_to_the_same_call(tries: int) -> None:
    text = refusals.paid_and_failed(tries)
    assert "Do not pay again." in text and "the same key or payment" in text
    assert f"{tries} more time" in text and "new key" not in text


def test_the_price_is_said_before_the_balance() -> None:
    text = TRY_AGAIN["balance, payable"].text
    assert text.startswith("search costs $0.02") and "balance is $0.00" in text


def test_what_was_used_up_is_said_before_the_price() -> None:
    text = ALL["used up, payable"].text
    assert text.index("free trial") < text.index("search costs $0.02") < text.index("Pay with x402")
