"""Deposits whose answer got lost: the same payment is told what became of it, also when its time is over."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from server.payments.seller.deposits import Deposited, Depositor
from server.payments.seller.offers import Offer
from server.payments.seller.payment_requirements import PaymentOffers
from server.payments.seller.priced_call import Unpaid
from server.store.jobs import StoreBroken, StoreUnavailable
from tests.payments.seller.open_till import ANN, NOT_CERTAIN, REFUSED, WALLET, no_room, open_till

KEPT_MS = 86_400_000

AMOUNT = 5_000_000
OFFER = Offer(server="main", tool="deposit", amount=AMOUNT, version="deposit")
WHO = Depositor(wallet=WALLET, caller=ANN)


async def test_a_payment_whose_time_is_over_is_told_that_it_was_deposited() -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        first = await deposits.take(AMOUNT, payment, WHO)
        assert isinstance(first, Deposited)
        at.now += 3_600_000
        again = await deposits.take(AMOUNT, payment, WHO)
        assert isinstance(again, Deposited)
        assert (again.fresh, again.payment_id) == (False, first.payment_id)
        assert (await at.wallet())["balance"] == AMOUNT


@pytest.mark.parametrize("caller", [ANN, ""])
async def test_a_deposit_is_on_record_with_who_made_it_or_else_with_who_paid(caller: str) -> None:
    async with open_till() as at:
        payment = at.payment(OFFER, below="")
        taken = await at.deposits().take(AMOUNT, payment, Depositor(wallet=WALLET, caller=caller))
        assert isinstance(taken, Deposited)
        [row] = await at.rows("payments")
        payer = f"payer:{row['network']}:{row['payer']}"
        assert (row["wallet"], row["caller"]) == (WALLET, caller or payer)


async def test_one_that_was_turned_down_is_let_go_once_that_can_be_written() -> None:
    async with open_till() as at:
        at.facilitators.verdicts, at.store.failing = [REFUSED], no_room("let_go")
        refused = await at.deposits().take(AMOUNT, at.payment(OFFER, below=""), WHO)
        assert isinstance(refused, Unpaid)
        assert [row["state"] for row in await at.rows("payments")] == ["reserved"]
        at.store.failing = lambda name: None
        await at.look()
        assert await at.rows("payments") == []


async def test_one_of_long_ago_tells_nobody_who_reads_it_on_the_chain_a_balance() -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        assert isinstance(await deposits.take(AMOUNT, payment, WHO), Deposited)
        at.now += KEPT_MS
        again = await deposits.take(AMOUNT, payment, WHO)
        assert isinstance(again, Unpaid)
        assert again.refusal.reason == "payment_used"
        assert (await at.wallet())["balance"] == AMOUNT


async def test_one_that_nobody_knows_the_end_of_is_not_told_to_pay_again() -> None:
    async with open_till() as at:
        at.facilitators.outcomes.append(NOT_CERTAIN)
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        first = await deposits.take(AMOUNT, payment, WHO)
        assert isinstance(first, Unpaid)
        at.now += 3_600_000
        again = await deposits.take(AMOUNT, payment, WHO)
        assert isinstance(again, Unpaid)
        assert (again.refusal.reason, again.challenge) == ("settlement_unknown", None)


async def test_one_whose_time_is_over_and_that_nobody_has_seen_is_refused() -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        at.now += 3_600_000
        refused = await deposits.take(AMOUNT, payment, WHO)
        assert isinstance(refused, Unpaid)
        assert refused.challenge is not None
        assert at.facilitators.verified == 0


async def test_where_no_payment_of_that_amount_is_taken_that_is_said_and_none_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        monkeypatch.setattr(PaymentOffers, "requirements", lambda *_: [])
        for refused in (deposits.challenge(AMOUNT), await deposits.take(AMOUNT, payment, WHO)):
            assert isinstance(refused, Unpaid)
            said = refused.refusal
            assert (said.status, said.reason, said.asks, said.retry_after) == (
                400,
                "not_payable",
                False,
                None,
            )
            assert (refused.challenge, refused.challenge_v1) == (None, None)


@pytest.mark.parametrize("wrong", ["what it says", "when it ends", "what the facilitator finds"])
async def test_one_that_is_not_good_is_told_why_and_what_would_be_and_soon_to_wait(wrong: str) -> None:
    async with open_till() as at:
        deposits = at.deposits()
        stranger = Depositor(wallet=None, caller="", address="192.0.2.1")
        changes: dict[str, dict[str, Any]] = {
            "what it says": {"to": "0x" + "9" * 40},
            "when it ends": {"validBefore": str(at.now // 1000)},
        }
        bad = at.payment(OFFER, below="", **changes.get(wrong, {}))

        async def fails() -> tuple[int, bool, int | None]:
            at.facilitators.verdicts = [REFUSED] if wrong == "what the facilitator finds" else []
            refused = await deposits.take(AMOUNT, bad, stranger)
            assert isinstance(refused, Unpaid)
            assert (refused.challenge is not None) is refused.refusal.asks
            return refused.refusal.status, refused.refusal.asks, refused.refusal.retry_after

        told = [await fails() for _ in range(3)]
        assert told == [(402, True, None), (402, True, None), (429, False, 1)]
        assert await at.rows("payments") == []
        at.facilitators.verdicts = []
        at.now += 1_000
        good = await deposits.take(AMOUNT, at.payment(OFFER, below=""), stranger)
        assert isinstance(good, Deposited)
        (row,) = await at.rows("payments")
        assert good.wallet == row["wallet"] == row["caller"] == f"payer:{row['network']}:{row['payer']}"
        assert (good.fresh, good.known, good.amount, good.balance) == (True, True, AMOUNT, AMOUNT)
        # Whoever pays well begins anew.
        assert [await fails() for _ in range(2)] == [(402, True, None)] * 2
        assert not at.settlements.under_way._running


@pytest.mark.parametrize("good", [True, False])
async def test_one_that_is_shown_while_it_is_looked_at_waits_for_what_comes_of_it(good: bool) -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        at.facilitators.verify_hold = trio.Event()
        at.facilitators.verdicts = [] if good else [REFUSED]
        seen: list[Deposited | Unpaid] = []

        async def show() -> None:
            seen.append(await deposits.take(AMOUNT, payment, WHO))

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(show)
                await trio.testing.wait_all_tasks_blocked()
            assert at.facilitators.verified == 1
            at.facilitators.verify_hold.set()
        assert [isinstance(each, Deposited) for each in seen] == [good, True]
        assert [each.fresh for each in seen if isinstance(each, Deposited)][-1] is not good
        assert (await at.wallet())["balance"] == AMOUNT
        assert not at.settlements.under_way._running


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        (None, None, False),  # everything else of it can be read on the chain
        ("mine", "mine", True),
        ("mine", None, False),
        (None, "mine", False),
        ("mine", "guess", False),
    ],
)
async def test_who_has_the_key_of_the_first_is_known_when_it_is_shown_again(
    first: str | None, then: str | None, told: bool
) -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        taken = [
            await deposits.take(AMOUNT, payment, Depositor(wallet=WALLET, caller=ANN, key=key))
            for key in (first, then)
        ]
        known = [(each.fresh, each.known) for each in taken if isinstance(each, Deposited)]
        assert known == [(True, True), (False, told)]


@pytest.mark.parametrize("other", ["signature", "wallet"])
async def test_a_payment_that_was_used_is_good_for_nothing_else(other: str) -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        assert isinstance(await deposits.take(AMOUNT, payment, WHO), Deposited)
        if other == "signature":
            nonce = payment.authorization.nonce
            again = await deposits.take(AMOUNT, at.payment(OFFER, below="", nonce=nonce, validAfter="1"), WHO)
        else:
            again = await deposits.take(AMOUNT, payment, Depositor(wallet="user:ben", caller=ANN))
        assert isinstance(again, Unpaid)
        assert (again.refusal.reason, again.challenge) == ("payment_used", None)


async def test_one_that_another_process_looks_at_is_told_to_come_again() -> None:
    async with open_till() as at:
        payment, elsewhere = at.payment(OFFER, below=""), at.deposits(at.made_settlements("boot-2"))
        at.facilitators.verify_hold = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.deposits().take, AMOUNT, payment, WHO)
            await trio.testing.wait_all_tasks_blocked()
            told = await elsewhere.take(AMOUNT, payment, WHO)
            assert isinstance(told, Unpaid)
            assert (told.refusal.reason, told.challenge) == ("in_flight", None)
            at.facilitators.verify_hold.set()
        again = await elsewhere.take(AMOUNT, payment, WHO)
        assert isinstance(again, Deposited)
        assert (again.fresh, again.balance) == (False, AMOUNT)


async def test_where_nothing_can_be_written_nothing_is_under_way() -> None:
    async with open_till() as at:
        at.store.failing = no_room("reserve")
        with pytest.raises(StoreUnavailable):
            await at.deposits().take(AMOUNT, at.payment(OFFER, below=""), WHO)
        assert not at.settlements.under_way._running


@pytest.mark.parametrize("step", range(1, 7))
async def test_one_whose_writing_was_in_doubt_is_deposited_once_within_seconds(step: int) -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(OFFER, below="")
        first = at.store.jobs

        def lost(number: int) -> None:
            if number == first + step:
                raise StoreBroken("lost during a commit")

        at.store.after = lost
        with suppress(StoreBroken):
            await deposits.take(AMOUNT, payment, WHO)
        at.store.after = lambda number: None
        at.now += 10_000
        for _ in range(3):
            await at.look()
        with trio.fail_after(60):
            assert isinstance(await deposits.take(AMOUNT, payment, WHO), Deposited)
        assert (await at.wallet())["balance"] == AMOUNT
