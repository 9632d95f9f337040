"""Calls of our server, paid on a chain by clients that others wrote: each is paid for once, runs once, and is in the books once, however many
ask for it at once.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from counter import MONEY, Counter, agrees, books_agree_with_chain, of
from fault_proxy import Fault, paying, to
from local_chain import ChainAccount, TestDollar
from our_payers import OURS
from payers import PAYERS, signed
from programs import until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

TOGETHER = 20


@pytest.mark.parametrize("name", [*PAYERS, *OURS])
def test_a_payer_pays_once_and_chain_books_and_tool_agree(
    name: str, counter: Counter, dollar: TestDollar
) -> None:
    account = dollar.rich(MONEY)
    paid = counter.pay(name, account, name)
    assert paid.error is None
    assert not paid.failed, paid
    assert f"{name}, run 1" in str(paid.body)
    agrees(counter, dollar, account, name)
    assert paid.transaction == dollar.spent_by(account.address)[0].transaction
    books_agree_with_chain(counter.house, dollar)


@pytest.mark.parametrize("name", ["mcp", "fetch-v2", *OURS])
def test_a_call_that_fails_costs_nothing(name: str, counter: Counter, dollar: TestDollar) -> None:
    account = dollar.rich(MONEY)
    assert counter.pay(name, account, f"broken {name}", "break_").failed
    assert counter.house.runs.count(f"broken {name}") == 1
    assert dollar.spent_by(account.address) == []
    assert dollar.balance(account.address) == MONEY


@pytest.mark.parametrize("name", ["mcp", "fetch-v2", *OURS])
def test_a_free_tool_beside_a_priced_one_is_free(name: str, counter: Counter, dollar: TestDollar) -> None:
    account = dollar.rich(MONEY)
    assert not counter.pay(name, account, "nothing", "give").failed
    assert dollar.balance(account.address) == MONEY


# ── the same payment many times ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", ["mcp", "http-v2", "http-v1"])
@pytest.mark.parametrize("held", ["verify", "tool", "settle"])
def test_one_payment_sent_twenty_times_at_once_runs_once_and_settles_once(
    wire: str, held: str, counter: Counter, dollar: TestDollar
) -> None:
    """`held` is where the first of them stands still until all have come."""
    account, what = dollar.rich(MONEY), f"at once, {wire} {held}"
    payment = signed(account, counter.demand(what, wire=wire))
    settling, buying = counter.house.settling, counter.buying
    before = len(buying.seen(paying))
    with ThreadPoolExecutor(TOGETHER) as senders:
        with held_at(counter, held, account):
            sent = [senders.submit(counter.send, payment, what, wire=wire) for _ in range(TOGETHER)]
            buying.await_seen(paying, before + TOGETHER)
        answers = [each.result() for each in sent]
    served = [said for was_served, said in answers if was_served]
    assert served
    assert all(f"{what}, run 1" in said for said in served)
    for was_served, said in answers:
        assert was_served or len(said) > 20, said
    assert len(settling.seen(of(account, "/settle"))) == 1
    agrees(counter, dollar, account, what)


@contextmanager
def held_at(counter: Counter, where: str, account: ChainAccount) -> Generator[None]:
    if where == "tool":
        with counter.house.tools_waiting():
            yield
    else:
        counter.house.settling.always(to(f"/{where}"), Fault.HOLD)
        yield
        counter.house.settling.await_seen(of(account, f"/{where}"), answered=True)
        counter.house.settling.heal()


def test_a_payment_that_was_answered_buys_nothing_more(counter: Counter, dollar: TestDollar) -> None:
    account, what = dollar.rich(MONEY), "answered"
    payment = signed(account, counter.demand(what))
    assert counter.send(payment, what)[0]
    assert not counter.send(payment, "something else")[0]

    def refused() -> str | None:
        """At first it may be given its answer again."""
        served, said = counter.send(payment, what)
        assert not served or f"{what}, run 1" in said
        return None if served else said

    assert "used" in until("the payment to be spent", refused)
    agrees(counter, dollar, account, what)
    assert "something else" not in counter.house.runs


def test_a_payment_for_one_call_buys_no_other(counter: Counter, dollar: TestDollar) -> None:
    account = dollar.rich(MONEY)
    payment = signed(account, counter.demand("this"))
    assert not counter.send(payment, "this", "break_")[0]
    assert dollar.spent_by(account.address) == []
