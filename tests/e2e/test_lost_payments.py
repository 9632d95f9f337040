"""Answers that are lost between payer, server, facilitator and chain, and servers that are killed meanwhile: whoever pays, by signing anew or by
showing the same payment again, pays once, and gets what was paid for.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from counter import MONEY, Counter, Houses, agrees, books_agree_with_chain, of, open_counter, until_served
from fault_proxy import SECRET_WORDS, Fault, paying, to
from local_chain import LocalChain, TestDollar
from our_payers import OURS
from paid_house import PRICE, PaidHouse
from payers import Paid, signed
from programs import until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

LOSERS = ("httpx-v2", "httpx-v1", "fetch-v2", "mcp", "by hand", *OURS)
# One that signs anew each time, over either wire, and those that show what they signed before.
REPEATERS = ("fetch-v2", "by hand", *OURS)
LEAKS = SECRET_WORDS.split()  # what a facilitator said, and no payer may read


@pytest.mark.parametrize("name", LOSERS)
def test_a_payer_whose_connection_ends_after_the_money_moved_signs_anew_and_pays_once(
    name: str, counter: Counter, dollar: TestDollar
) -> None:
    account, what = dollar.rich(MONEY), f"cut off, {name}"
    settling, buying = counter.house.settling, counter.buying
    buying.next(paying, Fault.DROP)
    settling.next(to("/settle"), Fault.HOLD)
    with ThreadPoolExecutor(1) as beside:
        lost = beside.submit(counter.pay, name, account, what)
        settling.await_seen(of(account, "/settle"), answered=True)
        buying.hang_up()
        assert lost.result().failed
    settling.let_go()
    again = counter.pay(name, account, what)
    assert not again.failed, again
    assert f"{what}, run 1" in str(again.body)
    agrees(counter, dollar, account, what)


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.CUT])
@pytest.mark.parametrize("name", REPEATERS)
def test_an_answer_that_is_lost_behind_another_server_is_given_again_where_the_tool_keeps_it(
    name: str, fault: Fault, counter: Counter, dollar: TestDollar
) -> None:
    """Ours was told that it had arrived."""
    account, what = dollar.rich(MONEY), f"lost, {name} {fault.name}"
    counter.buying.next(paying, fault)
    assert counter.pay(name, account, what, "keep").failed
    again = counter.pay(name, account, what, "keep")
    assert not again.failed, again
    assert f"{what}, run 1" in str(again.body)
    agrees(counter, dollar, account, what)


@pytest.mark.parametrize(
    "fault", [Fault.LOSE, Fault.CUT, Fault.GATEWAY, Fault.GARBLE, Fault.FAIL, Fault.REFUSE]
)
@pytest.mark.parametrize("name", REPEATERS)
def test_a_payment_whose_settlement_is_not_heard_of_is_paid_once(
    name: str, fault: Fault, counter: Counter, dollar: TestDollar
) -> None:
    account, what = dollar.rich(MONEY), f"unheard, {name} {fault.name}"
    counter.house.settling.next(to("/settle"), fault)
    heard: list[Paid] = []

    def pay() -> Paid:
        heard.append(counter.pay(name, account, what))
        return heard[-1]

    assert f"{what}, run 1" in str(until_served(pay).body)
    agrees(counter, dollar, account, what)
    for paid in heard:
        assert not [words for words in LEAKS if words in str(paid).replace(what, "")]


def test_without_a_node_the_facilitators_word_is_enough_to_be_paid_once(
    houses: Houses, dollar: TestDollar
) -> None:
    account, what = dollar.rich(MONEY), "no node"
    house = houses(asks_chain=False)
    house.settling.next(to("/settle"), Fault.LOSE)
    with open_counter(house) as counter:
        paid = until_served(lambda: counter.pay("by hand", account, what))
    assert f"{what}, run 1" in str(paid.body)
    assert len(dollar.spent_by(account.address)) == 1
    assert house.runs == [what]
    books_agree_with_chain(house, dollar)


def test_a_chain_that_is_slow_is_waited_for_and_what_was_sent_twice_counts_once(
    houses: Houses, dollar: TestDollar, chain: LocalChain
) -> None:
    account, what = dollar.rich(MONEY), "slow chain"
    house = houses(settle_seconds=2)
    with open_counter(house) as counter:
        with chain.standing_still():
            unknown = counter.pay("by hand", account, what)
            assert unknown.failed
            assert dollar.spent_by(account.address) == []
            chain.await_waiting(1)
            # The server tries again by itself; what it is told then is that the authorization was used, and on the chain it was not.
            house.settling.await_seen(of(account, "/settle"), 2)
        paid = until_served(lambda: counter.pay("by hand", account, what))
        assert f"{what}, run 1" in str(paid.body)
        agrees(counter, dollar, account, what)
    books_agree_with_chain(house, dollar)


def test_whoever_submits_the_payment_while_the_tool_runs_takes_nothing_from_anybody(
    counter: Counter, dollar: TestDollar
) -> None:
    """An authorization is a cheque that anybody may take to the bank; the money goes where it says."""
    account, what = dollar.rich(MONEY), "front-run"
    payment = signed(account, counter.demand(what))
    with ThreadPoolExecutor(1) as beside:
        with counter.house.tools_waiting():
            sent = beside.submit(counter.send, payment, what)
            until("the tool to run", lambda: what in counter.house.runs or None)
            dollar.submit(payment.payment["payload"])
        served, said = sent.result()
    assert served, said
    agrees(counter, dollar, account, what)


def test_a_payment_that_was_spent_elsewhere_runs_nothing(counter: Counter, dollar: TestDollar) -> None:
    account, what = dollar.rich(MONEY), "spent before"
    payment = signed(account, counter.demand(what))
    dollar.submit(payment.payment["payload"])
    counter.house.gifts.append(PRICE)
    served, said = counter.send(payment, what)
    assert not served
    assert "Nothing was taken" in said or "used" in said
    assert what not in counter.house.runs


# ── the server is killed ─────────────────────────────────────────────────────────────────────────────────────────────


class Death(NamedTuple):
    """When the server is killed: when this has come to a call; and how often the tool runs in the end."""

    prepare: Callable[[PaidHouse], None]
    until: Callable[[PaidHouse, str], object]
    runs: int = 1
    settled: bool = False  # the money has moved by then


def hold(path: str, fault: Fault) -> Callable[[PaidHouse], None]:
    return lambda house: house.settling.next(to(path), fault)


def asked(path: str, *, answered: bool) -> Callable[[PaidHouse, str], object]:
    return lambda house, _: house.settling.await_seen(to(path), answered=answered)


def running(house: PaidHouse, what: str) -> object:
    return until("the tool to run", lambda: what in house.runs or None)


DEATHS = {
    "reserved, before it is verified": Death(hold("/verify", Fault.HANG), asked("/verify", answered=False)),
    "reserved, and verified": Death(hold("/verify", Fault.HOLD), asked("/verify", answered=True)),
    "the tool runs": Death(lambda house: (house.agents / "wait").touch(), running, runs=2),
    "sent to be settled, which nobody hears": Death(
        hold("/settle", Fault.HANG), asked("/settle", answered=False)
    ),
    "settled, which nobody has told it": Death(
        hold("/settle", Fault.HOLD), asked("/settle", answered=True), settled=True
    ),
}


@pytest.mark.parametrize("name", REPEATERS)
@pytest.mark.parametrize("when", DEATHS)
def test_a_server_that_is_killed_takes_up_what_it_left_and_is_paid_once(
    when: str, name: str, houses: Houses, dollar: TestDollar
) -> None:
    death, account, what = DEATHS[when], dollar.rich(MONEY), "killed"
    house = houses()
    death.prepare(house)
    with ThreadPoolExecutor(1) as beside, open_counter(house) as counter:
        dying = beside.submit(counter.pay, name, account, what)
        death.until(house, what)
        counter.server.process.kill()
        assert counter.server.process.wait() < 0
        assert dying.result().failed
    (house.agents / "wait").unlink(missing_ok=True)
    house.settling.heal()
    assert len(dollar.spent_by(account.address)) == death.settled
    with open_counter(house) as counter:
        if "settle" in when:  # nobody has to come back for it
            until("the payment to be booked", lambda: house.revenue() or None)
            assert len(dollar.spent_by(account.address)) == 1
        paid = until_served(lambda: counter.pay(name, account, what))
        assert f"{what}, run {death.runs}" in str(paid.body)
        assert house.runs == [what] * death.runs
        assert dollar.balance(account.address) == MONEY - PRICE
        books_agree_with_chain(house, dollar)


@pytest.mark.parametrize("name", REPEATERS)
def test_a_server_that_is_killed_after_it_answered_into_nothing_is_paid_once(
    name: str, houses: Houses, dollar: TestDollar
) -> None:
    account, what = dollar.rich(MONEY), "killed after"
    house = houses()
    with open_counter(house) as counter:
        counter.buying.next(paying, Fault.CUT)
        assert counter.pay(name, account, what).failed
        counter.server.process.kill()
    with open_counter(house) as counter:
        assert f"{what}, run 1" in str(counter.pay(name, account, what).body)
        agrees(counter, dollar, account, what)
    books_agree_with_chain(house, dollar)
