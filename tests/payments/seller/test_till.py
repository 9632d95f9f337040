"""A call at the till, step by step: every outcome of begin, finish and release, and what is left in the rows afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.identity_model import PrincipalKind
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.payments.seller import claims, statements
from server.payments.seller.offers import PricedTool
from server.payments.seller.payment_requirements import PaymentOffers
from server.payments.seller.priced_call import Earlier, Refusal, Served, Shown, Started
from server.payments.seller.refunds import RefundOrder, refund
from server.payments.seller.till import Till
from server.payments.x402.facilitators import FacilitatorDown
from server.payments.x402.settlements import AlreadyUsed, Unknown
from server.settings.money_settings import PriceTable
from server.store.jobs import JobTooSlow, StatementFailed, StoreUnavailable
from server.store.maintenance import sweep
from server.store.retention import Retention
from tests.payments.seller.open_till import (
    ANSWER,
    BOOT,
    NOT_CERTAIN,
    REFUSED,
    WALLET,
    OpenTill,
    a_call,
    an_offer,
    anonymous,
    no_room,
    open_till,
    reason,
)
from tests.payments.seller.till_fakes import priced
from tests.payments.x402.builders import PAYER, TRANSACTION


async def _nothing_is_left(at: OpenTill) -> None:
    """Of a call that came to nothing."""
    assert await at.rows("charges") == []
    assert await at.rows("payments") == []
    assert all(row["held"] == 0 for row in await at.rows("wallets"))


# ── on a balance ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_call_is_held_for_then_charged_and_over_when_its_answer_was_given() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        assert (await at.wallet())["held"] == 10_000
        served = await at.till.finish(begun, ANSWER)
        assert isinstance(served, Served)
        wallet = await at.wallet()
        assert (wallet["balance"], wallet["held"]) == (40_000, 0)
        at.written(served)
        await at.look()
        assert await at.rows("charges") == []


async def test_a_call_that_comes_to_nothing_costs_nothing() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        await at.till.release(begun)
        assert (await at.wallet())["balance"] == 50_000
        await _nothing_is_left(at)


async def test_too_little_is_refused_and_nothing_held() -> None:
    async with open_till() as at:
        await at.give(9_999)
        assert reason(await at.till.begin(a_call(), an_offer(), Shown())) == "balance_too_low"
        await _nothing_is_left(at)


async def test_without_balances_a_call_is_paid_for_by_itself() -> None:
    async with open_till() as at:
        await at.give(50_000)
        till = at.made_till(at.settlements, BOOT, balances=False)
        refused = await till.begin(a_call(), an_offer(), Shown())
        assert reason(refused) == "payment_required"
        assert isinstance(refused, Refusal) and refused.asks
        await _nothing_is_left(at)
        begun = await till.begin(a_call(), an_offer(), Shown(payment=at.payment()))
        assert isinstance(begun, Started) and begun.charge.how == "payment"


async def test_an_answer_that_was_not_given_is_given_to_the_same_call_and_charged_once() -> None:
    async with open_till() as at:
        await at.give(50_000)
        assert isinstance(await at.pays(a_call(), an_offer()), Served)
        again = await at.pays(a_call(), an_offer())
        assert isinstance(again, Earlier)
        assert again.answer == ANSWER
        assert (await at.wallet())["balance"] == 40_000


@pytest.mark.parametrize(
    ("how", "then", "left"),
    [
        (lambda till, begun: till.finish(begun, ANSWER), Earlier, 40_000),
        (lambda till, begun: till.release(begun), Started, 50_000),
        (lambda till, begun: till.interrupt(begun), Started, 50_000),
    ],
    ids=["finished", "released", "interrupted"],
)
async def test_the_same_call_at_the_same_time_goes_on_as_soon_as_the_first_has_ended(
    how: Callable[[Till, Started], Awaitable[object]], then: type, left: int
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        found: list[object] = []
        async with trio.open_nursery() as nursery:

            async def join() -> None:
                found.append(await at.till.begin(a_call(), an_offer(), Shown()))

            nursery.start_soon(join)
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            await how(at.till, begun)
            await trio.testing.wait_all_tasks_blocked()
            assert [type(each) for each in found] == [then]
            nursery.cancel_scope.cancel()
        assert (await at.wallet())["balance"] == left


async def test_the_same_call_at_another_node_waits_for_the_first_and_is_given_its_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        other = at.made_till(at.made_settlements("boot-2"), "boot-2")
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        found: list[object] = []
        async with trio.open_nursery() as nursery:

            async def join() -> None:
                found.append(await other.begin(a_call(), an_offer(), Shown()))

            nursery.start_soon(join)
            await trio.sleep(5)
            assert found == []
            await at.till.finish(begun, ANSWER)
            ended = trio.current_time()
        assert trio.current_time() - ended < 1
        assert isinstance(found[0], Earlier) and found[0].answer == ANSWER
        assert (await at.wallet())["balance"] == 40_000


async def test_the_same_call_at_another_node_that_takes_too_long_is_to_be_made_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        other = at.made_till(at.made_settlements("boot-2"), "boot-2")
        assert isinstance(await at.till.begin(a_call(), an_offer(), Shown()), Started)
        assert reason(await other.begin(a_call(), an_offer(), Shown())) == "in_flight"
        assert len(await at.rows("charges")) == 1


async def test_a_key_is_for_one_call() -> None:
    async with open_till() as at:
        await at.give(50_000)
        await at.pays(a_call({"q": "one"}), an_offer(), key="k-1")
        assert reason(await at.pays(a_call({"q": "two"}), an_offer(), key="k-1")) == "idempotency_conflict"


@pytest.mark.parametrize("error", [StoreUnavailable("no room"), JobTooSlow("too slow")])
async def test_what_could_not_be_charged_is_not_held_either(error: Exception) -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        at.store.failing = lambda name: error if name == "finish" else None
        with pytest.raises(type(error)):
            await at.till.finish(begun, ANSWER)
        assert (await at.wallet())["balance"] == 50_000
        await _nothing_is_left(at)


async def test_what_could_not_be_released_is_as_soon_as_there_is_room() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        at.store.failing = no_room("release")
        await at.till.release(begun)
        await at.look()
        assert (await at.wallet())["held"] == 10_000
        at.store.failing = lambda name: None
        await at.look()
        await _nothing_is_left(at)


async def test_a_job_that_can_never_be_done_holds_up_nothing_else() -> None:
    async with open_till() as at:
        await at.give(50_000)
        first = await at.till.begin(a_call({"q": 1}), an_offer(), Shown())
        second = await at.till.begin(a_call({"q": 2}), an_offer(), Shown())
        assert isinstance(first, Started)
        assert isinstance(second, Started)
        at.store.failing = no_room("release")
        await at.till.release(first)
        await at.till.release(second)
        errors: list[Exception] = [StatementFailed("no")]
        at.store.failing = lambda name: errors.pop() if name == "release" and errors else None
        await at.look()
        assert [row["id"] for row in await at.rows("charges")] == [first.id]


async def test_a_job_that_was_slow_once_is_done_with_the_next_look() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        errors: list[Exception] = [JobTooSlow("too slow"), StoreUnavailable("no room")]
        at.store.failing = lambda name: errors.pop() if name == "release" and errors else None
        await at.till.release(begun)
        await at.look()
        assert (await at.wallet())["held"] == 10_000
        await at.look()
        await _nothing_is_left(at)


async def test_the_end_of_the_server_is_no_crash_where_nothing_can_be_written() -> None:
    async with open_till() as at:
        await at.give(50_000)
        served = await at.pays(a_call(), an_offer())
        at.written(served)
        at.store.failing = no_room("apply_marks")


async def test_what_was_handed_over_and_never_taken_is_released() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        at.till.hand_over(begun)
        await at.look()
        assert (await at.wallet())["held"] == 10_000
        at.now += 10 * 60_000
        await at.look()
        assert at.till.take_over(begun.id) is None
        await _nothing_is_left(at)


# ── with a payment ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_payment_is_settled_once_and_its_answer_is_found_again() -> None:
    async with open_till() as at:
        payment = at.payment()
        assert isinstance(await at.pays(a_call(), an_offer(), payment=payment), Served)
        assert isinstance(await at.pays(a_call(), an_offer(), payment=payment), Earlier)
        assert isinstance(await at.pays(a_call(), an_offer(), payment=at.payment()), Earlier)
        assert len(at.facilitators.settled) == 1
        assert [row["state"] for row in await at.rows("payments")] == ["settled"]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after a refusal"])
async def test_a_movement_names_its_transaction_long_after_the_call_is_forgotten(late: bool) -> None:
    async with open_till() as at:
        if late:
            at.facilitators.outcomes.append(REFUSED)
        payment = at.payment()
        await at.pays(anonymous(), an_offer(), payment=payment)
        (row,) = await at.rows("payments")
        if late:
            job = partial(
                claims.book_settled, payment_id=row["id"], transaction=TRANSACTION, books=at.books, now=at.now
            )
            await at.store.inner.write(job)
        at.now += 400 * 24 * 3_600_000
        await sweep(at.store.inner, owner="boot-1", clock=lambda: at.now, retention=Retention())
        (movement,) = await at.rows("movements")
        (facts,) = await at.store.inner.read(partial(statements.chain_facts, rows=[movement]))
        assert facts == {
            "transaction": TRANSACTION,
            "payer": PAYER.lower(),
            "pay_to": row["pay_to"],
            "network": row["network"],
            "asset": row["asset"],
        }
        assert all(facts.values())
        assert await at.rows("charges") == []
        again = reason(await at.pays(anonymous(), an_offer(), payment=payment))
        assert again == ("settled_after_refusal" if late else "payment_used")


async def test_a_payment_that_was_answered_pays_for_nothing_more() -> None:
    async with open_till() as at:
        payment = at.payment()
        at.written(await at.pays(a_call(), an_offer(), payment=payment))
        assert reason(await at.pays(a_call(), an_offer(), payment=payment)) == "payment_used"
        assert reason(await at.pays(a_call({"q": "other"}), an_offer(), payment=payment)) == "payment_used"


@pytest.mark.parametrize("verdict", [REFUSED, FacilitatorDown("down")])
async def test_a_payment_that_is_not_verified_leaves_no_row(verdict: object) -> None:
    async with open_till() as at:
        at.facilitators.verdicts.append(verdict)  # type: ignore[arg-type]
        await at.pays(a_call(), an_offer(), payment=at.payment())
        await _nothing_is_left(at)


async def test_a_tool_that_fails_leaves_the_payment_as_good_as_it_was() -> None:
    async with open_till() as at:
        payment = at.payment()
        begun = await at.till.begin(a_call(), an_offer(), Shown(payment=payment))
        assert isinstance(begun, Started)
        await at.till.release(begun)
        await _nothing_is_left(at)
        assert isinstance(await at.pays(a_call(), an_offer(), payment=payment), Served)


async def test_a_refused_settlement_withholds_the_answer() -> None:
    async with open_till() as at:
        at.facilitators.outcomes.append(REFUSED)
        assert reason(await at.pays(a_call(), an_offer(), payment=at.payment())) == "settlement_failed"
        assert await at.rows("charges") == []
        assert await at.rows("movements") == []


@pytest.mark.parametrize("outcome", [Unknown(problem="cut off"), NOT_CERTAIN, AlreadyUsed(said="used")])
async def test_what_is_not_known_is_kept_and_found_out(outcome: object) -> None:
    async with open_till() as at:
        at.facilitators.outcomes.append(outcome)  # type: ignore[arg-type]
        payment = at.payment()
        assert reason(await at.pays(a_call(), an_offer(), payment=payment)) == "settlement_unknown"
        assert reason(await at.pays(a_call(), an_offer(), payment=at.payment())) == "settlement_unknown"
        at.now += 5_000
        await at.look()
        assert isinstance(await at.pays(a_call(), an_offer(), payment=payment), Earlier)
        assert at.facilitators.repeats == [False, True]
        assert len(set(at.facilitators.settled)) == 1
        assert len(await at.rows("movements")) == 1


async def test_an_outcome_that_could_not_be_written_is_written_later() -> None:
    async with open_till() as at:
        at.facilitators.outcomes.append(REFUSED)
        at.store.failing = no_room("book_refused")
        assert reason(await at.pays(a_call(), an_offer(), payment=at.payment())) == "settlement_unknown"
        at.store.failing = lambda name: None
        await at.look()
        assert [row["state"] for row in await at.rows("payments")] == ["refused"]
        assert await at.rows("charges") == []
        assert at.facilitators.repeats == [False]


async def test_a_caller_who_leaves_while_its_payment_is_verified_leaves_nothing() -> None:
    async with open_till() as at:
        at.facilitators.verify_hold = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.till.begin, a_call(), an_offer(), Shown(payment=at.payment()))
            await trio.testing.wait_all_tasks_blocked()
            assert len(await at.rows("payments")) == 1
            nursery.cancel_scope.cancel()
        await _nothing_is_left(at)


async def test_a_caller_who_leaves_while_it_is_settled_finds_the_answer() -> None:
    async with open_till() as at:
        payment, at.facilitators.hold = at.payment(), trio.Event()
        async with trio.open_nursery() as nursery:

            async def pay() -> None:
                await at.pays(a_call(), an_offer(), payment=payment)

            nursery.start_soon(pay)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            at.facilitators.hold.set()
        assert isinstance(await at.pays(a_call(), an_offer(), payment=payment), Earlier)


async def test_a_payment_that_is_settled_late_stays_as_long_as_it_could_be_carried_out() -> None:
    async with open_till() as at:
        payment = at.payment(validBefore=str(at.now // 1000 + 86_000))
        begun = await at.till.begin(a_call(), an_offer(), Shown(payment=payment))
        assert isinstance(begun, Started)
        at.now -= 3_600_000  # the clock was set back
        await at.till.finish(begun, ANSWER)
        (row,) = await at.rows("payments")
        assert row["expires_at"] >= row["valid_before"] * 1000


# ── of nobody in particular ──────────────────────────────────────────────────────────────────────────────────────────


async def test_whoever_reads_a_settled_payment_on_the_chain_gets_no_answer_that_was_given() -> None:
    async with open_till() as at:
        payment = at.payment()
        at.written(await at.pays(anonymous(), an_offer(), payment=payment, key="mine"), keyed=True)
        assert reason(await at.pays(anonymous(), an_offer(), payment=payment)) == "idempotency_key_differs"
        guess = await at.pays(anonymous(), an_offer(), payment=payment, key="guess")
        assert reason(guess) == "idempotency_key_differs"
        assert isinstance(await at.pays(anonymous(), an_offer(), payment=payment, key="mine"), Earlier)


async def test_a_call_with_a_key_is_joined_by_nobody_without_it() -> None:
    async with open_till() as at:
        payment, at.facilitators.hold = at.payment(), trio.Event()
        async with trio.open_nursery() as nursery:

            async def pay() -> None:
                assert isinstance(await at.pays(anonymous(), an_offer(), payment=payment, key="mine"), Served)

            nursery.start_soon(pay)
            await (
                trio.testing.wait_all_tasks_blocked()
            )  # its transaction can be seen now, and the payment in it
            seen: list[object] = []

            async def join() -> None:
                seen.append(await at.pays(anonymous(), an_offer(), payment=payment))

            nursery.start_soon(join)
            await trio.testing.wait_all_tasks_blocked()
            at.facilitators.hold.set()
        assert [reason(each) for each in seen] == ["idempotency_key_differs"]


async def test_whoever_has_a_settled_payment_without_a_key_gets_its_answer_until_it_was_given() -> None:
    async with open_till() as at:
        payment = at.payment()
        served = await at.pays(anonymous(), an_offer(), payment=payment)
        assert isinstance(await at.pays(anonymous(), an_offer(), payment=payment), Earlier)
        at.written(served)
        await at.look()
        assert reason(await at.pays(anonymous(), an_offer(), payment=payment)) == "payment_used"


@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        ({"deadline_seconds": 30.0}, 28.0),
        ({"deadline_seconds": 3.5}, 1.5),
        ({"deadline_seconds": 2.0}, 1.0),
        ({"patient": True}, 3_600.0),
    ],
)
async def test_a_repeat_waits_for_what_is_being_made_as_long_as_its_caller_has(
    call: dict[str, Any], seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        assert isinstance(await at.till.begin(a_call(), an_offer(), Shown(key="mine")), Started)
        began = trio.current_time()
        assert reason(await at.till.begin(a_call(**call), an_offer(), Shown(key="mine"))) == "in_flight"
        assert trio.current_time() - began == pytest.approx(seconds)


@pytest.mark.parametrize("takes", [True, False])
async def test_a_balance_that_is_too_low_asks_for_a_payment_where_one_would_do(
    takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PaymentOffers, "takes_payments", takes)
    async with open_till() as at:
        await at.give(9_999)
        refused = await at.pays(a_call(), an_offer())
        assert isinstance(refused, Refusal)
        assert (refused.reason, refused.asks, refused.status) == ("balance_too_low", takes, 402)
        assert not at.settlements.under_way._running


async def test_who_has_to_wait_for_showing_bad_payments_is_given_what_a_good_one_paid_for() -> None:
    async with open_till() as at:
        payment, call = at.payment(), anonymous(address="192.0.2.1")
        served = await at.pays(call, an_offer(), payment=payment)
        for reasons in ("no_funds", "no_funds"):
            at.facilitators.verdicts = [REFUSED]
            assert reason(await at.pays(call, an_offer(), payment=at.payment())) == reasons
        again = await at.pays(call, an_offer(), payment=payment)
        assert isinstance(again, Earlier) and again.charge_id == served.charge_id
        refused = await at.pays(call, an_offer(), payment=at.payment())
        assert isinstance(refused, Refusal)
        assert (refused.reason, refused.retry_after) == ("too_many_failures", 1)


@pytest.mark.parametrize("wrong", ["what it says", "when it ends", "what the facilitator finds"])
async def test_each_way_to_show_a_bad_payment_counts_until_a_good_one_comes(wrong: str) -> None:
    async with open_till() as at:
        call = anonymous(address="192.0.2.1")
        changes: dict[str, dict[str, Any]] = {
            "what it says": {"to": "0x" + "9" * 40},
            "when it ends": {"validBefore": str(at.now // 1000)},
        }
        bad = at.payment(**changes.get(wrong, {}))

        async def fails() -> tuple[int, bool, int | None]:
            at.facilitators.verdicts = [REFUSED] if wrong == "what the facilitator finds" else []
            refused = await at.pays(call, an_offer(), payment=bad)
            assert isinstance(refused, Refusal)
            return refused.status, refused.asks, refused.retry_after

        assert [await fails() for _ in range(3)] == [(402, True, None), (402, True, None), (429, False, 1)]
        assert await at.rows("payments") == []
        at.facilitators.verdicts = []
        at.now += 1_000
        assert isinstance(await at.pays(call, an_offer(), payment=at.payment()), Served)
        assert [await fails() for _ in range(2)] == [(402, True, None)] * 2
        assert not at.settlements.under_way._running


async def test_a_payment_that_was_used_is_good_for_no_other_call_nor_is_one_forged_after_it() -> None:
    async with open_till() as at:
        payment = at.payment()
        served = await at.pays(anonymous(), an_offer(), payment=payment)
        forged = at.payment(nonce=payment.authorization.nonce, validAfter="1")
        for call, shown in ((anonymous(), forged), (anonymous({"q": "other"}), payment)):
            assert reason(await at.pays(call, an_offer(), payment=shown)) == "payment_used"
        again = await at.pays(anonymous(), an_offer(), payment=payment)
        assert isinstance(again, Earlier) and again.charge_id == served.charge_id
        assert not at.settlements.under_way._running


@pytest.mark.parametrize("version", [1, 2])
async def test_a_payment_whose_time_is_over_is_known_for_the_very_call_that_it_was_shown_for(
    version: int,
) -> None:
    async with open_till() as at:
        payment = at.payment(version=version)
        served = await at.pays(a_call(), an_offer(), payment=payment)
        assert isinstance(served, Served)
        signed = payment.authorization
        forged = at.payment(
            version=version, nonce=signed.nonce, validBefore=str(signed.valid_before), validAfter="1"
        )
        unheard = at.payment(version=version)
        at.now += 3_600_000
        again = await at.pays(a_call(), an_offer(), payment=payment)
        assert isinstance(again, Earlier) and again.charge_id == served.charge_id
        for call, shown in ((a_call({"q": "other"}), payment), (a_call(), forged), (a_call(), unheard)):
            assert reason(await at.pays(call, an_offer(), payment=shown)).endswith("valid_before")


async def test_an_answer_that_may_not_have_arrived_is_given_to_whoever_paid_for_a_moment() -> None:
    async with open_till() as at:
        payment = at.payment()
        served = await at.pays(anonymous(), an_offer(), payment=payment)
        at.till.answered(served.charge_id, keyed=False, keeps_ms=60_000, on_chain=True)
        await at.look()
        at.now += 3_000
        assert isinstance(await at.pays(anonymous(), an_offer(), payment=payment), Earlier)
        at.now += 1
        assert reason(await at.pays(anonymous(), an_offer(), payment=payment)) == "payment_used"


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("on_chain", [False, True])
async def test_an_answer_that_is_given_again_says_how_it_was_paid_and_how_long_it_is_kept(
    keyed: bool, on_chain: bool
) -> None:
    async with open_till() as at:
        await at.give(50_000)
        shown = {
            **({"key": "mine"} if keyed else {}),
            **({"payment": at.payment()} if on_chain else {}),
        }
        offer = an_offer(dedupe_seconds=7)
        served = await at.pays(a_call(), offer, **shown)
        again = await at.pays(a_call(), offer, **shown)
        assert isinstance(again, Earlier)
        assert again.charge_id == served.charge_id
        assert (again.keyed, again.keeps_ms, again.on_chain) == (keyed, 7_000, on_chain)
        assert again.meta.keys() == served.meta.keys()


async def test_a_payment_of_somebody_who_is_logged_in_is_nobody_elses() -> None:
    async with open_till() as at:
        payment = at.payment()
        await at.pays(a_call(), an_offer(), payment=payment)
        assert reason(await at.pays(anonymous(), an_offer(), payment=payment)) == "payment_used"
        other = a_call(caller="user:ben:", wallet="user:ben")
        assert reason(await at.pays(other, an_offer(), payment=payment)) == "payment_used"


# ── paid beforehand ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_was_paid_beforehand_is_owed_and_tried_three_times_more() -> None:
    async with open_till() as at:
        payment = at.payment(an_offer(upfront=True))
        for _ in range(4):
            begun = await at.till.begin(a_call(), an_offer(upfront=True), Shown(payment=payment))
            assert isinstance(begun, Started)
            await at.till.release(begun)
        assert reason(await at.pays(a_call(), an_offer(upfront=True), payment=payment)) == "retries_exhausted"
        assert len(at.facilitators.settled) == 1


async def test_what_was_given_back_is_not_tried_again_for_nothing() -> None:
    async with open_till() as at:
        await at.give(50_000)
        begun = await at.till.begin(a_call(), an_offer(upfront=True), Shown())
        assert isinstance(begun, Started)
        await at.till.release(begun)
        (movement,) = [row for row in await at.rows("movements") if row["kind"] == "charge"]
        order = RefundOrder(refers=movement["seq"])
        await at.store.inner.write(lambda db: refund(db, at.books, order, by="local:0", now=at.now))
        assert (await at.wallet())["balance"] == 50_000
        again = await at.till.begin(a_call(), an_offer(upfront=True), Shown())
        assert isinstance(again, Started)
        assert again.id != begun.id
        assert (await at.wallet())["balance"] == 40_000


async def test_an_answer_that_is_too_large_says_whether_something_was_taken() -> None:
    async with open_till() as at:
        await at.give(50_000)
        large = a_large_answer()
        begun = await at.till.begin(a_call(), an_offer(), Shown())
        assert isinstance(begun, Started)
        refusal = await at.till.finish(begun, large)
        assert "Nothing was taken" in getattr(refusal, "text", "")
        begun = await at.till.begin(a_call(), an_offer(upfront=True), Shown())
        assert isinstance(begun, Started)
        refusal = await at.till.finish(begun, large)
        assert "Nothing was taken" not in getattr(refusal, "text", "")


def a_large_answer() -> ToolResult:
    return ToolResult(content=(TextContent(text="x" * (8 * 1024 * 1024)),))


# ── after a crash ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_dead_process_was_running_is_released_and_what_it_had_sent_is_looked_for() -> None:
    async with open_till() as at:
        await at.give(50_000)
        await at.till.begin(a_call({"q": 1}), an_offer(), Shown())
        await at.till.begin(a_call({"q": 2}), an_offer(), Shown(payment=at.payment()))
        at.facilitators.outcomes.append(Unknown(problem="cut off"))
        await at.pays(a_call({"q": 3}), an_offer(), payment=at.payment())
        next_one = at.made_settlements("boot-2")
        async with trio.open_nursery() as nursery:
            await nursery.start(next_one.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert [row["state"] for row in await at.rows("charges")] == ["done"]
        assert [row["state"] for row in await at.rows("payments")] == ["settled"]
        assert (await at.wallet(WALLET))["held"] == 0


# ── what is told without a call ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_poster_says_what_such_callers_would_pay_and_what_it_is_told_to_add() -> None:
    price = priced(price="$0.01", price_for={"payer": "$0.02"})
    async with open_till() as at:
        for kind, cost, amount in (
            (PrincipalKind.USER, "$0.01", "10000"),
            (PrincipalKind.PAYER, "$0.02", "20000"),
        ):
            poster = at.till.poster(price, kind, "Come in.")
            assert poster is not None and poster.challenge is not None and poster.challenge_v1 is not None
            assert poster.refusal.text == f"search costs {cost} a call. Come in."
            assert (poster.refusal.reason, poster.refusal.asks) == ("payment_required", True)
            assert poster.challenge["error"] == poster.challenge_v1["error"] == poster.refusal.text
            assert {each["amount"] for each in poster.challenge["accepts"]} == {amount}
        bare = at.till.poster(price, PrincipalKind.USER)
        assert bare is not None and "x402" in bare.refusal.text


@pytest.mark.parametrize(
    "price",
    [
        priced(price_for={"payer": "$0.02"}),
        priced(price=PriceTable(expression="0.01 * n")),
        priced(price="plan"),
    ],
    ids=["free", "depends", "plan"],
)
async def test_there_is_no_poster_of_what_is_free_or_depends_or_is_not_paid_for_by_itself(
    price: PricedTool,
) -> None:
    async with open_till() as at:
        assert at.till.poster(price, PrincipalKind.USER) is None
