"""A server of ours that is open and sells, the ways to it, and what must agree whenever somebody paid: the chain, the books, and how often a
tool ran.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from fault_proxy import FaultProxy, Which, fault_proxy
from local_chain import ChainAccount, TestDollar
from mcp_calls import call_tool
from our_payers import OURS
from paid_house import PRICE, PaidHouse
from payers import PAYERS, Paid, Payer, SignedCall, demanded, signed
from programs import WAIT_SECONDS, Server, until

MONEY = 1_000_000  # what a payer has at first
PAYMENT = "x402/payment"
Houses = Callable[..., PaidHouse]


@dataclass(frozen=True, kw_only=True)
class Counter:
    """A house that is open, and the way to it."""

    house: PaidHouse
    server: Server
    buying: FaultProxy  # between payers and the server

    def call_of(self, payer: Payer, what: str, tool: str = "sell") -> tuple[str, Any]:
        if payer.over_mcp:
            return f"{self.buying.url}/mcp", {"name": tool, "arguments": {"what": what}}
        return f"{self.buying.url}/main/call/{tool}", {"what": what}

    def pay(self, name: str, account: ChainAccount, what: str, tool: str = "sell") -> Paid:
        """With a fresh signature; our own clients with that of before, where it has no answer. "by hand" is a client over MCP that does no
        more than it must."""
        if name == "by hand":
            return self._by_hand(account, what, tool)
        if name in OURS:
            url = f"{self.buying.url}/mcp"
            return OURS[name](account, self.house.folder, url, tool, {"what": what})
        payer = PAYERS[name]
        return payer.pay(account, *self.call_of(payer, what, tool))

    def _by_hand(self, account: ChainAccount, what: str, tool: str) -> Paid:
        try:
            served, said = self.send(signed(account, self.demand(what, tool)), what, tool)
        except httpx2.HTTPError as error:
            return Paid(status=None, body=None, receipt=None, failed=True, error=repr(error))
        return Paid(status=None, body=said, receipt=None, failed=not served, error=None)

    def demand(self, what: str, tool: str = "sell", *, wire: str = "mcp") -> Mapping[str, Any]:
        if wire == "mcp":
            return call_tool(f"{self.buying.url}/mcp", tool, {"what": what})["structuredContent"]
        url = f"{self.buying.url}/main/call/{tool}"
        return demanded(url, {"what": what}, version=1 if wire == "http-v1" else 2)

    def send(
        self, payment: SignedCall, what: str, tool: str = "sell", *, wire: str = "mcp"
    ) -> tuple[bool, str]:
        """One call with this payment: whether it was served, and what was said."""
        if wire == "mcp":
            meta = {PAYMENT: payment.payment}
            result = call_tool(f"{self.buying.url}/mcp", tool, {"what": what}, meta)
            return not result.get("isError"), result["content"][0]["text"]
        url = f"{self.buying.url}/main/call/{tool}"
        answer = httpx2.post(
            url, json={"what": what}, headers=payment.headers, trust_env=False, timeout=WAIT_SECONDS
        )
        assert answer.status_code in (200, 402, 409, 429, 503), (answer.status_code, answer.text)
        return answer.status_code == 200, answer.text


def of(account: ChainAccount, path: str) -> Which:
    """Requests for this path that are about a payment of this account."""
    payer = account.address.lower().encode()
    return lambda exchange: exchange.path == path and payer in exchange.body.lower()


@contextmanager
def open_counter(house: PaidHouse) -> Generator[Counter]:
    with house.serving() as server, fault_proxy(server.url, port=house.ports[1]) as buying:
        yield Counter(house=house, server=server, buying=buying)


def agrees(counter: Counter, dollar: TestDollar, account: ChainAccount, what: str, *, times: int = 1) -> None:
    """So often the tool ran for this, the money of this payer moved, and the books have it."""
    assert counter.house.runs.count(what) == times
    assert dollar.balance(account.address) == MONEY - times * PRICE
    spent = [each.transaction for each in dollar.spent_by(account.address)]
    rows = counter.house.rows(
        "SELECT movements.*, transaction_hash FROM movements JOIN payments ON payments.id = payment_id"
        " WHERE payer = ? ORDER BY seq",
        account.address,
    )
    assert [row["transaction_hash"] for row in rows] == spent
    assert [(row["kind"], row["amount"]) for row in rows] == [("payment", PRICE)] * times


def books_agree_with_chain(house: PaidHouse, dollar: TestDollar) -> None:
    """All that came to the seller was earned by a tool or given, and nothing else was."""
    assert dollar.balance(house.seller) == house.revenue() + sum(house.gifts)
    sums = house.rows(
        "SELECT (SELECT sum(balance) FROM accounts) + (SELECT coalesce(sum(balance), 0) FROM wallets) AS all_of_it"
    )
    assert sums == [{"all_of_it": 0}]


def until_served(pay: Callable[[], Paid]) -> Paid:
    """As a client does that nobody answers: it calls again, and signs anew each time."""

    def look() -> Paid | None:
        paid = pay()
        return None if paid.failed else paid

    return until("a call to be served", look)
