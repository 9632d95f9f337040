"""Payments that are not good, and facilitators that cannot say whether they are: nothing is run, nothing is taken, and whoever pays is told why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from counter import MONEY, PAYMENT, Counter, Houses, agrees, of, open_counter, until_served
from fault_proxy import SECRET_WORDS, Fault
from local_chain import TestDollar
from mcp_calls import call_tool
from paid_house import PRICE
from payers import signed

pytestmark = [pytest.mark.peers, pytest.mark.slow]

LEAKS = SECRET_WORDS.split()  # what a facilitator said, and no payer may read
INSIDES = ("viem", "Traceback", "reverted")  # words of a facilitator's inside
ATTACKER = "0x00000000000000000000000000000000DeaDBeef"
# What somebody signs who was asked for something else, and says that it was what was asked for.
SIGNED_FOR_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "too little": {"amount": str(PRICE - 1)},
    "too much": {"amount": str(PRICE + 1)},
    "another payee": {"payTo": ATTACKER},
    "another chain": {"network": "eip155:8453"},
    "another name of the token": {"extra": {"name": "USD Coin", "version": "2"}},
    "too short a time": {"maxTimeoutSeconds": 1},
}
# What becomes of a good payment when this stands in it.
ALTERED: Mapping[str, Mapping[str, Any]] = {
    "version 3": {"x402Version": 3},
    "no version": {"x402Version": None},
    "version 1": {"x402Version": 1},
    "another scheme": {"accepted.scheme": "upto"},
    "another network": {"accepted.network": "eip155:8453"},
    "another asset": {"accepted.asset": ATTACKER},
    "another price": {"accepted.amount": "1"},
    "less than was signed": {"payload.authorization.value": "1"},
    "a number for an amount": {"payload.authorization.value": PRICE},
    "an amount with an exponent": {"payload.authorization.value": "1e4"},
    "an amount beyond all": {"payload.authorization.value": str(2**256)},
    "somebody else's money": {"payload.authorization.from": ATTACKER},
    "not valid yet": {"payload.authorization.validAfter": str(2**40)},
    "not valid any more": {"payload.authorization.validBefore": "1"},
    "another nonce": {"payload.authorization.nonce": "0x" + "11" * 32},
    "a short nonce": {"payload.authorization.nonce": "0x11"},
    "a signature of nothing": {"payload.signature": "0x" + "00" * 65},
    "a short signature": {"payload.signature": "0x00"},
    "no signature": {"payload.signature": None},
    "no authorization": {"payload.authorization": []},
    "another resource": {"resource": {"url": "https://else.example/"}},
    "too large": {"extensions": {"padding": "x" * 20_000}},
    "too deep": {"extensions": {"deep": json.loads("[" * 400 + "]" * 400)}},
}
NO_PAYMENT_AT_ALL = (17, True, [], {}, "", "not base64!", "e30=", {"x402Version": 2}, "[" * 1000)


def altered(payment: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    found = json.loads(json.dumps(payment))
    for path, value in changes.items():
        *way, last = path.split(".")
        place = found
        for name in way:
            place = place[name]
        place[last] = value
    return found


def test_payments_that_are_not_good_are_refused_with_a_reason_and_the_good_one_counts_once(
    counter: Counter, dollar: TestDollar
) -> None:
    account, what = dollar.rich(MONEY), "hostile"
    demand = counter.demand(what)
    good = signed(account, demand).payment
    bad: dict[str, Any] = {name: altered(good, changes) for name, changes in ALTERED.items()}
    bad |= {f"{value!r}"[:20]: value for value in NO_PAYMENT_AT_ALL}
    (entry,) = demand["accepts"]
    for name, changes in SIGNED_FOR_OTHERS.items():
        other = signed(account, {**demand, "accepts": [{**entry, **changes}]}).payment
        bad[f"signed for {name}"] = {**other, "accepted": entry}
    for number, (name, payment) in enumerate(bad.items(), 2):
        # Each from an address of its own: whoever fails often is let wait.
        result = call_tool(
            counter.server.endpoint, "sell", {"what": what}, {PAYMENT: payment}, source=f"127.0.1.{number}"
        )
        said = json.dumps(result)
        assert result["isError"] is True, name
        assert len(result["content"][-1]["text"]) > 20, name
        assert not [word for word in INSIDES if word in said], name
        assert dollar.spent_by(account.address) == [], name
    assert what not in counter.house.runs
    assert counter.house.rows("SELECT count(*) AS kept FROM payments WHERE payer = ?", account.address) == [
        {"kept": 0}
    ]
    paid = call_tool(counter.server.endpoint, "sell", {"what": what}, {PAYMENT: good})
    assert not paid.get("isError"), paid
    agrees(counter, dollar, account, what)


@pytest.mark.parametrize(
    "fault", [Fault.REFUSE, Fault.HANG, Fault.FAIL, Fault.LOSE, Fault.CUT, Fault.GATEWAY, Fault.GARBLE]
)
def test_a_payment_that_nobody_can_verify_buys_nothing_and_counts_afterwards(
    fault: Fault, counter: Counter, dollar: TestDollar
) -> None:
    account, what = dollar.rich(MONEY), f"unverified, {fault.name}"
    payment = signed(account, counter.demand(what))
    counter.house.settling.always(of(account, "/verify"), fault)
    served, said = counter.send(payment, what)
    assert not served
    assert len(said) > 20
    assert not [word for word in LEAKS if word in said]
    assert what not in counter.house.runs
    counter.house.settling.heal()
    served, said = counter.send(payment, what)
    assert served, said
    agrees(counter, dollar, account, what)


def test_a_server_whose_facilitator_is_down_starts_refuses_and_sells_when_it_is_back(
    houses: Houses, dollar: TestDollar
) -> None:
    account, what = dollar.rich(MONEY), "down at first"
    house = houses()
    house.settling.always(lambda _: True, Fault.REFUSE)
    with open_counter(house) as counter:
        assert counter.pay("by hand", account, what).failed
        assert not counter.pay("mcp", account, "free", "give").failed
        house.settling.heal()
        assert f"{what}, run 1" in str(until_served(lambda: counter.pay("by hand", account, what)).body)
        agrees(counter, dollar, account, what)
