"""A payment that a facilitator refuses in words of its own: it ends when its time is over, if each try was refused, and at no other time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing

from server.payments.seller.deposits import Deposited, Depositor
from server.payments.seller.offers import Offer
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.priced_call import Refusal, Served, Shown, Started
from server.payments.seller.settlement import Settlements
from server.payments.x402.chain_client import LATE_SECONDS, ChainUnreachable
from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.payment_payload import Payment
from server.payments.x402.settlements import AlreadyUsed, Rejected, SettleOutcome, Unknown
from server.store.jobs import StoreUnavailable
from tests.payments.seller.held_facilitators import Sent, hold_settlements
from tests.payments.seller.open_till import (
    ANN,
    ANSWER,
    NOT_CERTAIN,
    WALLET,
    OpenTill,
    a_call,
    an_offer,
    open_till,
)
from tests.payments.x402.builders import TRANSACTION

SENT_MS = 420_000

AMOUNT = 5_000_000
DEPOSIT = Offer(server="main", tool="deposit", amount=AMOUNT, version="deposit")
WHO = Depositor(wallet=WALLET, caller=ANN)
NETWORK = "eip155:84532"
DAY = 86_400_000
DOWN = FacilitatorDown("nobody there")
CUT_OFF = Unknown(problem="cut off")
# Refusals that leave it open whether this try, or one before, carried the payment out.
OPEN = [
    Rejected(code=code, sentence="No.", said=code, certain=False)
    for code in ("insufficient_funds", "transaction_would_fail", "transaction_failed")
]
PURPOSES = ("call", "deposit")


class FakeChain:
    """A node that knows of no transfer, and what time it is."""

    def __init__(self, at: OpenTill) -> None:
        self.at = at
        self.reachable = True

    async def find_transfer(self, *_: object) -> None:
        if not self.reachable:
            raise ChainUnreachable("is gone")

    async def authorization_lapsed(self, _asset: str, _payer: str, _nonce: str, valid_before: int) -> bool:
        return self.at.now // 1000 - 12 >= valid_before + LATE_SECONDS  # its last block

    async def authorization_cancelled(self, *_: object) -> bool:
        return False


def says(at: OpenTill, *said: SettleOutcome | FacilitatorDown, then: SettleOutcome | FacilitatorDown) -> None:
    at.facilitators.outcomes = [*said, *[then] * 1000]


async def shown(at: OpenTill, purpose: str, payment: Payment) -> Any:
    if purpose == "deposit":
        found = await at.deposits().take(AMOUNT, payment, WHO)
        return found if isinstance(found, Deposited) else found.refusal
    begun = await at.till.begin(a_call(), an_offer(), Shown(payment=payment))
    return await at.till.finish(begun, ANSWER) if isinstance(begun, Started) else begun


def a_payment(at: OpenTill, purpose: str) -> Payment:
    return at.payment(DEPOSIT, below="") if purpose == "deposit" else at.payment()


async def row_of(at: OpenTill) -> Any:
    (row,) = await at.rows("payments")
    return row


async def looks_until(at: OpenTill, until: int, settlements: Settlements | None = None) -> list[int]:
    """Look each time that it is to be looked, as long as there is no outcome: when that was."""
    looked: list[int] = []
    while (row := await row_of(at))["state"] in ("settling", "unknown") and row["next_try_at"] <= until:
        at.now = max(at.now, row["next_try_at"])
        looked.append(at.now)
        await (settlements or at.settlements)._look()  # pyright: ignore[reportPrivateUsage]
        await trio.testing.wait_all_tasks_blocked()
    at.now = until
    return looked


def told_end(refusal: Any) -> int | None:
    """The moment that a refusal names."""
    assert isinstance(refusal, Refusal), refusal
    assert refusal.reason == "settlement_unknown"
    before, utc, _ = refusal.text.partition(" UTC")
    return (
        int(datetime.fromisoformat(f"{before[-19:]}+00:00").astimezone(UTC).timestamp()) * 1000
        if utc
        else None
    )


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_one_that_is_refused_each_time_ends_by_itself_when_it_said(purpose: str) -> None:
    async with open_till() as at:
        says(at, then=NOT_CERTAIN)
        payment = a_payment(at, purpose)
        ends = told_end(await shown(at, purpose, payment))
        over = payment.authorization.valid_before * 1000
        assert ends is not None
        assert over + LATE_SECONDS * 1000 <= ends <= over + 2 * LATE_SECONDS * 1000
        await looks_until(at, ends - 1)
        assert told_end(await shown(at, purpose, payment)) == ends
        await looks_until(at, ends)
        row = await row_of(at)
        assert (row["state"], row["ended_at"]) == ("refused", ends)
        assert await at.rows("charges") == await at.rows("movements") == []
        again = await shown(at, purpose, payment)
        assert (again.reason, again.asks) == ("settlement_failed", True)
        sent = len(at.facilitators.settled)
        await looks_until(at, ends + DAY)
        assert len(at.facilitators.settled) == sent
        at.facilitators.outcomes = []
        assert isinstance(await shown(at, purpose, a_payment(at, purpose)), Served | Deposited)


@pytest.mark.parametrize("other", [CUT_OFF, AlreadyUsed(said="used"), *OPEN], ids=str)
async def test_one_whose_first_try_may_have_carried_it_out_never_ends_by_itself(other: Any) -> None:
    async with open_till() as at:
        says(at, other, then=NOT_CERTAIN)
        assert told_end(await shown(at, "call", at.payment())) is None
        await looks_until(at, at.now + DAY)
        assert (await row_of(at))["state"] == "unknown"


@pytest.mark.parametrize("refusals", [1, 3])
@pytest.mark.parametrize("other", [CUT_OFF, *OPEN], ids=str)
async def test_one_of_which_a_later_try_may_have_carried_it_out_never_ends_by_itself(
    other: Any, refusals: int
) -> None:
    async with open_till() as at:
        says(at, *[NOT_CERTAIN] * refusals, other, then=NOT_CERTAIN)
        payment = at.payment()
        assert told_end(await shown(at, "call", payment)) is not None
        await looks_until(at, at.now + 200_000)
        assert told_end(await shown(at, "call", payment)) is None
        await looks_until(at, at.now + DAY)
        assert (await row_of(at))["state"] == "unknown"


@pytest.mark.parametrize("said", ["refused each time (1): x", "refused each time (2): x"])
async def test_what_a_facilitator_says_is_not_taken_for_what_is_known(said: str) -> None:
    async with open_till() as at:
        says(at, CUT_OFF, then=Rejected(code="odd", sentence="No.", said=said, certain=False))
        await shown(at, "call", at.payment())
        await looks_until(at, at.now + DAY)
        assert (await row_of(at))["state"] == "unknown"


@pytest.mark.parametrize("downs", [1, 1000])
async def test_a_try_that_reached_nobody_changes_nothing(downs: int) -> None:
    async with open_till() as at:
        says(at, NOT_CERTAIN, *[DOWN] * downs, then=NOT_CERTAIN)
        payment = at.payment()
        ends = told_end(await shown(at, "call", payment))
        assert ends is not None
        await looks_until(at, ends - 1)
        assert told_end(await shown(at, "call", payment)) == ends
        await looks_until(at, ends)
        assert (await row_of(at))["state"] == "refused"


async def test_one_that_could_not_be_sent_at_first_ends_as_well() -> None:
    async with open_till() as at:
        says(at, DOWN, then=NOT_CERTAIN)
        ends = told_end(await shown(at, "call", at.payment()))
        assert ends is not None
        await looks_until(at, ends)
        assert (await row_of(at))["state"] == "refused"


async def test_it_is_tried_when_its_time_is_over_whatever_was_said() -> None:
    async with open_till() as at:
        says(at, then=CUT_OFF)
        await shown(at, "call", at.payment())
        over_at = PaymentRow.of(await row_of(at)).over_at
        looked = await looks_until(at, at.now + DAY)
        assert over_at in looked
        assert len(looked) < 200


# ── where a process dies, or stands still ────────────────────────────────────────────────────────────────────────────


async def bought(at: OpenTill, purpose: str, nursery: trio.Nursery, refusals: int) -> list[Sent]:
    """A payment that was refused so often, and is being sent."""
    sent, payment = hold_settlements(at), a_payment(at, purpose)
    nursery.start_soon(shown, at, purpose, payment)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(refusals):
        await sent[-1].is_told(NOT_CERTAIN)
        at.now = (await row_of(at))["next_try_at"]
        await at.look()
    assert len(sent) == refusals + 1
    return sent


def refuses(at: OpenTill) -> None:
    async def settle(*_: object, **__: object) -> SettleOutcome:
        return NOT_CERTAIN

    at.facilitators.settle = settle


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("refusals", [0, 1, 3])
async def test_one_whose_process_died_while_it_was_sent_never_ends_by_itself(
    purpose: str, refusals: int
) -> None:
    async with open_till() as at, trio.open_nursery() as nursery:
        sent = await bought(at, purpose, nursery, refusals)
        refuses(at)
        at.now += 11_000
        other = at.made_settlements("boot-2")
        await nursery.start(other.run)
        await trio.testing.wait_all_tasks_blocked()
        await looks_until(at, at.now + DAY, other)
        assert (await row_of(at))["state"] == "unknown"
        await sent[-1].is_told(NOT_CERTAIN)  # or its caller is still waited for
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("refusals", [0, 1, 3])
async def test_one_whose_turn_ran_out_never_ends_by_itself(refusals: int) -> None:
    async with open_till() as at, trio.open_nursery() as nursery:
        sent = await bought(at, "call", nursery, refusals)
        other = at.made_settlements("boot-1")  # what the first has in hand is not taken up
        await nursery.start(other.run)
        refuses(at)
        at.now += SENT_MS
        await looks_until(at, at.now + DAY, other)
        assert (await row_of(at))["state"] == "unknown"
        await sent[-1].is_told(NOT_CERTAIN)
        nursery.cancel_scope.cancel()


async def test_one_whose_process_died_between_two_tries_ends_by_itself() -> None:
    async with open_till() as at, trio.open_nursery() as nursery:
        says(at, then=NOT_CERTAIN)
        ends = told_end(await shown(at, "call", at.payment()))
        assert ends is not None
        at.now += 1_000
        other = at.made_settlements("boot-2")
        await nursery.start(other.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (await row_of(at))["owner"] is None
        await looks_until(at, ends, other)
        assert (await row_of(at))["state"] == "refused"
        nursery.cancel_scope.cancel()


async def test_a_refusal_at_the_end_is_of_the_turn_in_which_it_was_said() -> None:
    """The other node's try carried it out: nobody may say that nothing was."""
    async with open_till() as at, trio.open_nursery() as nursery:
        sent = await bought(at, "call", nursery, 1)
        other = at.made_settlements("boot-1")
        await nursery.start(other.run)
        at.now += SENT_MS + DAY  # its time is over
        await other._look()  # pyright: ignore[reportPrivateUsage]
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent) == 3
        await sent[1].is_told(NOT_CERTAIN)
        assert (await row_of(at))["state"] == "unknown"
        await sent[2].is_told()
        row = await row_of(at)
        assert (row["state"], row["transaction_hash"]) == ("settled", TRANSACTION)
        assert "after_refusal" not in at.heard.getvalue()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("job", ["unknown", "tried_again", "book_refused"])
@pytest.mark.parametrize("lost", [False, True])
async def test_one_ends_where_the_store_was_away_for_a_moment(job: str, lost: bool) -> None:
    async with open_till() as at:
        says(at, then=NOT_CERTAIN)
        ends = told_end(await shown(at, "call", at.payment()))
        assert ends is not None
        left = [job]

        def once(name: str) -> bool:
            return name in left and not left.remove(name)

        if lost:
            at.store.losing = once
        else:
            at.store.failing = lambda name: StoreUnavailable("no room") if once(name) else None
        await looks_until(at, ends)
        await at.look()
        await at.look()
        assert left == []
        assert (await row_of(at))["state"] == "refused"


# ── where a node of the network is asked ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("said", [NOT_CERTAIN, CUT_OFF])
async def test_where_the_chain_is_asked_it_says_when_it_ends(said: Any) -> None:
    async with open_till() as at:
        at.chains[NETWORK] = FakeChain(at)
        says(at, then=said)
        ends = told_end(await shown(at, "call", at.payment()))
        assert ends is not None
        await looks_until(at, ends - 1)
        assert (await row_of(at))["state"] == "unknown"
        await looks_until(at, ends)
        assert (await row_of(at))["state"] == "refused"


async def test_where_the_chain_is_to_be_asked_nobody_else_says_that_it_is_over() -> None:
    async with open_till() as at:
        at.chains[NETWORK] = FakeChain(at)
        at.chains[NETWORK].reachable = False
        says(at, then=NOT_CERTAIN)
        await shown(at, "call", at.payment())
        await looks_until(at, at.now + DAY)
        assert (await row_of(at))["state"] == "unknown"


async def test_one_that_was_used_before_it_was_sent_says_no_end() -> None:
    async with open_till() as at:
        at.chains[NETWORK] = FakeChain(at)
        says(at, then=AlreadyUsed(said="used"))
        assert told_end(await shown(at, "call", at.payment())) is None


async def test_whoever_waits_for_the_same_call_is_told_when_it_ends() -> None:
    async with open_till() as at:
        says(at, then=NOT_CERTAIN)
        ends = told_end(await shown(at, "call", at.payment()))
        assert told_end(await shown(at, "call", at.payment())) == ends
