"""Calls that are paid from a balance: charged once each, held while they run, and released whichever way they come to nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from paid_shop import CENT, POOR, REPLAYED, Customer, Shop, answer_of, open_shop, reason_of
from programs import until
from task_clients import CORE, MODERN, Core, Extension, accepted, text_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(shared_home: Path) -> Iterator[Shop]:
    with open_shop(shared_home, mortal=True) as shop:
        shop.open()
        shop.member(cents=1000)
        yield shop


@pytest.fixture(scope="module")
def hands() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as hands:
        yield hands


@pytest.fixture
def member(shop: Shop) -> Customer:
    shop.open()
    return shop.member(capabilities={"elicitation": {}})


_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"call-{next(_names)}"


class Spent:
    """What calls took from the balance since it was made."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._before = shop.wallet()[0]

    @property
    def cents(self) -> int:
        return (self._before - self._shop.wallet()[0]) // CENT

    def await_release(self) -> None:
        until("the hold to be released", lambda: self._shop.wallet()[1] == 0 or None)
        assert not [row for row in self._shop.charges() if row["state"] in ("running", "settling")]


@pytest.fixture
def spent(shop: Shop, member: Customer) -> Spent:
    return Spent(shop)


def test_a_hundred_calls_on_one_deposit_settle_nothing(
    shop: Shop, hands: ThreadPoolExecutor, member: Customer, spent: Spent, name: str
) -> None:
    others = [member.another() for _ in range(4)]

    def call(number: int) -> str:
        return answer_of(others[number % 4].call("sold", f"{name}-{number}"))

    assert list(hands.map(call, range(100))) == [f"{name}-{number} was run 1" for number in range(100)]
    assert spent.cents == 100
    spent.await_release()
    assert shop.ask_facilitator("/test/ledger")["totals"]["settle_calls"] == 0


def test_identical_calls_one_after_the_other_are_calls_of_their_own(
    member: Customer, spent: Spent, name: str
) -> None:
    others = [member, member.another(), member.another()]
    for run in range(1, 13):
        heard = others[run % 3].call("sold", name)
        assert answer_of(heard) == f"{name} was run {run}"
        assert REPLAYED not in heard.result["_meta"]
    assert spent.cents == 12


def test_identical_calls_in_sessions_that_speak_meanwhile_are_calls_of_their_own(
    shop: Shop, spent: Spent, name: str
) -> None:
    customers = [shop.member(version=CORE, capabilities={}) for _ in range(2)]
    for customer in customers:
        customer.wire.begin_session()
    for run in range(1, 13):
        heard = customers[run % 2].wire.call("told", name, _meta={"progressToken": run})
        assert answer_of(heard) == f"{name} was run {run}"
    assert spent.cents == 12


def test_a_key_says_which_calls_are_the_same(member: Customer, spent: Spent, name: str) -> None:
    for number in range(3):
        heard = member.call("sold", name, key=f"key-{name}")
        assert answer_of(heard) == f"{name} was run 1"
        assert heard.result["_meta"].get(REPLAYED, False) is (number > 0)
    assert reason_of(member.call("sold", f"{name}-2", key=f"key-{name}")) == "idempotency_conflict"
    assert answer_of(member.call("sold", name)) == f"{name} was run 2"  # one without a key is another
    assert answer_of(member.call("sold", name, key=f"other-{name}")) == f"{name} was run 3"
    assert spent.cents == 3


def test_a_tool_that_remembers_says_it_again_for_as_long_as_it_was_told_to(
    shop: Shop, member: Customer, spent: Spent, name: str
) -> None:
    for _ in range(4):
        assert answer_of(member.call("remembered", name)) == f"{name} was run 1"
    assert spent.cents == 1


def test_a_tool_that_fails_takes_nothing_and_its_failure_is_the_answer_for_the_key(
    shop: Shop, member: Customer, spent: Spent, name: str
) -> None:
    for run in (1, 2):
        for _ in range(2):
            assert member.call("unlucky", name, key=f"key-{name}-{run}").result["isError"]
            assert shop.runs(name) == run
    assert spent.cents == 0
    spent.await_release()


def test_whoever_closes_the_stream_of_a_stateless_call_pays_nothing(
    shop: Shop, member: Customer, spent: Spent, name: str
) -> None:
    runs = partial(shop.await_note, f"{name} runs")
    member.wire.leave("tools/call", runs, name="held", arguments={"name": name})
    shop.await_note(f"{name} is stopped")
    spent.await_release()
    assert spent.cents == 0


def test_whoever_cancels_in_a_session_pays_nothing(
    shop: Shop, hands: ThreadPoolExecutor, spent: Spent, name: str
) -> None:
    customer = shop.member(version=CORE, capabilities={})
    customer.wire.begin_session()
    call = hands.submit(customer.call, "held", name)
    shop.await_note(f"{name} runs")
    assert shop.wallet()[1] == CENT
    # The requests of a wire are numbered from 1, and `initialize` was the first.
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    other = customer.another()
    other.wire.session = customer.wire.session
    other.wire.send(cancelled)
    shop.await_note(f"{name} is stopped")
    spent.await_release()
    assert spent.cents == 0
    assert call.exception(60) is not None or call.result().result.get("isError")


def test_a_session_whose_client_leaves_finishes_its_call_and_keeps_the_answer(
    shop: Shop, spent: Spent, name: str
) -> None:
    customer = shop.member(version=CORE, capabilities={})
    customer.wire.begin_session()
    runs = partial(shop.await_note, f"{name} runs")
    customer.wire.leave("tools/call", runs, name="held", arguments={"name": name})
    assert shop.wallet()[1] == CENT
    shop.let_go(name)
    spent.await_release()
    assert spent.cents == 1
    heard = customer.call("held", name)
    assert (answer_of(heard), heard.result["_meta"][REPLAYED]) == (f"{name} was run 1", True)
    assert spent.cents == 1


def test_the_last_cent_is_spent_once(shop: Shop, hands: ThreadPoolExecutor, name: str) -> None:
    shop.program.at_machine("ledger", "grant", "token:club:poor", "$0.01")
    customer = shop.member()
    customer.wire.token = POOR
    others = [customer.another() for _ in range(6)]
    calls = [hands.submit(other.call, "held", f"{name}-{n}") for n, other in enumerate(others)]
    until("one to run", lambda: [n for n in range(6) if shop.runs(f"{name}-{n}")] or None)
    for n in range(6):
        shop.let_go(f"{name}-{n}")
    told = sorted(
        reason_of(heard) if heard.result.get("isError") else "served"
        for heard in [call.result() for call in calls]
    )
    assert told == ["balance_too_low"] * 5 + ["served"]


@pytest.mark.parametrize("how", ["from the balance", "with a payment"])
def test_what_was_paid_ahead_and_failed_has_three_free_tries(
    shop: Shop, member: Customer, spent: Spent, name: str, how: str
) -> None:
    if how == "with a payment":
        member = shop.stranger()
    payment = member.sign("ahead", name) if how == "with a payment" else None
    for run in range(1, 5):
        heard = member.call("ahead", name, payment=payment)
        assert "no luck yet" in text_of(heard.result)
        assert shop.runs(name) == run
    assert reason_of(member.call("ahead", name, payment=payment)) == "retries_exhausted"
    assert shop.runs(name) == 4
    paid = shop.settled(member) if payment else spent.cents
    assert paid == 1

    name = f"{name}-again"
    payment = member.sign("ahead", name) if payment else None
    assert member.call("ahead", name, payment=payment).result["isError"]
    shop.let_go(name)
    heard = member.call("ahead", name, payment=payment)
    assert answer_of(heard) == f"{name} was run 2"
    assert ("x402/payment-response" in heard.result["_meta"]) is (payment is not None)
    assert (shop.settled(member) if payment else spent.cents) == 2


def answered(member: Customer, tool: str, name: str, colours: int) -> tuple[dict[str, Any], int]:
    """As a client of 2026-07-28 does: the same call again, with what was asked. Its result, and how many rounds it took."""
    more: dict[str, Any] = {}
    for rounds in range(1, colours + 2):
        result = member.call(tool, name, **more).result
        if result["resultType"] != "input_required":
            return result, rounds
        more = {
            "inputResponses": {key: accepted({"colour": "red"}) for key in result["inputRequests"]},
            "requestState": result["requestState"],
        }
    raise AssertionError(f"it asked more than {colours} times")


def test_a_call_that_asks_is_charged_at_the_round_that_answers(
    shop: Shop, member: Customer, spent: Spent, name: str
) -> None:
    first = member.call("curious", name).result
    assert first["resultType"] == "input_required"
    spent.await_release()
    assert spent.cents == 0
    result, rounds = answered(member, "curious", f"{name}-2", 1)
    assert (text_of(result), rounds, spent.cents) == (f"{name}-2 was run 2: red", 2, 1)


def test_questions_are_no_tries_of_what_was_paid_ahead(
    shop: Shop, member: Customer, spent: Spent, name: str
) -> None:
    result, rounds = answered(member, "curious_ahead", name, 5)
    assert (text_of(result), rounds, spent.cents) == (f"{name}: red red red red red", 6, 1)


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tasks_of(customer: Customer) -> Extension | Core:
    return Extension(customer.wire) if customer.wire.version == MODERN else Core(customer.wire)


@pytest.fixture(params=[MODERN, CORE])
def orderer(shop: Shop, request: pytest.FixtureRequest) -> Customer:
    shop.open()
    return shop.member(version=request.param)


def test_a_task_is_charged_when_it_is_done(shop: Shop, orderer: Customer, spent: Spent, name: str) -> None:
    face = tasks_of(orderer)
    task = face.begin("waited_for", name)
    shop.await_note(f"{name} runs")
    assert (shop.wallet()[1], spent.cents) == (CENT, 0)
    shop.let_go(name)
    assert face.end(task).text == f"{name} was run 1"
    assert spent.cents == 1
    spent.await_release()
    again = face.begin("waited_for", name)
    assert face.end(again).text == f"{name} was run 2"
    assert spent.cents == 2


def test_a_task_that_is_cancelled_takes_nothing(
    shop: Shop, orderer: Customer, spent: Spent, name: str
) -> None:
    face = tasks_of(orderer)
    task = face.begin("waited_for", name)
    shop.await_note(f"{name} runs")
    face.cancel(task)
    shop.await_note(f"{name} is stopped")
    spent.await_release()
    for number in range(5):  # also before it has begun to run
        face.cancel(face.begin("waited_for", f"{name}-{number}"))
    spent.await_release()
    assert spent.cents == 0


@pytest.mark.parametrize("version", [MODERN, CORE])
def test_a_task_has_its_result_only_once_it_is_paid_for(shop: Shop, version: str, name: str) -> None:
    orderer = shop.stranger(version=version)
    payment = orderer.sign("waited_for", name)
    shop.switch(settle="500", times=1)
    face = tasks_of(orderer)
    more: dict[str, Any] = {} if version == MODERN else {"task": {}}
    made = orderer.call("waited_for", name, payment=payment, **more).result
    task = made["taskId"] if "taskId" in made else made["task"]["taskId"]
    shop.await_note(f"{name} runs")
    shop.let_go(name)
    until(
        "the settlement to fail",
        lambda: [row for row in shop.seen(orderer) if row["settle_calls"]] or None,
    )
    assert face.look(task).state == "working"
    assert face.end(task).text == f"{name} was run 1"
    assert (shop.settled(orderer), shop.booked(orderer)) == (1, CENT)


# ── and the server dies ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("dies", "tool", "runs"),
    [
        ("after claim", "sold", 1),
        ("mid-tool", "held", 2),
        ("before finish", "sold", 2),
        ("after finish", "sold", 1),
        ("after claim", "ahead", 1),
        ("before finish", "ahead", 2),
    ],
)
def test_a_killed_server_holds_nothing_and_charges_once(
    shop: Shop, hands: ThreadPoolExecutor, dies: str, tool: str, runs: int
) -> None:
    name = f"{dies}-{tool}".replace(" ", "-")
    shop.open()
    member, spent = shop.member(), Spent(shop)
    if tool == "ahead":
        shop.let_go(name)
    if dies == "mid-tool":
        lost = hands.submit(member.call, tool, name)
        shop.await_note(f"{name} runs")
        shop.kill()
    else:
        shop.order(dies)
        lost = hands.submit(member.call, tool, name)
        shop.await_death()
    assert lost.exception() is not None
    shop.open()
    assert shop.wallet()[1] == 0
    shop.let_go(name)
    assert answer_of(member.another().call(tool, name)) == f"{name} was run {runs}"
    assert spent.cents == 1
    spent.await_release()


def test_after_all_of_it_the_books_are_right(shop: Shop) -> None:
    shop.open()
    shop.check_books()
