"""Whose turn it is to send a payment, where the store cannot say what it wrote: it is never sent by two at once, one that was sent never
counts as one that was not, and what is known of it stays known."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from server.payments.seller.deposits import Deposited, Depositor
from server.payments.seller.offers import Offer
from server.payments.seller.priced_call import Earlier, Refusal, Served, Shown, Started
from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.settlements import AlreadyUsed, Unknown
from server.store.jobs import JobTooSlow, StoreBroken, StoreUnavailable
from tests.payments.seller.open_till import ANN, ANSWER, WALLET, OpenTill, a_call, an_offer, open_till
from tests.payments.x402.builders import TRANSACTION

DOWN = FacilitatorDown("nobody there")
USED = AlreadyUsed(said="used")
AMOUNT = 5_000_000
DEPOSIT = Offer(server="main", tool="deposit", amount=AMOUNT, version="deposit")
WHO = Depositor(wallet=WALLET, caller=ANN)


async def paid(at: OpenTill) -> Served | Refusal:
    until = str(at.now // 1000 + 7200)
    begun = await at.till.begin(a_call(), an_offer(), Shown(payment=at.payment(validBefore=until)))
    assert isinstance(begun, Started)
    return await at.till.finish(begun, ANSWER)


async def looks(at: OpenTill, *seconds: int) -> None:
    for each in seconds:
        at.now += each * 1000
        await at.look()


def once(at: OpenTill, lost: str) -> None:
    """A job of that name is done, and nobody is told so, the first time."""
    left = [lost]

    def losing(name: str) -> bool:
        if name in left:
            left.remove(name)
            return True
        return False

    at.store.losing = losing


@pytest.mark.parametrize("lost", ["not_sent", "not_begun", "unknown", "tried_again", "send", "book_settled"])
async def test_a_job_of_which_nobody_knows_whether_it_was_done_counts_once(lost: str) -> None:
    async with open_till() as at:
        at.facilitators.outcomes = [DOWN, Unknown(problem="no answer"), DOWN]
        once(at, lost)
        if lost == "not_begun":  # which is written where `send` was in doubt
            names = ["send", "not_begun"]
            at.store.losing = lambda name: name in names and not names.remove(name)
        with suppress(StoreBroken):
            await paid(at)
        await looks(at, 10, 10, 60, 60, 600, 600, 600)
        (payment,) = await at.rows("payments")
        assert payment["state"] == "settled"
        assert payment["transaction_hash"] == TRANSACTION
        # At first nobody was reached, and that was no try. Later it may have been carried out before, whatever is said of it.
        assert at.facilitators.repeats == [False, False, True, True]
        assert payment["tries"] == 3
        assert "crashed" not in at.heard.getvalue()


async def test_that_it_was_used_elsewhere_is_not_forgotten_because_it_could_not_be_looked_up() -> None:
    async with open_till() as at:
        at.facilitators.outcomes = [USED] * 9
        assert isinstance(await paid(at), Refusal)
        (payment,) = await at.rows("payments")
        known = payment["problem"]
        assert known

        def unreadable_once(name: str) -> bool:
            at.store.unreadable = at.store.unreadable or name == "tried_again"
            return False

        at.store.losing = unreadable_once
        await looks(at, 10)
        assert at.store.unreadable
        at.store.losing, at.store.unreadable = lambda name: False, False
        await looks(at, 10, 600, 600)
        (payment,) = await at.rows("payments")
        assert (payment["state"], payment["problem"]) == ("unknown", known)
        assert await at.rows("movements") == []


async def test_whoever_comes_back_does_not_take_it_from_another_whose_turn_it_is() -> None:
    async with open_till() as at:
        cut_off = False

        def lost_and_cut_off(name: str) -> bool:
            nonlocal cut_off
            cut_off = cut_off or name == "send"
            return name == "send"

        at.store.losing = lost_and_cut_off
        at.store.failing = lambda name: StoreUnavailable("cut off") if cut_off else None
        with pytest.raises(Exception, match="lost during a commit"):
            await paid(at)
        at.store.failing, at.store.losing = lambda name: None, lambda name: False
        at.now += 11_000
        other = at.made_settlements("boot-2")
        at.facilitators.hold = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(other.run)  # it has missed the first for long
            await trio.testing.wait_all_tasks_blocked()
            await looks(at, 1, 1, 10)
            assert len(at.facilitators.settled) == 1
            at.facilitators.hold.set()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        (payment,) = await at.rows("payments")
        assert (payment["state"], payment["transaction_hash"]) == ("settled", TRANSACTION)
        assert len(await at.rows("movements")) == 1


async def test_what_is_known_for_certain_is_written_though_the_machine_stood_still() -> None:
    async with open_till() as at:
        slow = [JobTooSlow("too slow")]
        at.store.failing = lambda name: slow.pop() if name == "book_settled" and slow else None
        assert isinstance(await paid(at), Refusal)
        await looks(at, 1)
        (payment,) = await at.rows("payments")
        assert (payment["state"], payment["transaction_hash"]) == ("settled", TRANSACTION)
        assert len(at.facilitators.settled) == 1


async def test_a_deposit_in_doubt_is_not_told_that_nothing_was_done() -> None:
    async with open_till() as at:
        deposits, payment = at.deposits(), at.payment(DEPOSIT, below="")
        once(at, "send_deposit")
        first = await deposits.take(AMOUNT, payment, WHO)
        assert not isinstance(first, Deposited)
        assert first.refusal.reason == "settlement_unknown"
        await looks(at, 1, 1)
        assert isinstance(await deposits.take(AMOUNT, payment, WHO), Deposited)
        assert (await at.wallet())["balance"] == AMOUNT


async def test_of_two_payments_for_one_call_that_was_begun_stays_under_way_until_it_is_served() -> None:
    became: list[Any] = []
    async with open_till() as at:
        under_way = at.settlements.under_way

        async def begin() -> None:
            became.append(await at.till.begin(a_call(), an_offer(), Shown(payment=at.payment(), key="k")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin)
            nursery.start_soon(begin)
            await trio.testing.wait_all_tasks_blocked()
            (begun,) = became
            assert isinstance(begun, Started)
            assert list(under_way._running) == [begun.id]
            await at.till.finish(begun, ANSWER)
        assert isinstance(became[1], Earlier)
        assert became[1].charge_id == begun.id
        assert list(under_way._running) == []
        assert at.facilitators.verified == 2


@pytest.mark.parametrize("hours", [1, 48])
async def test_a_clock_that_is_set_back_keeps_no_payment_waiting(hours: int) -> None:
    async with open_till() as at:
        at.facilitators.outcomes = [Unknown(problem="no answer")]
        assert isinstance(await paid(at), Refusal)
        at.now -= hours * 3_600_000
        await at.look()
        (payment,) = await at.rows("payments")
        assert (payment["state"], payment["tries"]) == ("settled", 2)


async def test_a_little_that_a_clock_is_set_back_delays_a_payment_by_that_at_most() -> None:
    async with open_till() as at:
        at.facilitators.outcomes = [Unknown(problem="no answer")]
        assert isinstance(await paid(at), Refusal)
        at.now -= 60_000
        await looks(at, 0, 30)
        assert [row["tries"] for row in await at.rows("payments")] == [1]
        await looks(at, 32)
        assert [row["state"] for row in await at.rows("payments")] == ["settled"]
