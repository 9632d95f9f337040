"""A tool that is bought from one server and sold by another: at whose price, paid how often, and what both books say of it."""

from __future__ import annotations

import json
import re
import secrets
import signal
import sqlite3
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import httpx2
import pytest
from mcp_calls import request_of
from paid_shop import Customer
from programs import SOURCE, WAIT_SECONDS, Program, Server, until
from task_clients import Wire

from server.lib.evm.secp256k1 import PrivateKey
from tests.free_ports import free_port

TAKER = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
MAKER = "0x52908400098527886E0F7030069857D2E4169EE7"
AGENT = """
    import pathlib, time
    from ostiary import tool

    HERE = pathlib.Path(__file__).parent / "notes"

    @tool
    def sell(name: str) -> str:
        with (HERE / "runs").open("a") as runs:
            runs.write(name + "\\n")
        while (HERE / "wait").exists():
            time.sleep(0.02)
        return "sold " + name
"""
# What it costs is in a file, whatever is asked for.
ASKED = """
    from ostiary import price

    @price
    def cost(name: str) -> str:
        return (HERE / "cost").read_text()
"""
MONEY = """
    auth = "none"
    [payments]
    pay_to = "{pay_to}"
    networks = ["base-sepolia"]
    [[payments.facilitator]]
    url = "{facilitator}"
    [[server]]
    name = "main"
    anonymous_pay = true
"""
THEIRS = """
    price = "$0.02"
    [server.tools.sell]
    flow = "upfront"
    [[server.agent]]
    kind = "python"
    file = "agent.py"
"""
OURS = """
    [[server.agent]]
    kind = "mcp"
    id = "shop"
    url = "{url}"
    trust = "always"
    mark_up = "20%"
    [server.agent.pay]
    key = "file:{key}"
    per_call = "$0.05"
    per_day = "$1"
    networks = ["base-sepolia"]
    payees = ["{payee}"]
"""


@dataclass(kw_only=True)
class Chain:
    """Of a maker, who sells to us, and us, who sell on."""

    theirs: Program
    ours: Program
    facilitator: str
    buyer: PrivateKey
    port: int
    upstream: str
    running: ExitStack = field(default_factory=ExitStack)
    served: Server | None = None

    def open(self) -> None:
        self.served = self.running.enter_context(self.ours.serving("--port", str(self.port)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def shown(self, payer: str) -> list[dict[str, Any]]:
        """This payer's authorizations, settled or not."""
        found = httpx2.get(self.facilitator + "/test/ledger", trust_env=False, timeout=WAIT_SECONDS).json()
        return [row for row in found["authorizations"] if row["from"].lower() == payer.lower()]

    def settled(self, payer: str) -> list[int]:
        """What they moved."""
        return [int(row["value"]) for row in self.shown(payer) if row["settled"]]

    def fail_next_settlement(self, how: str) -> None:
        switched = {"settle": how, "times": 1}
        url = self.facilitator + "/test/switch"
        httpx2.post(url, json=switched, trust_env=False, timeout=WAIT_SECONDS).raise_for_status()

    def spending(self) -> tuple[int, list[int]]:
        """What our wallet has signed for, and of that what has no answer."""
        kept = json.loads((self.ours.data_dir / "paying" / "spending.json").read_text("utf-8"))
        (days,) = kept["spent"].values()
        return sum(days.values()), [each["amount"] for each in kept["unanswered"]]

    def booked(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """What is in our books, and in theirs. Both agree with themselves."""
        for program in (self.ours, self.theirs):
            checked = program.at_machine("ledger", "check")
            assert checked["sound"], checked
        ours, theirs = (
            sorted((row["kind"], row["amount"]) for row in movements(program))
            for program in (self.ours, self.theirs)
        )
        return ours, theirs

    def customer(self) -> Customer:
        wire = Wire(url=self.url)
        self.running.callback(wire.close)
        return Customer(wire=wire, shop=cast("Any", None))

    @property
    def runs(self) -> list[str]:
        file = self.theirs.home / "notes" / "runs"
        return file.read_text("utf-8").split() if file.exists() else []


def movements(program: Program) -> list[dict[str, Any]]:
    path = f"file:{program.data_dir / 'ostiary.db'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM movements ORDER BY seq")]


@contextmanager
def open_chain(
    home: Path,
    *,
    asked: bool = False,
    upfront: bool = True,
    logins: bool = False,
    era: str = "auto",
    balance: str = "",
) -> Generator[Chain]:
    """`asked`: what their tool costs has to be asked of each call. `upfront`: their tool runs when it is paid, and not before.
    `logins`: they want a login of whoever does not come to pay. `balance`: we have so much with them."""
    theirs, ours = (Program(command=SOURCE, home=home / name) for name in ("theirs", "ours"))
    for each in (theirs, ours):
        each.home.mkdir()
    (theirs.home / "notes").mkdir()
    facilitating = free_port()
    facilitator = f"http://127.0.0.1:{facilitating}"
    key = ours.home / "buyer.key"
    secret = secrets.token_bytes(31).rjust(32, b"\1")
    key.write_text(secret.hex(), "utf-8")
    key.chmod(0o600)
    (theirs.home / "agent.py").write_text(dedent(AGENT) + (dedent(ASKED) if asked else ""), "utf-8")
    selling = dedent(MONEY).format(pay_to=MAKER, facilitator=facilitator) + dedent(THEIRS)
    if asked:
        selling = selling.replace('flow = "upfront"', 'price = { function = "cost" }')
    if not upfront:
        selling = selling.replace('flow = "upfront"', "")
    token = secrets.token_hex(24)
    if balance:
        for each in (theirs, ours):
            (each.home / "us").write_text(token, "utf-8")
            (each.home / "us").chmod(0o600)
        tokens = 'tokens = [{ name = "us", token = "file:us", scope = "mcp" }]\n'
        selling = selling.replace("anonymous_pay = true\n", f"anonymous_pay = true\n{tokens}")
    if logins or balance:
        selling = selling.replace('auth = "none"\n', "")
    selling += f"python = {json.dumps(sys.executable)}\n"
    (theirs.home / "ostiary.toml").write_text(selling, "utf-8")
    with ExitStack() as stack:
        options = ("--test", "--port", str(facilitating), "--state", "coins.json")
        stack.enter_context(theirs.starting("facilitator", *options)).await_words(
            re.compile(r"Listening on http://")
        )
        behind = stack.enter_context(theirs.serving())
        reselling = dedent(MONEY).format(pay_to=TAKER, facilitator=facilitator)
        reselling += dedent(OURS).format(url=behind.endpoint, key=key, payee=MAKER)
        reselling = reselling.replace('id = "shop"', f'id = "shop"\nera = "{era}"')
        if balance:
            reselling = reselling.replace('id = "shop"', 'id = "shop"\ntoken = "file:us"')
            theirs.at_machine("ledger", "grant", "token:main:us", balance)
        (ours.home / "ostiary.toml").write_text(reselling, "utf-8")
        chain = Chain(
            theirs=theirs,
            ours=ours,
            facilitator=facilitator,
            buyer=PrivateKey(secret),
            port=free_port(),
            upstream=behind.endpoint,
        )
        stack.enter_context(chain.running)
        chain.open()
        yield chain


def test_a_tool_is_sold_on_with_a_mark_up_and_both_sides_are_in_the_books_of_one_call(home: Path) -> None:
    with open_chain(home) as chain:
        (listed,) = chain.ours.ask("tools", chain.url)["tools"]
        assert listed["_meta"]["io.ostiary/price"]["amount"] == "0.024"
        customer = chain.customer()
        asked = customer.wire.call("shop__sell", "tea").result
        assert asked["isError"] and asked["structuredContent"]["accepts"][0]["amount"] == "24000"
        assert chain.runs == [] and chain.settled(chain.buyer.address) == []
        payment = customer.sign_for(asked["structuredContent"])
        answered = customer.wire.call("shop__sell", "tea", _meta={"x402/payment": payment}).result
        assert answered["content"][0]["text"] == "sold tea", answered
        assert chain.runs == ["tea"]
        assert chain.settled(chain.buyer.address) == [20_000]
        assert chain.settled(customer.payer.address) == [24_000]
        bought, sold = sorted(movements(chain.ours), key=lambda row: row["amount"])
        assert (bought["kind"], bought["amount"], bought["source"]) == (
            "purchase",
            20_000,
            "cost:main/shop__sell",
        )
        assert (sold["kind"], sold["amount"], sold["target"]) == (
            "payment",
            24_000,
            "revenue:main/shop__sell",
        )
        assert bought["call_id"] == sold["call_id"]
        assert bought["target"] == sold["source"]  # the chain, which has four thousandths of ours more now
        assert chain.ours.at_machine("ledger", "check")["sound"]
        shown = chain.ours.at_machine("ledger", "statement", "--kind", "purchase")
        assert len(shown) == 1


def test_what_is_taken_from_a_balance_with_them_is_a_cost_in_our_books(home: Path) -> None:
    with open_chain(home, balance="$0.05") as chain:
        for name in ("tea", "cake", "bread"):
            customer = chain.customer()
            asked = customer.wire.call("shop__sell", name).result
            payment = customer.sign_for(asked["structuredContent"])
            answered = customer.wire.call("shop__sell", name, _meta={"x402/payment": payment}).result
            assert answered["content"][0]["text"] == f"sold {name}", answered
        # Two from the balance; the third, for which it is too small, from the wallet.
        assert chain.settled(chain.buyer.address) == [20_000]
        bought = [row for row in movements(chain.ours) if row["kind"] == "purchase"]
        assert [(row["source"], row["amount"]) for row in bought] == [("cost:main/shop__sell", 20_000)] * 3
        assert [row["target"].partition(":")[0] for row in bought] == ["upstream", "upstream", "chain"]
        charged = [row for row in movements(chain.theirs) if row["kind"] == "charge"]
        assert [f"receipt {row['charge_id']}" for row in charged] == [row["note"] for row in bought[:2]]
        sold = [row["call_id"] for row in movements(chain.ours) if row["kind"] == "payment"]
        assert sorted(row["call_id"] for row in bought) == sorted(sold)
        for each in (chain.ours, chain.theirs):
            assert each.at_machine("ledger", "check")["sound"]
        stated = chain.ours.at_machine("ledger", "statement", "--kind", "purchase")
        assert [row["network"] is None for row in stated] == [row["transaction"] is None for row in stated]


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_it_is_bought_without_a_login_where_whoever_pays_needs_none(home: Path, era: str) -> None:
    with open_chain(home, logins=True, era=era) as chain:
        headers, body = request_of("sell", {"name": "tea"}, {}, modern=True)
        refused = httpx2.post(
            chain.upstream, content=body, headers=headers, trust_env=False, timeout=WAIT_SECONDS
        )
        assert refused.status_code == 401
        (listed,) = chain.ours.ask("tools", chain.url)["tools"]
        assert listed["_meta"]["io.ostiary/price"]["amount"] == "0.024"
        for number, name in enumerate(("tea", "cake"), 1):
            customer = chain.customer()
            asked = customer.wire.call("shop__sell", name).result
            payment = customer.sign_for(asked["structuredContent"])
            answered = customer.wire.call("shop__sell", name, _meta={"x402/payment": payment}).result
            assert answered["content"][0]["text"] == f"sold {name}", answered
            assert chain.settled(chain.buyer.address) == [20_000] * number
        assert chain.served is not None
        assert "upstream.not_let_in" not in chain.served.said()
        assert chain.ours.at_machine("ledger", "check")["sound"]


def test_whoever_dies_between_paying_and_answering_pays_once(home: Path) -> None:
    with open_chain(home) as chain:
        (chain.theirs.home / "notes" / "wait").touch()
        customer = chain.customer()
        asked = customer.wire.call("shop__sell", "tea").result
        payment = customer.sign_for(asked["structuredContent"])

        def lost() -> None:
            try:
                customer.wire.call("shop__sell", "tea", _meta={"x402/payment": payment})
            except Exception:  # the server is killed under it
                return

        calling = threading.Thread(target=lost)
        calling.start()
        until("their tool to run", lambda: chain.runs or None)
        assert chain.settled(chain.buyer.address) == [20_000]  # paid beforehand, and nothing came of it yet
        assert chain.served is not None
        chain.served.end(signal.SIGKILL)
        calling.join(WAIT_SECONDS)
        assert [row["kind"] for row in movements(chain.ours)] == []
        (kept,) = json.loads((chain.ours.data_dir / "paying" / "spending.json").read_text())["unanswered"]
        assert kept["amount"] == 20_000
        (chain.theirs.home / "notes" / "wait").unlink()
        chain.open()

        def served() -> str | None:
            heard = chain.customer().wire.call("shop__sell", "tea", _meta={"x402/payment": payment}).result
            return None if heard.get("isError") else heard["content"][0]["text"]

        assert until("the answer", served) == "sold tea"
        assert chain.settled(chain.buyer.address) == [20_000]
        assert chain.settled(customer.payer.address) == [24_000]
        assert sorted((row["kind"], row["amount"]) for row in movements(chain.ours)) == [
            ("payment", 24_000),
            ("purchase", 20_000),
        ]
        assert json.loads((chain.ours.data_dir / "paying" / "spending.json").read_text())["unanswered"] == []


@pytest.mark.parametrize("fresh", [False, True], ids=["same payment", "fresh payment"])
@pytest.mark.parametrize("upfront", [False, True], ids=["paid after", "paid before"])
def test_an_upstream_that_lost_the_answer_of_its_settlement_is_paid_once_and_so_are_we(
    home: Path, upfront: bool, fresh: bool
) -> None:
    with open_chain(home, upfront=upfront) as chain:
        customer = chain.customer()
        asked = customer.wire.call("shop__sell", "tea").result["structuredContent"]
        first, second = customer.sign_for(asked), customer.sign_for(asked)
        chain.fail_next_settlement("lost")
        heard = customer.wire.call("shop__sell", "tea", _meta={"x402/payment": first}).result
        assert heard["isError"], heard
        assert chain.settled(chain.buyer.address) == [20_000]  # moved, though they do not know it yet
        assert chain.settled(customer.payer.address) == []
        assert movements(chain.ours) == []
        assert chain.spending() == (20_000, [20_000])
        again = second if fresh else first

        def served(payment: dict[str, Any] = again) -> str | None:
            told = chain.customer().wire.call("shop__sell", "tea", _meta={"x402/payment": payment}).result
            return None if told["isError"] else told["content"][0]["text"]

        assert until("the answer", served) == "sold tea"
        assert served() == "sold tea"  # what is kept
        assert chain.runs == ["tea"]
        assert len(chain.shown(chain.buyer.address)) == 1
        assert chain.settled(chain.buyer.address) == [20_000]
        assert chain.settled(customer.payer.address) == [24_000]
        assert chain.booked() == ([("payment", 24_000), ("purchase", 20_000)], [("payment", 20_000)])
        assert chain.spending() == (20_000, [])
        # Whoever else buys the like of it is sold another.
        assert served(chain.customer().sign_for(asked)) == "sold tea"
        assert chain.runs == ["tea", "tea"]
        assert chain.settled(chain.buyer.address) == [20_000, 20_000]
        assert chain.spending() == (40_000, [])


@pytest.mark.parametrize("upfront", [False, True], ids=["paid after", "paid before"])
def test_where_an_upstream_is_refused_our_payment_our_caller_pays_nothing_and_no_other_is_signed(
    home: Path, upfront: bool
) -> None:
    with open_chain(home, upfront=upfront) as chain:
        customer = chain.customer()
        asked = customer.wire.call("shop__sell", "tea").result["structuredContent"]
        payment = customer.sign_for(asked)
        chain.fail_next_settlement("fail")
        for shown in (payment, payment, customer.sign_for(asked)):
            refused = customer.wire.call("shop__sell", "tea", _meta={"x402/payment": shown}).message
            assert "was not" in refused["error"]["message"], refused
        assert chain.runs == ([] if upfront else ["tea"])
        assert len(chain.shown(chain.buyer.address)) == 1
        assert chain.settled(chain.buyer.address) == chain.settled(customer.payer.address) == []
        assert chain.booked() == ([], [])
        # Until it has ended whoever has the signature could cash it.
        assert chain.spending() == (20_000, [20_000])
        # It was for one call alone, and what that call was to be paid with is good for another.
        bought = customer.wire.call("shop__sell", "cake", _meta={"x402/payment": payment}).result
        assert bought["content"][0]["text"] == "sold cake", bought
        assert chain.settled(chain.buyer.address) == [20_000]
        assert chain.settled(customer.payer.address) == [24_000]
        assert chain.booked() == ([("payment", 24_000), ("purchase", 20_000)], [("payment", 20_000)])
        assert chain.spending() == (40_000, [20_000])


def test_what_was_quoted_is_the_most_that_is_paid_for_it_whoever_asks_again(home: Path) -> None:
    with open_chain(home, asked=True) as chain:
        cost = chain.theirs.home / "notes" / "cost"
        cost.write_text("$0.02", "utf-8")
        customer = chain.customer()
        asked = customer.wire.call("shop__sell", "tea").result
        assert asked["structuredContent"]["accepts"][0]["amount"] == "24000"
        payment = customer.sign_for(asked["structuredContent"])
        cost.write_text("$0.04", "utf-8")
        dearer = customer.wire.call("shop__sell", "tea").result
        assert dearer["structuredContent"]["accepts"][0]["amount"] == "48000"
        refused = customer.wire.call("shop__sell", "tea", _meta={"x402/payment": payment}).message
        assert "asks more for this" in refused["error"]["message"], refused
        assert chain.runs == [] and chain.settled(chain.buyer.address) == []
        assert chain.settled(customer.payer.address) == []
        anew = customer.sign_for(dearer["structuredContent"])
        answered = customer.wire.call("shop__sell", "tea", _meta={"x402/payment": anew}).result
        assert answered["content"][0]["text"] == "sold tea", answered
        assert chain.settled(chain.buyer.address) == [40_000]
        assert chain.settled(customer.payer.address) == [48_000]
