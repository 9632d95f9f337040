"""Paid calls of a server that is killed at every step, and of a facilitator that misbehaves in every way it can.

Whatever happens, and whichever way the payer tries again: it pays once, gets what it paid for, and the books agree with the chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from local_chain import ChainAccount
from our_payers import OURS, purse
from paid_shop import CENT, REFUSAL, Customer, Shop, answer_of, open_shop, reason_of
from payers import Paid
from programs import WAIT_SECONDS, until
from task_clients import CORE, MODERN, Heard

from server.payments.test_facilitator.switches import LATE

pytestmark = pytest.mark.slow

# What says: make the same call again.
LATER = frozenset({"settlement_unknown", "in_flight"})


@pytest.fixture(scope="module")
def shop(shared_home: Path) -> Iterator[Shop]:
    """One for all, with a server that is started again after each death."""
    with open_shop(shared_home, mortal=True) as shop:
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


@pytest.mark.parametrize("version", [MODERN, CORE])
@pytest.mark.parametrize("known", [True, False], ids=["balance", "payment"])
@pytest.mark.parametrize("tool", ["held", "held_harmless", "waited_for"])
def test_a_call_with_a_key_that_was_killed_is_run_again_only_if_that_does_no_harm(
    shop: Shop, hands: ThreadPoolExecutor, tool: str, known: bool, version: str
) -> None:
    key = name = f"killed-{tool}-{known}-{version}"
    as_task: dict[str, Any] = {"task": {}} if tool == "waited_for" and version == CORE else {}
    shop.open()
    customer = in_session(shop.member(version=version, cents=5) if known else shop.stranger(version=version))
    payment = None if known else customer.sign(tool, name)
    balance, _ = shop.wallet()
    lost = hands.submit(customer.call, tool, name, payment=payment, key=key, **as_task)
    shop.await_note(f"{name} runs")
    shop.kill()
    lost.exception()  # waits for its end: one that became a task was answered
    shop.open()
    shop.let_go(name)
    again = in_session(customer.another())
    heard = until_told(again, tool, name, payment, key=key, **as_task)
    if tool == "held_harmless":
        assert answer_of(heard) == f"{name} was run 2"
        assert (balance - shop.wallet()[0], shop.settled(customer)) == ((CENT, 0) if known else (0, 1))
        return
    for _ in range(2):
        assert reason_of(heard) == "interrupted"
        heard = again.call(tool, name, payment=payment, key=key, **as_task)
    assert shop.runs(name) == 1
    assert shop.wallet() == (balance, 0)
    assert (shop.settled(customer), shop.payments(customer)) == (0, [])
    if tool == "held":
        assert answer_of(again.call(tool, name, payment=payment, key=f"{key}-2")) == f"{name} was run 2"


def test_one_that_was_paid_beforehand_and_killed_is_run_again_once_its_payer_was_told(
    shop: Shop, hands: ThreadPoolExecutor
) -> None:
    shop.open()
    customer, name = shop.stranger(), "killed-ahead"
    payment = customer.sign("held_ahead", name)
    lost = hands.submit(customer.call, "held_ahead", name, payment=payment, key=name)
    shop.await_note(f"{name} runs")
    shop.kill()
    assert isinstance(lost.exception(), httpx2.TransportError)
    shop.open()
    shop.let_go(name)
    again = customer.another()
    assert reason_of(again.call("held_ahead", name, payment=payment, key=name)) == "interrupted"
    assert shop.runs(name) == 1
    assert answer_of(again.call("held_ahead", name, payment=payment, key=name)) == f"{name} was run 2"
    assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)


@pytest.mark.parametrize("name", OURS)
def test_our_own_payer_makes_an_interrupted_call_again_at_once_and_pays_once(
    shop: Shop, hands: ThreadPoolExecutor, name: str
) -> None:
    shop.open()
    customer, what = shop.stranger(), f"killed-{name}".replace(" ", "")
    account = ChainAccount(customer.payer.address, f"0x{customer.payer.key.secret().hex()}")

    def pay() -> Paid:
        return OURS[name](account, shop.program.home, customer.wire.url, "held", {"name": what})

    lost = hands.submit(pay)
    shop.await_note(f"{what} runs")
    shop.kill()
    assert lost.result().failed
    shop.open()
    shop.let_go(what)
    told = pay()
    assert told.failed and told.body["_meta"][REFUSAL] == {"reason": "interrupted", "paid": False}
    assert (shop.runs(what), shop.payments(customer)) == (1, [])
    again = pay()
    assert not again.failed and f"{what} was run 2" in str(again.body)
    assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)
    spent = purse(account, shop.program.home).ask("wallet", "show")
    assert (spent["spent_today"], spent["unanswered"]) == ("$0.01", [])


def test_over_plain_http_one_that_was_killed_is_told_by_a_status(
    shop: Shop, hands: ThreadPoolExecutor
) -> None:
    shop.open()
    name = "killed-plain"
    token = shop.member(cents=5).wire.token
    headers = {"Idempotency-Key": name, "Authorization": f"Bearer {token}"}

    def post() -> httpx2.Response:
        url = shop.house.endpoint("club").removesuffix("/mcp") + "/call/held"
        return httpx2.post(url, json={"name": name}, headers=headers, trust_env=False, timeout=WAIT_SECONDS)

    lost = hands.submit(post)
    shop.await_note(f"{name} runs")
    shop.kill()
    assert isinstance(lost.exception(), httpx2.TransportError)
    shop.open()
    shop.let_go(name)
    again = post()
    assert (again.status_code, again.json()["error"]) == (409, "interrupted")
    assert (shop.runs(name), shop.wallet()[1]) == (1, 0)


def test_one_whose_caller_leaves_while_it_runs_is_told_the_same(
    shop: Shop, hands: ThreadPoolExecutor
) -> None:
    shop.open()
    customer, name = shop.stranger(), "left-with-a-key"
    payment = customer.sign("held", name)
    left = hands.submit(customer.call, "held", name, payment=payment, key=name)
    shop.await_note(f"{name} runs")
    customer.wire.drop()
    shop.await_note(f"{name} is stopped")
    assert left.exception() is not None
    shop.let_go(name)
    again = customer.another()
    assert reason_of(until_told(again, "held", name, payment, key=name)) == "interrupted"
    assert (shop.runs(name), shop.settled(customer), shop.payments(customer)) == (1, 0, [])


def in_session(customer: Customer) -> Customer:
    """In the era of handshakes."""
    if customer.wire.version == CORE:
        customer.wire.begin_session()
    return customer


def is_there(shop: Shop, customer: Customer, step: Step, name: str) -> bool:
    if step.tool == "held":
        return shop.runs(name) == 1
    calls = "verify_calls" if step.verify != "ok" else "settle_calls"
    return sum(row[calls] for row in shop.seen(customer)) == 1


def until_told(
    customer: Customer, tool: str, name: str, payment: dict[str, Any] | None, **more: Any
) -> Heard:
    """As a client that is told to make the same call again does."""

    def look() -> Heard | None:
        heard = customer.call(tool, name, payment=payment, **more)
        return None if heard.result.get("isError") and reason_of(heard) in LATER else heard

    return until("a call to come to something", look)


# ── the facilitator misbehaves ───────────────────────────────────────────────────────────────────────────────────────

UNAVAILABLE, UNKNOWN = "facilitator_unavailable", "settlement_unknown"
# What it does once, and what the payer is told; "" where there is nothing to tell.
VERIFY = {
    "fail:insufficient_funds": "insufficient_funds",
    "hang": UNAVAILABLE,
    "lost": UNAVAILABLE,
    "500": UNAVAILABLE,
    "garbage": UNAVAILABLE,
    "slow:0.1": "",
}
SETTLE = {
    "fail:insufficient_funds": "settlement_failed",
    "hang": UNKNOWN,
    "lost": UNKNOWN,
    "500": UNKNOWN,
    "garbage": UNKNOWN,
    "504-after-settle": UNKNOWN,
    "late:0.5": UNKNOWN,
    "pending": UNKNOWN,
    "slow:0.1": "",
}


@pytest.mark.parametrize("mode", VERIFY)
def test_what_could_not_be_verified_is_neither_done_nor_lost(shop: Shop, mode: str) -> None:
    shop.open()
    customer, name = shop.stranger(), f"verify-{mode}"
    payment = customer.sign("sold", name)
    shop.switch(verify=mode, times=1)
    heard = customer.call("sold", name, payment=payment)
    if VERIFY[mode]:
        assert reason_of(heard) == VERIFY[mode]
        assert (shop.runs(name), shop.payments(customer)) == (0, [])
        heard = customer.call("sold", name, payment=payment)
    assert answer_of(heard) == f"{name} was run 1"
    assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)


def test_where_nobody_answers_nothing_is_done_and_the_payment_stays_good(shop: Shop) -> None:
    shop.open()
    customer = shop.stranger()
    payment = customer.sign("sold", "down")
    shop.end_facilitating()
    assert reason_of(customer.call("sold", "down", payment=payment)) == UNAVAILABLE
    assert (shop.runs("down"), shop.payments(customer)) == (0, [])
    shop.begin_facilitating()
    assert answer_of(customer.call("sold", "down", payment=payment)) == "down was run 1"


@pytest.mark.parametrize("node", [False, True], ids=["nobody to ask about the chain", "a node of the chain"])
def test_what_was_sent_to_be_settled_is_found_out_and_paid_once(
    shop: Shop, hands: ThreadPoolExecutor, node: bool
) -> None:
    shop.close()
    shop.configure(node=node)
    shop.open()
    left: list[tuple[Customer, str, dict[str, Any], dict[str, Any]]] = []
    for mode, reason in SETTLE.items():
        customer, name = shop.stranger(), f"{mode}-{node}"
        asked = customer.price("sold", name)
        first, fresh = customer.sign_for(asked), customer.sign_for(asked)
        shop.switch(settle=mode, times=1)
        heard = customer.call("sold", name, payment=first)
        at_once = node and shop.settled(customer)  # the chain knew
        waited = mode.startswith(LATE) and not heard.result["isError"]  # the call took as long as that
        if reason == UNKNOWN and not at_once and not waited:
            assert reason_of(heard) == UNKNOWN, mode
            left.append((customer, name, first, fresh))
            continue
        if reason == "settlement_failed":
            # For certain: it says so again, and another payment is another try.
            assert reason_of(heard) == reason_of(customer.call("sold", name, payment=first)) == reason
            assert heard.result["structuredContent"]["accepts"], heard
            assert (shop.settled(customer), shop.booked(customer)) == (0, 0)
            heard = customer.call("sold", name, payment=fresh)
        assert answer_of(heard) == f"{name} was run {2 if reason == 'settlement_failed' else 1}"
        assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)

    # It goes away between the one and the other.
    customer, name = shop.stranger(), f"gone-{node}"
    asked = customer.price("held", name)
    first, fresh = customer.sign_for(asked), customer.sign_for(asked)
    waiting = hands.submit(customer.call, "held", name, payment=first)
    shop.await_note(f"{name} runs")
    shop.end_facilitating()
    shop.let_go(name)
    assert reason_of(waiting.result()) == UNKNOWN
    shop.begin_facilitating()
    gone = (customer, name, first, fresh)

    # What it says of a second try is no word about the first one; but of one that was never sent it is.
    shop.switch(settle="fail:insufficient_funds")
    shop.kill()
    shop.open()
    until("another try of each", lambda: tried_again(shop, left) or None)
    assert not [row for each, *_ in left for row in shop.payments(each) if row["state"] == "refused"]
    customer, name, first, fresh = gone
    until("the first try", lambda: shop.payments(customer)[0]["state"] == "refused" or None)
    assert reason_of(customer.another().call("held", name, payment=first)) == "settlement_failed"
    shop.switch(settle="ok")
    shop.kill()
    shop.open()
    for number, (customer, name, first, fresh) in enumerate(left):
        heard = until_told(customer.another(), "sold", name, fresh if number % 2 else first)
        assert answer_of(heard) == f"{name} was run 1"
        assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)
        assert [row["state"] for row in shop.payments(customer)] == ["settled"]
    customer, name, first, fresh = gone
    assert answer_of(customer.another().call("held", name, payment=fresh)) == f"{name} was run 2"
    assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)
    # Calls with a key that tests before this one interrupted are told so for a day.
    assert not [row for row in shop.charges() if row["state"] not in ("done", "interrupted")]


def tried_again(shop: Shop, left: list[tuple[Customer, str, dict[str, Any], dict[str, Any]]]) -> bool:
    rows = [row for each, *_ in left for row in shop.payments(each)]
    return all(row["tries"] > 1 or row["state"] == "settled" for row in rows)


def test_an_authorization_that_was_used_before_it_was_sent_pays_for_nothing(shop: Shop) -> None:
    """Its payer may have cancelled it while the tool ran; that it stays used is then no proof that it was paid."""
    shop.close()
    shop.configure(node=False)
    shop.open()
    customer, name = shop.stranger(), "cancelled"
    payment = customer.sign("sold", name)
    shop.switch(settle="fail:invalid_exact_evm_nonce_already_used")
    assert reason_of(customer.call("sold", name, payment=payment)) == UNKNOWN
    shop.kill()
    shop.open()
    until("the next try", lambda: [row for row in shop.seen(customer) if row["settle_calls"] == 2] or None)
    assert reason_of(customer.another().call("sold", name, payment=payment)) in LATER
    assert shop.booked(customer) == 0
    shop.switch(settle="ok")
    shop.kill()
    shop.open()
    assert answer_of(until_told(customer.another(), "sold", name, payment)) == f"{name} was run 1"
    assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)


def test_what_was_paid_for_at_another_price_is_found(shop: Shop, hands: ThreadPoolExecutor) -> None:
    shop.open()
    customer, name = shop.stranger(), "dearer"
    payment = customer.sign("sold", name)
    shop.order("after book_settled")
    lost = hands.submit(customer.call, "sold", name, payment=payment)
    shop.await_death()
    assert lost.exception() is not None
    agent = shop.program.home / "agent.py"
    agent.write_text(agent.read_text("utf-8").replace("$0.01", "$0.02"), "utf-8")
    shop.open()
    customer = customer.another()
    assert customer.price("sold", name)["accepts"][0]["amount"] == str(2 * CENT)
    assert answer_of(customer.call("sold", name, payment=payment)) == f"{name} was run 1"
    assert (shop.settled(customer), shop.booked(customer)) == (1, CENT)


def test_after_all_of_it_the_books_agree_with_the_chain(shop: Shop) -> None:
    shop.open()
    shop.check_books()
