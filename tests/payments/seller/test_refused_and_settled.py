"""A payment that one process hears refused, and another settled: money that moved is in the books, and nobody is told for good that it did
not. What each process hears is true of the time that it sent the payment, and of no other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from server.payments.seller import claims
from server.payments.seller.deposits import Deposited, Depositor
from server.payments.seller.offers import Offer
from server.payments.seller.priced_call import Refusal, Served, Shown, Started
from server.payments.seller.settlement import Settlements
from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.payment_payload import Payment
from server.payments.x402.settlements import Unknown
from server.store.jobs import StoreUnavailable
from tests.payments.seller.books_fakes import balances, checked
from tests.payments.seller.held_facilitators import Sent, hold_settlements
from tests.payments.seller.open_till import (
    ANN,
    ANSWER,
    REFUSED,
    WALLET,
    OpenTill,
    a_call,
    an_offer,
    no_room,
    open_till,
    reason,
)
from tests.payments.x402.builders import TRANSACTION

AMOUNT = 5_000_000
DEPOSIT = Offer(server="main", tool="deposit", amount=AMOUNT, version="deposit")
WHO = Depositor(wallet=WALLET, caller=ANN)
DOWN = FacilitatorDown("nobody there")


class Bought:
    """One payment, of a call or a deposit, that its process has sent and not heard of."""

    def __init__(self, at: OpenTill, purpose: str, *, good_for: int = 7200) -> None:
        self.at = at
        self.deposits = purpose == "deposit"
        until = str(at.now // 1000 + good_for)
        offer, below = (DEPOSIT, "") if self.deposits else (an_offer(), "call/")
        self.payment: Payment = at.payment(offer, below=below, validBefore=until)
        self.told: Any = None

    async def run(self) -> None:
        self.told = await self.shown()

    async def shown(self) -> Any:
        if self.deposits:
            found = await self.at.deposits().take(AMOUNT, self.payment, WHO)
            return found if isinstance(found, Deposited) else found.refusal
        begun = await self.at.till.begin(a_call(), an_offer(), Shown(payment=self.payment))
        return await self.at.till.finish(begun, ANSWER) if isinstance(begun, Started) else begun


@asynccontextmanager
async def sent_by_one(
    at: OpenTill, purpose: str, *, good_for: int = 7200
) -> AsyncGenerator[tuple[Bought, list[Sent], trio.Nursery]]:
    sent, bought = hold_settlements(at), Bought(at, purpose, good_for=good_for)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bought.run)
        await trio.testing.wait_all_tasks_blocked()
        assert [each.repeated for each in sent] == [False]
        yield bought, sent, nursery
        nursery.cancel_scope.cancel()


async def taken_over(at: OpenTill, nursery: trio.Nursery) -> Settlements:
    """The first process stands still for so long that another takes it for dead, and its payment in hand."""
    at.now += 11_000
    other = at.made_settlements("boot-2")
    await nursery.start(other.run)
    await trio.testing.wait_all_tasks_blocked()
    return other


async def payment_of(at: OpenTill) -> Any:
    (payment,) = await at.rows("payments")
    return payment


async def books_agree(at: OpenTill, target: str) -> None:
    """The chain moved it once, and so did the books."""
    (movement,) = await at.rows("movements")
    assert movement["target"] == target
    found = await checked(at.store.inner, at.books)
    assert found.is_right
    assert found.movements == 1
    assert sum((await at.store.inner.read(balances)).values()) == 0


TARGETS = {"call": "revenue:main/search", "deposit": f"wallet:{WALLET}"}


@pytest.mark.parametrize("cut_off", [False, True])
@pytest.mark.parametrize("purpose", TARGETS)
async def test_a_refusal_is_of_the_turn_in_which_it_was_said(purpose: str, cut_off: bool) -> None:
    """The second transfer emptied the wallet, and that is why the first was refused."""
    async with open_till() as at, sent_by_one(at, purpose) as (bought, sent, nursery):
        if cut_off:  # then it is written when the other has taken over
            at.store.failing = no_room("book_refused")
            await sent[0].is_told(REFUSED)
        await taken_over(at, nursery)
        assert [each.repeated for each in sent] == [False, True]
        at.store.failing = lambda name: None
        if cut_off:
            await at.look()
        else:
            await sent[0].is_told(REFUSED)
        assert (await payment_of(at))["state"] in ("settling", "unknown")
        assert isinstance(bought.told, Refusal)
        assert bought.told.reason == "settlement_unknown"
        await sent[1].is_told()
        assert (await payment_of(at))["transaction_hash"] == TRANSACTION
        await books_agree(at, TARGETS[purpose])
        assert not isinstance(await bought.shown(), Refusal)


@pytest.mark.parametrize("purpose", TARGETS)
async def test_that_it_could_not_be_sent_says_nothing_of_what_others_sent(purpose: str) -> None:
    async with open_till() as at, sent_by_one(at, purpose, good_for=60) as (bought, sent, nursery):
        await taken_over(at, nursery)
        await sent[1].is_told(Unknown(problem="no answer"))
        at.now += 60_000
        await sent[0].is_told(DOWN)
        assert (await payment_of(at))["state"] == "unknown"
        assert bought.told.reason == "settlement_unknown"
        await at.look()
        assert sent[2].repeated
        await sent[2].is_told()
        await books_agree(at, TARGETS[purpose])


async def test_what_nobody_else_has_sent_is_refused_for_certain() -> None:
    """Though the turn was another's in between: that one could not send it."""
    async with open_till() as at, sent_by_one(at, "call", good_for=60) as (bought, sent, _):
        await sent[0].is_told(DOWN)
        assert bought.told.reason == "settlement_unknown"
        at.now += 70_000
        await at.look()
        assert [each.repeated for each in sent] == [False, False]
        await sent[1].is_told(DOWN)
        assert (await payment_of(at))["state"] == "refused"
        assert await at.rows("charges") == await at.rows("movements") == []


UNASSIGNED = {"call": "unassigned", "deposit": f"wallet:{WALLET}"}


@pytest.mark.parametrize("written", ["at once", "in doubt", "later"])
@pytest.mark.parametrize("purpose", UNASSIGNED)
async def test_money_that_moved_after_all_is_booked_once_and_never_silently(
    purpose: str, written: str
) -> None:
    """It was taken for refused: an owner looked it up at the wrong place, or a node said that it had lapsed."""
    async with open_till() as at, sent_by_one(at, purpose) as (bought, sent, _):
        payment = await payment_of(at)
        job = partial(claims.book_refused, payment_id=payment["id"], problem="It lapsed.", now=at.now)
        assert await at.store.inner.write(job)
        left = ["book_settled"]

        def once(name: str) -> bool:
            return name in left and not left.remove(name)

        if written == "in doubt":
            at.store.losing = once
        elif written == "later":
            at.store.failing = lambda name: StoreUnavailable("no room") if once(name) else None
        await sent[0].is_told()
        await at.look()
        if not isinstance(bought.told, Deposited):  # whose money is there
            assert bought.told.reason in ("settlement_failed", "settled_after_refusal")
        payment = await payment_of(at)
        assert (payment["state"], payment["transaction_hash"]) == ("settled", TRANSACTION)
        await books_agree(at, UNASSIGNED[purpose])
        assert "payment.settled_after_refusal" in at.heard.getvalue()
        trail = [row["event"] for row in await at.rows("audit")]
        assert trail.count("payment.settled_after_refusal") == 1
        again = await bought.shown()
        if purpose == "deposit":
            assert isinstance(again, Deposited)
            assert (await at.wallet())["balance"] == AMOUNT
        else:
            assert reason(again) == "settled_after_refusal"
        await books_agree(at, UNASSIGNED[purpose])


async def test_an_outcome_of_which_no_row_is_left_is_told() -> None:
    async with open_till() as at, sent_by_one(at, "call") as (_, sent, _background):
        await at.store.inner.write(lambda db: db.execute("DELETE FROM payments"))
        await sent[0].is_told()
        assert "payment.settled_without_row" in at.heard.getvalue()


async def test_it_is_known_to_be_settled_by_both_and_booked_by_one() -> None:
    async with open_till() as at, sent_by_one(at, "call") as (bought, sent, nursery):
        await taken_over(at, nursery)
        await sent[1].is_told()
        await sent[0].is_told()
        await books_agree(at, TARGETS["call"])
        assert isinstance(bought.told, Served)
        assert "after_refusal" not in at.heard.getvalue()
