"""Calls of our server, paid on a chain by clients that others wrote: what is on the chain, what is in the books, and how often a tool ran
agree, whatever is lost between those who take part.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from fault_proxy import SECRET_WORDS, Fault, FaultProxy, Which, fault_proxy, paying, to
from local_chain import ChainAccount, LocalChain, TestDollar
from mcp_calls import call_tool
from paid_house import PRICE, PaidHouse, paid_house
from payers import PAYERS, Paid, Payer, SignedCall, demanded, signed
from programs import WAIT_SECONDS, Server, until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

MONEY = 1_000_000
TOGETHER = 20
Houses = Callable[..., PaidHouse]
PAYMENT = "x402/payment"
LOSERS = ("httpx-v2", "httpx-v1", "fetch-v2", "mcp")
LEAKS = SECRET_WORDS.split()  # what a facilitator said, and no payer may read


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
        """With a fresh signature. "by hand" is a client over MCP that does no more than it must."""
        if name == "by hand":
            return self._by_hand(account, what, tool)
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
        assert answer.status_code in (200, 402), (answer.status_code, answer.text)
        return answer.status_code == 200, answer.text


def of(account: ChainAccount, path: str) -> Which:
    """Requests for this path that are about a payment of this account."""
    payer = account.address.lower().encode()
    return lambda exchange: exchange.path == path and payer in exchange.body.lower()


@contextmanager
def open_counter(house: PaidHouse) -> Generator[Counter]:
    with house.serving() as server, fault_proxy(server.url) as buying:
        yield Counter(house=house, server=server, buying=buying)


@pytest.fixture(scope="module")
def _shared(chain: LocalChain, reference_facilitator: str) -> Iterator[Counter]:
    with (
        tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder,
        paid_house(Path(folder), chain, reference_facilitator) as house,
        open_counter(house) as counter,
    ):
        yield counter


@pytest.fixture
def counter(_shared: Counter) -> Iterator[Counter]:
    """One for all tests that leave it running; nothing of one test's faults is left for the next."""
    yield _shared
    _shared.buying.heal()
    _shared.house.settling.heal()


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
    """All that came to the seller was earned by a tool, and nothing else was."""
    assert dollar.balance(house.seller) == house.revenue()
    sums = house.rows(
        "SELECT (SELECT sum(balance) FROM accounts) + (SELECT coalesce(sum(balance), 0) FROM wallets) AS all_of_it"
    )
    assert sums == [{"all_of_it": 0}]


# ── one call, one payment ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PAYERS)
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


@pytest.mark.parametrize("name", ["mcp", "fetch-v2"])
def test_a_call_that_fails_costs_nothing(name: str, counter: Counter, dollar: TestDollar) -> None:
    account = dollar.rich(MONEY)
    assert counter.pay(name, account, f"broken {name}", "break_").failed
    assert counter.house.runs.count(f"broken {name}") == 1
    assert dollar.spent_by(account.address) == []
    assert dollar.balance(account.address) == MONEY


@pytest.mark.parametrize("name", ["mcp", "fetch-v2"])
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


# ── payments that are not good ───────────────────────────────────────────────────────────────────────────────────────


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


# ── what is lost on the way ──────────────────────────────────────────────────────────────────────────────────────────


def until_served(pay: Callable[[], Paid]) -> Paid:
    """As a client does that nobody answers: it calls again, and signs anew each time."""

    def look() -> Paid | None:
        paid = pay()
        return None if paid.failed else paid

    return until("a call to be served", look)


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
@pytest.mark.parametrize("name", ["fetch-v2", "by hand"])
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
@pytest.mark.parametrize("name", ["fetch-v2", "by hand"])
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
        assert not [words for words in LEAKS if words in str(paid)]


@pytest.fixture
def houses(chain: LocalChain, reference_facilitator: str, home: Path) -> Iterator[Houses]:
    """Houses of the test's own."""
    with ExitStack() as stack:

        def one(**settings: Any) -> PaidHouse:
            return stack.enter_context(paid_house(home, chain, reference_facilitator, **settings))

        yield one


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
    "the tool runs": Death(lambda house: (house.folder / "wait").touch(), running, runs=2),
    "sent to be settled, which nobody hears": Death(
        hold("/settle", Fault.HANG), asked("/settle", answered=False)
    ),
    "settled, which nobody has told it": Death(
        hold("/settle", Fault.HOLD), asked("/settle", answered=True), settled=True
    ),
}


@pytest.mark.parametrize("name", ["fetch-v2", "by hand"])
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
    (house.folder / "wait").unlink(missing_ok=True)
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


@pytest.mark.parametrize("name", ["fetch-v2", "by hand"])
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
