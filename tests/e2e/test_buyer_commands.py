"""Whoever buys with our own commands: deposits that are made once, calls without a login, and what is said before anything is paid."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fault_proxy import Fault, fault_proxy, paying
from local_chain import ChainAccount
from our_payers import META, pay_by_bridge, purse
from programs import USER_CODE, Program, until
from sold import Shop, selling

from server.lib.evm.secp256k1 import PrivateKey
from server.mcp.versions import LATEST

pytestmark = pytest.mark.slow

SHARED, PRIVATE = 'name = "shared"\nanonymous_pay = true', 'name = "private"'
SECRETS = itertools.count(1000)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    with selling(tmp_path_factory.mktemp("shop"), SHARED, PRIVATE) as found:
        yield found


@dataclass(frozen=True, kw_only=True)
class Customer:
    """Somebody at a terminal of their own, with a wallet that pays up to a dollar without asking."""

    program: Program
    account: ChainAccount
    folder: Path

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.program.run(*arguments, code=code)
        assert self.account.key[2:] not in done.stdout + done.stderr
        return done

    def log_in(self, shop: Shop, url: str) -> None:
        with self.program.starting("login", url) as login:
            code = login.await_words(USER_CODE)[0]
            shop.program.at_machine("approve", code, "--yes")
            assert login.wait() == 0, login.said()

    def settled(self, shop: Shop) -> int:
        rows = shop.ledger()["authorizations"]
        return sum(row["settled"] for row in rows if row["from"].lower() == self.account.address.lower())

    @property
    def waiting(self) -> list[Any]:
        return json.loads(self.run("wallet", "show", "--json").stdout)["unanswered"]


@pytest.fixture
def customer(tmp_path: Path) -> Customer:
    secret = next(SECRETS).to_bytes(32, "big")
    account = ChainAccount(PrivateKey(secret).address, f"0x{secret.hex()}")
    return Customer(program=purse(account, tmp_path), account=account, folder=tmp_path)


# ── deposits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/mcp", "/private/mcp"])
def test_a_deposit_fills_the_balance_of_whoever_is_logged_in(
    path: str, shop: Shop, customer: Customer
) -> None:
    url = shop.server.url + path
    customer.log_in(shop, url)
    made = customer.run("wallet", "deposit", url, "0.50", "--yes", "--json")
    told = json.loads(made.stdout)
    assert told["deposited"] == "$0.50" and told["wallet"].startswith("user:")
    assert not told["brought_token"] and not told["replayed"]
    assert "paying $0.50 to 0x5290…9EE7 on Base Sepolia (a test network) for a deposit at" in made.stderr
    called = customer.run("call", url, "look_up", "word=ostium")
    assert "ostium" in called.stdout and "it cost $0.01, from your balance" in called.stderr
    assert customer.settled(shop) == 1
    assert customer.waiting == []


def test_whoever_has_no_login_is_given_one_that_opens_what_was_paid(shop: Shop, customer: Customer) -> None:
    url = f"{shop.server.url}/mcp"
    made = customer.run("wallet", "deposit", url, "0.50", "--yes")
    assert f"the balance of {customer.account.address}" in made.stderr
    assert made.stdout == "$0.50 is on the balance now\n"
    login = customer.program.tokens()
    assert login["access_token"] not in made.stdout + made.stderr
    assert login["refresh_token"] not in made.stdout + made.stderr
    called = customer.run("call", url, "look_up", "word=ostium")
    assert "it cost $0.01, from your balance" in called.stderr
    # What was bought is refreshed as any login is.
    kept = json.loads(customer.program.token_file.read_text("utf-8"))
    kept["logins"][url]["expires_at"] = kept["logins"][url]["obtained_at"] + 1
    customer.program.token_file.write_text(json.dumps(kept), "utf-8")
    more = json.loads(customer.run("wallet", "deposit", url, "0.20", "--yes", "--json").stdout)
    assert more["balance"] == "$0.69" and more["wallet"].endswith(customer.account.address.lower())
    assert not more["brought_token"]
    # Whoever logs out, and pays again, has the same balance.
    assert "stays there" in customer.run("logout", url).stderr
    again = json.loads(customer.run("wallet", "deposit", url, "0.10", "--yes", "--json").stdout)
    assert again["balance"] == "$0.79" and again["brought_token"]
    assert customer.settled(shop) == 3


def test_a_private_server_wants_a_login_before_a_deposit(shop: Shop, customer: Customer) -> None:
    refused = customer.run("wallet", "deposit", f"{shop.server.url}/private/mcp", "0.50", "--yes", code=1)
    assert "not logged in" in refused.stderr
    assert customer.settled(shop) == 0


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.CUT, Fault.GATEWAY, Fault.GARBLE])
def test_a_deposit_whose_answer_is_lost_is_made_once(
    fault: Fault, known: bool, shop: Shop, customer: Customer
) -> None:
    with fault_proxy(shop.server.url, keeps_host=True) as between:
        url = f"{between.url}/mcp"
        if known:
            customer.log_in(shop, url)
        between.next(paying, fault)
        lost = customer.run("wallet", "deposit", url, "0.50", "--yes", code=1)
        assert "error:" in lost.stderr and "Traceback" not in lost.stderr
        assert len(customer.waiting) == 1
        again = customer.run("wallet", "deposit", url, "0.50", "--yes", "--json")
        told = json.loads(again.stdout)
        assert told["replayed"] and told["brought_token"] is not known
        assert "showing the payment of before again: $0.50" in again.stderr
        assert customer.settled(shop) == 1
        assert customer.waiting == []
        assert "from your balance" in customer.run("call", url, "look_up", "word=ostium").stderr


@pytest.mark.parametrize("mode", ["lost", "504-after-settle"])
def test_a_deposit_of_which_nobody_knows_is_not_paid_twice(mode: str, shop: Shop, customer: Customer) -> None:
    url = f"{shop.server.url}/mcp"
    shop.switch(settle=mode, times=1)
    unknown = customer.run("wallet", "deposit", url, "0.50", "--yes", code=1)
    assert "not known yet" in unknown.stderr

    def deposit() -> dict[str, Any] | None:
        done = subprocess.run(
            (*customer.program.command, "wallet", "deposit", url, "0.50", "--yes", "--json"),
            cwd=customer.program.home,
            env=customer.program.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    assert until("the deposit", deposit)["balance"] == "$0.50"
    assert customer.settled(shop) == 1


def test_what_may_not_be_deposited_is_refused_before_anything_is_signed(
    shop: Shop, customer: Customer
) -> None:
    url = f"{shop.server.url}/mcp"
    for amount, code, words in (
        ("2", 1, "ostiary wallet allow --per-deposit 2.00"),
        ("50", 1, "ostiary wallet allow --per-deposit 50.00 --per-day 50.00"),
        ("0.05", 1, "is between $0.10 and $1000.00"),
        ("five", 2, "“five” is no amount"),
        ("0", 2, "nothing to be deposited"),
    ):
        refused = customer.run("wallet", "deposit", url, amount, "--yes", code=code)
        assert words in refused.stderr, refused.stderr
    assert "--yes" in customer.run("wallet", "deposit", url, "0.50", code=2).stderr
    customer.run("wallet", "allow", "--per-deposit", "20")
    day = customer.run("wallet", "deposit", url, "15", "--yes", code=1)
    assert "more than the wallet may deposit, which is $10.00" in day.stderr
    assert "hint: ostiary wallet allow --per-day 15.00" in day.stderr
    above = customer.run("wallet", "deposit", url, "2", "--yes", code=1)
    assert "beyond $1.00 a person has to agree" in above.stderr
    assert customer.waiting == [] and customer.settled(shop) == 0


# ── calls without a login ────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_pays_calls_what_is_sold_without_a_login(shop: Shop, customer: Customer) -> None:
    url = f"{shop.server.url}/mcp"
    listed = customer.run("tools", url)
    assert "look_up" in listed.stdout and "$0.01" in listed.stdout and "free" not in listed.stdout.split()
    assert "nobody is logged in" in listed.stderr and "ostiary call --pay" in listed.stderr
    called = customer.run("call", "--pay", url, "look_up", "word=ostium")
    assert "ostium" in called.stdout
    assert "paid $0.01 on Base Sepolia, transaction 0x" in called.stderr
    assert customer.settled(shop) == 1 and customer.waiting == []
    priced = customer.run("call", "--pay", url, "render", "pages=3")
    assert "3 pages" in priced.stdout and "paid $0.03" in priced.stderr
    hidden = customer.run("call", "--pay", url, "free", "word=ostium", code=1)
    assert "sells no tool free without a login" in hidden.stderr


def test_whoever_neither_pays_nor_logs_in_is_told_of_both(shop: Shop, customer: Customer) -> None:
    told = customer.run("call", f"{shop.server.url}/mcp", "look_up", "word=ostium", code=1).stderr
    assert "not logged in" in told and "ostiary login" in told and "--pay" in told
    told = customer.run("call", f"{shop.server.url}/private/mcp", "look_up", "word=ostium", code=1).stderr
    assert "not logged in" in told and "--pay" not in told
    told = customer.run(
        "call", "--pay", f"{shop.server.url}/private/mcp", "look_up", "word=ostium", code=1
    ).stderr
    assert "not logged in" in told
    assert customer.settled(shop) == 0


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.CUT])
def test_a_call_without_a_login_whose_answer_is_lost_is_paid_once(
    fault: Fault, shop: Shop, customer: Customer
) -> None:
    with fault_proxy(shop.server.url, keeps_host=True) as between:
        url = f"{between.url}/mcp"
        between.next(lambda exchange: b'"x402/payment"' in exchange.body, fault)
        lost = customer.run("call", "--pay", url, "look_up", f"word={fault.name}", code=1)
        assert "may" in lost.stderr or "same payment" in lost.stderr
        again = customer.run("call", "--pay", url, "look_up", f"word={fault.name}")
        assert fault.name in again.stdout
        assert customer.settled(shop) == 1 and customer.waiting == []


def test_a_bridge_that_pays_needs_no_login_where_nobody_does(shop: Shop, customer: Customer) -> None:
    paid = pay_by_bridge(
        customer.account, customer.folder, f"{shop.server.url}/mcp", "look_up", {"word": "bridge"}
    )
    assert not paid.failed, paid
    assert "bridge" in paid.body["content"][0]["text"]
    assert customer.settled(shop) == 1
    private = pay_by_bridge(
        customer.account, customer.folder, f"{shop.server.url}/private/mcp", "look_up", {"word": "bridge"}
    )
    assert private.failed and "not logged in" in str(private.error)


def test_who_says_over_mcp_that_it_comes_to_pay_is_asked_for_payment_and_nobody_else_is(shop: Shop) -> None:
    asked = {"name": "look_up", "arguments": {"word": "header"}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp_protocol_version": LATEST.version,
        "mcp_method": "tools/call",
        "mcp_name": "look_up",
    }
    refused = shop.post("/mcp", body, **headers)
    assert refused.status_code == 401 and "www-authenticate" in refused.headers
    assert shop.post("/private/mcp", body, payment_signature="e30=", **headers).status_code == 401
    told = shop.post("/mcp", body, payment_signature="e30=", **headers).json()["result"]
    assert told["isError"] and told["structuredContent"]["accepts"][0]["amount"] == "10000"
    assert told["_meta"]["io.ostiary/payment"]["reason"] == "payment_required"


# ── what is said of a server ─────────────────────────────────────────────────────────────────────────────────────────


def test_doctor_says_of_a_server_what_it_sells_and_whether_the_wallet_could_pay(
    shop: Shop, customer: Customer
) -> None:
    told = customer.run("doctor", f"{shop.server.url}/mcp").stdout
    assert "3 of 3 cost something, also without a login: look_up: $0.01 a call" in told
    assert (
        "look_up, with nothing to pay it, is answered with 402: to pay $0.01 in USDC on Base Sepolia" in told
    )
    assert f"{shop.server.url}/shared/deposit" in told
    assert "pays without asking $0.01 to 0x5290…9EE7" in told
    customer.run("wallet", "forbid", "--network", "base-sepolia")
    told = customer.run("doctor", f"{shop.server.url}/mcp").stdout
    assert "would not pay: the wallet does not say what may be spent" in told
    assert customer.settled(shop) == 0


def test_doctor_runs_nothing_and_shows_no_login_where_it_looks_at_prices(
    shop: Shop, customer: Customer
) -> None:
    url = f"{shop.server.url}/private/mcp"
    unknown = customer.run("doctor", url).stdout
    assert "shown to whoever" in unknown
    customer.log_in(shop, url)
    customer.run("wallet", "deposit", url, "0.50", "--yes")
    before = json.loads(customer.run("call", "--json", url, "look_up", "word=x").stdout)
    told = customer.run("doctor", url).stdout
    assert "look_up, with nothing to pay it, is answered with 401: first to log in, then to pay $0.01" in told
    after = json.loads(customer.run("call", "--json", url, "look_up", "word=y").stdout)
    ran = [int(each["content"][0]["text"].split()[-1]) for each in (before, after)]
    assert ran[1] == ran[0] + 1
