"""Paid calls of a server that is killed at every step, and of a facilitator that misbehaves in every way it can.

Whatever happens, and whichever way the payer tries again: it pays once, gets what it paid for, and the books agree with the chain.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from paid_shop import CENT, Customer, Shop, answer_of, open_shop, reason_of
from programs import until
from task_clients import Heard

pytestmark = pytest.mark.slow

# What says: make the same call again.
LATER = frozenset({"settlement_unknown", "in_flight"})


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """One for all, with a server that is started again after each death."""
    with (
        tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder,
        open_shop(Path(folder), mortal=True) as shop,
    ):
        yield shop


@pytest.fixture(scope="module")
def hands() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as hands:
        yield hands


class Step(NamedTuple):
    """Where the server dies: by its own hand when a job of the till is written, or from outside once there is a sign of it."""

    what: str
    again: str  # how the payer tries again: with the same payment, or with a fresh one
    dies: str = ""
    verify: str = "ok"
    settle: str = "ok"
    tool: str = "sold"
    runs: int = 1  # how often the tool runs altogether
    known: bool = False  # the payer is logged in as well


STEPS = (
    Step("after reserve", "fresh", dies="after reserve", known=True),
    Step("while the facilitator verifies", "same", verify="hang"),
    Step("after verify", "same", dies="after claim_paid"),
    Step("mid-tool", "same", tool="held", runs=2),
    Step("mid-tool of somebody known", "fresh", tool="held", runs=2, known=True),
    Step("before its settlement is ordered", "fresh", dies="before send", runs=2),
    Step("before settle is sent", "same", dies="after send"),
    Step("before settle is sent", "fresh", dies="after send"),
    Step("after settle was sent and not done", "same", settle="hang"),
    Step("after settle was sent and done", "same", settle="slow:3600"),
    Step("after settle was sent and done", "fresh", settle="slow:3600"),
    Step("after settle was sent and done for somebody known", "fresh", settle="slow:3600", known=True),
    Step("before the settlement is booked", "fresh", dies="before book_settled"),
    Step("before the answer", "same", dies="after book_settled"),
    Step("before the answer", "fresh", dies="after book_settled"),
    Step("paid ahead, before that is booked", "same", dies="before book_settled", tool="ahead"),
    Step("paid ahead, before it runs", "fresh", dies="after take_up", tool="ahead"),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.what}, {step.again}")
def test_a_killed_server_takes_nothing_twice_and_loses_nothing_that_was_paid(
    shop: Shop, hands: ThreadPoolExecutor, step: Step
) -> None:
    name = f"{step.what}-{step.again}".replace(" ", "-")
    shop.open()
    customer = shop.member() if step.known else shop.stranger()
    asked = customer.price(step.tool, name)
    first, fresh = customer.sign_for(asked), customer.sign_for(asked)
    if step.tool == "ahead":
        shop.let_go(name)
    shop.switch(verify=step.verify, settle=step.settle)
    shop.order(step.dies)
    lost = hands.submit(customer.call, step.tool, name, payment=first)
    if step.dies:
        shop.await_death()
    else:
        until("a sign that it is there", lambda: is_there(shop, customer, step, name) or None)
        shop.kill()
    assert isinstance(lost.exception(), httpx2.TransportError)
    shop.switch(verify="ok", settle="ok")
    shop.open()
    shop.let_go(name)
    heard = until_told(customer.another(), step.tool, name, first if step.again == "same" else fresh)
    assert answer_of(heard) == f"{name} was run {step.runs}"
    assert shop.runs(name) == step.runs
    assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)
    assert [row["state"] for row in shop.payments(customer)] == ["settled"]
    assert not [row for row in shop.charges() if row["state"] != "done"]
    assert shop.wallet()[1] == 0


def is_there(shop: Shop, customer: Customer, step: Step, name: str) -> bool:
    if step.tool == "held":
        return shop.runs(name) == 1
    calls = "verify_calls" if step.verify != "ok" else "settle_calls"
    return sum(row[calls] for row in shop.seen(customer)) == 1


def until_told(customer: Customer, tool: str, name: str, payment: dict[str, Any]) -> Heard:
    """As a client that is told to make the same call again does."""

    def look() -> Heard | None:
        heard = customer.call(tool, name, payment=payment)
        return None if heard.result.get("isError") and reason_of(heard) in LATER else heard

    return until("a call to come to something", look)


def test_after_all_of_it_the_books_agree_with_the_chain(shop: Shop) -> None:
    shop.open()
    shop.check_books()
