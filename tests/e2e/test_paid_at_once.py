"""The same paid call many times: at once, and again because its answer was lost. It is run once, paid for once, and answered."""

from __future__ import annotations

import itertools
import json
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from paid_shop import CENT, PAYMENT, RECEIPT, REPLAYED, Customer, Shop, answer_of, open_shop, reason_of
from programs import until
from task_clients import CORE, META, MODERN, text_of

pytestmark = pytest.mark.slow

TIMES = 20


@pytest.fixture(scope="module")
def shop(shared_home: Path) -> Iterator[Shop]:
    with open_shop(shared_home) as shop:
        shop.open()
        yield shop


@pytest.fixture(scope="module")
def hands() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(TIMES) as hands:
        yield hands


@pytest.fixture(params=["a stranger", "a member"])
def customer(shop: Shop, request: pytest.FixtureRequest) -> Customer:
    return shop.stranger() if request.param == "a stranger" else shop.member()


_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"call-{next(_names)}"


def paid_once(shop: Shop, customer: Customer) -> bool:
    return (shop.settled(customer), shop.booked(customer)) == (1, CENT)


def test_the_same_payment_many_times_at_once_is_one_call(
    shop: Shop, hands: ThreadPoolExecutor, customer: Customer, name: str
) -> None:
    payment = customer.sign("held", name)
    calls = [
        hands.submit(each.call, "held", name, payment=payment)
        for each in [customer.another() for _ in range(TIMES)]
    ]
    shop.await_note(f"{name} runs")
    shop.let_go(name)
    told = Counter[str]()
    for heard in [call.result() for call in calls]:
        assert heard.status == 200
        told[reason_of(heard) if heard.result.get("isError") else answer_of(heard)] += 1
    assert told[f"{name} was run 1"] >= 1
    assert set(told) <= {f"{name} was run 1", "in_flight", "payment_used"}
    assert (shop.runs(name), paid_once(shop, customer)) == (1, True)
    (seen,) = shop.seen(customer)
    assert (seen["verify_calls"], seen["settle_calls"]) == (1, 1)


def test_a_fresh_signature_while_the_call_runs_is_not_sent_to_be_settled(
    shop: Shop, hands: ThreadPoolExecutor, customer: Customer, name: str
) -> None:
    asked = customer.price("held", name)
    first = hands.submit(customer.call, "held", name, payment=customer.sign_for(asked))
    shop.await_note(f"{name} runs")
    others = [customer.another() for _ in range(3)]
    fresh = [hands.submit(other.call, "held", name, payment=customer.sign_for(asked)) for other in others]
    if shop.seen(customer)[0]["from"] and customer.wire.token is None:
        until("all to be verified", lambda: len(shop.seen(customer)) == 4 or None)
    shop.let_go(name)
    for call in (first, *fresh):
        heard = call.result()
        assert answer_of(heard) == f"{name} was run 1"
        assert heard.result["_meta"][RECEIPT]["success"] is True
    assert (shop.runs(name), paid_once(shop, customer)) == (1, True)
    assert sum(row["settle_calls"] for row in shop.seen(customer)) == 1


@pytest.mark.parametrize("version", [MODERN, CORE])
@pytest.mark.parametrize("again", ["same", "fresh"])
def test_whoever_left_before_the_answer_finds_it(shop: Shop, version: str, again: str, name: str) -> None:
    customer = shop.stranger(version=version)
    asked = customer.price("sold", name)
    first, fresh = customer.sign_for(asked), customer.sign_for(asked)
    shop.switch(settle="slow:0.5", times=1)
    with RawCall(customer, "sold", name, first):
        until("the payment to be sent", lambda: shop.settled(customer) or None)
    until("it to be booked", lambda: shop.booked(customer) or None)
    heard = customer.call("sold", name, payment=first if again == "same" else fresh)
    assert answer_of(heard) == f"{name} was run 1"
    assert heard.result["_meta"][REPLAYED] is True
    assert (shop.runs(name), paid_once(shop, customer)) == (1, True)
    # Now it was answered: the next one is another call.
    assert reason_of(customer.call("sold", name, payment=first)) == "payment_used"


def test_an_answer_that_nobody_read_to_its_end_is_given_again(
    shop: Shop, customer: Customer, name: str
) -> None:
    asked = customer.price("large", name)
    with RawCall(customer, "large", name, customer.sign_for(asked)):
        until("it to be booked", lambda: shop.booked(customer) or None)
    heard = customer.call("large", name, payment=customer.sign_for(asked))
    assert text_of(heard.result).strip() == f"{name} was run 1"
    assert (shop.runs(name), paid_once(shop, customer)) == (1, True)


def test_a_payment_is_for_one_call_of_one_caller(shop: Shop, name: str) -> None:
    customer, member, other = shop.stranger(), shop.member("one"), shop.member("two")
    other.payer = member.payer
    payment = member.sign("sold", name)
    assert answer_of(member.call("sold", name, payment=payment)) == f"{name} was run 1"
    for thief in (other, member):
        for tool, arguments in (("sold", name), ("sold", f"{name}-2"), ("other", name)):
            heard = thief.call(tool, arguments, payment=payment)
            assert reason_of(heard) in ("payment_used", "invalid_resource"), (tool, arguments)
    assert reason_of(customer.call("sold", name, payment=payment)) == "invalid_resource"
    assert (shop.runs(name), paid_once(shop, member)) == (1, True)


def test_after_all_of_it_the_books_agree_with_the_chain(shop: Shop) -> None:
    shop.check_books()
    assert not [row for row in shop.charges() if row["state"] != "done"]


class RawCall:
    """A request, and nobody who reads its answer; then the connection is cut."""

    def __init__(self, customer: Customer, tool: str, name: str, payment: dict[str, Any]) -> None:
        wire = customer.wire
        modern = wire.version == MODERN
        meta: dict[str, Any] = {PAYMENT: payment}
        if modern:
            meta |= {
                f"{META}/protocolVersion": MODERN,
                f"{META}/clientInfo": {"name": "tests", "version": "1"},
                f"{META}/clientCapabilities": {},
            }
        params = {"name": tool, "arguments": {"name": name}, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        host, _, path = wire.url.removeprefix("http://").partition("/")
        address, _, port = host.partition(":")
        lines = [
            f"POST /{path} HTTP/1.1",
            f"Host: {host}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(body)}",
            f"MCP-Protocol-Version: {wire.version}",
            *((f"Authorization: Bearer {wire.token}",) if wire.token else ()),
            *(("Mcp-Method: tools/call", f"Mcp-Name: {tool}") if modern else ()),
        ]
        self._address = (address, int(port))
        self._request = ("\r\n".join(lines) + "\r\n\r\n").encode() + body

    def __enter__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect(self._address)
        self._socket.sendall(self._request)

    def __exit__(self, *_: object) -> None:
        self._socket.close()
