"""A server that sells, the test facilitator that it is paid through, and payers with keys of their own. Used by test_paid_*.py."""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import sqlite3
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from programs import SOURCE, WAIT_SECONDS, Program, Server
from task_clients import Heard, House, Wire, text_of

from server.lib.evm.secp256k1 import PrivateKey
from tests.free_ports import free_port
from tests.payments.test_facilitator.payer import Payer

MORTAL = Path(__file__).with_name("mortal_till.py")
PAYMENT = "x402/payment"
RECEIPT = "x402/payment-response"
KEY = "x402/idempotency-key"
REFUSAL = "io.ostiary/payment"
REPLAYED = "io.ostiary/replayed"
POOR = "a-token-of-a-program-that-is-poor-0123456789"
CENT = 10_000  # micros, and atomic units of the test coin
SETTINGS = """
[payments]
pay_to = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
networks = ["base-sepolia"]
{rpc}

[[payments.facilitator]]
url = "{facilitator}"
timeout_seconds = 8
settle_timeout_seconds = 8

[[server]]
name = "main"
auth = "none"
anonymous_pay = true
[server.tools.ahead]
flow = "upfront"
[server.tools.held_ahead]
flow = "upfront"
[[server.agent]]
kind = "python"
file = "agent.py"
calls_at_once = 200

[[server]]
name = "club"
auth = "oauth"
tokens = [{{ name = "poor", token = "file:poor.token", scope = "mcp" }}]
[server.tools.ahead]
flow = "upfront"
[server.tools.held_ahead]
flow = "upfront"
[server.tools.curious_ahead]
flow = "upfront"
[server.tools.remembered]
dedupe = "10m"
[[server.agent]]
kind = "python"
file = "agent.py"
calls_at_once = 200
"""


def new_key() -> Payer:
    return Payer(PrivateKey(secrets.token_bytes(31).rjust(32, b"\1")))


@dataclass(kw_only=True)
class Customer:
    """Somebody with coins who calls tools; with a token also somebody who is known."""

    wire: Wire
    shop: Shop
    payer: Payer = field(default_factory=new_key)

    def price(self, tool: str, name: str) -> dict[str, Any]:
        """What is asked for it: the first of the ways to pay."""
        result = self.call(tool, name).result
        assert result["isError"], result
        return result["structuredContent"]

    def sign(self, tool: str, name: str, **changed: Any) -> dict[str, Any]:
        """A payment for it, with a nonce of its own. `changed`: what the signature is to say instead."""
        return self.sign_for(self.price(tool, name), **changed)

    def sign_for(self, asked: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
        (wanted, *_) = asked["accepts"]
        said: dict[str, Any] = {
            "value": int(wanted["amount"]),
            "nonce": secrets.randbits(255),
            "to": wanted["payTo"],
            "valid_before": int(time.time()) + wanted["maxTimeoutSeconds"],
        }
        payload = self.payer.signed(**{**said, **changed})
        return {"x402Version": 2, "resource": asked["resource"], "accepted": wanted, "payload": payload}

    def call(
        self, tool: str, name: str, *, payment: object = None, key: str | None = None, **more: Any
    ) -> Heard:
        return self.wire.call(tool, name, _meta=paying(payment, key), **more)

    def another(self) -> Customer:
        """The same one on a connection of its own."""
        wire = Wire(url=self.wire.url, token=self.wire.token, version=self.wire.version)
        return self.shop.customer(wire, self.payer)


def paying(payment: object = None, key: str | None = None) -> dict[str, Any]:
    return {
        **({} if payment is None else {PAYMENT: payment}),
        **({} if key is None else {KEY: key}),
    }


def answer_of(heard: Heard) -> str:
    """Of a call that was served."""
    result = heard.result
    assert not result.get("isError"), result
    return text_of(result)


def reason_of(heard: Heard) -> str:
    """Why one was not: in a word."""
    result = heard.result
    assert result["isError"], result
    assert REFUSAL in result["_meta"], result
    return result["_meta"][REFUSAL]["reason"]


@dataclass(kw_only=True)
class Shop:
    program: Program
    house: House
    facilitator_port: int
    running: ExitStack = field(default_factory=ExitStack)
    facilitating: ExitStack = field(default_factory=ExitStack)
    server: Server | None = None
    wires: list[Wire] = field(default_factory=list[Wire])

    # ── the server ──

    def open(self) -> Server:
        """If it is not open already."""
        if self.server is None or self.server.process.poll() is not None:
            self.close()
            self.server = self.running.enter_context(self.house.open())
        return self.server

    def close(self) -> None:
        while self.wires:
            self.wires.pop().close()
        self.running.close()
        self.server = None

    def kill(self) -> None:
        server = self.open()
        server.end(signal.SIGKILL)
        self.close()

    def await_death(self) -> None:
        """Of its own hand."""
        assert self.server is not None
        assert self.server.wait() == -signal.SIGKILL
        self.order("")
        self.close()

    def order(self, text: str) -> None:
        """When it is to die."""
        path = self.program.home / "die"
        if text:
            path.write_text(text, "utf-8")
        else:
            path.unlink(missing_ok=True)

    # ── who comes ──

    def stranger(self, **how: Any) -> Customer:
        return self.customer(Wire(url=self.house.endpoint("main"), **how))

    def customer(self, wire: Wire, payer: Payer | None = None) -> Customer:
        self.wires.append(wire)
        return Customer(wire=wire, shop=self, payer=payer or new_key())

    def member(self, client: str = "one", *, cents: int = 0, **how: Any) -> Customer:
        """Somebody who is logged in; with so much on the balance."""
        token = self.house.token("club", client)
        if cents:
            self.program.at_machine("ledger", "grant", "owner", f"${cents / 100:.2f}")
        return self.customer(Wire(url=self.house.endpoint("club"), token=token, **how))

    # ── the agent ──

    def runs(self, name: str) -> int:
        return self.house.said().count(f"{name} runs")

    def await_note(self, text: str) -> None:
        self.house.await_note(text)

    def let_go(self, name: str) -> None:
        self.house.let_go(name)

    # ── the facilitator ──

    @property
    def facilitator(self) -> str:
        return f"http://127.0.0.1:{self.facilitator_port}"

    def begin_facilitating(self) -> None:
        """It knows what it did before."""
        options = ("--test", "--port", str(self.facilitator_port), "--state", "coins.json")
        started = self.program.starting("facilitator", *options, command=SOURCE)
        self.facilitating.enter_context(started).await_words(re.compile(r"Listening on http://"))

    def end_facilitating(self) -> None:
        self.facilitating.close()

    def ask_facilitator(self, path: str, body: object = None) -> dict[str, Any]:
        method = "GET" if body is None else "POST"
        answered = httpx2.request(
            method, self.facilitator + path, json=body, trust_env=False, timeout=WAIT_SECONDS
        )
        assert answered.status_code == 200, answered.text
        return answered.json()

    def switch(self, times: int | None = None, **switches: str) -> None:
        self.ask_facilitator("/test/switch", {**switches, **({} if times is None else {"times": times})})

    def seen(self, customer: Customer) -> list[dict[str, Any]]:
        """What the facilitator knows of this payer."""
        rows = self.ask_facilitator("/test/ledger")["authorizations"]
        return [row for row in rows if row["from"].lower() == customer.payer.address.lower()]

    def settled(self, customer: Customer) -> int:
        return sum(row["settled"] for row in self.seen(customer))

    # ── the books ──

    def ask_store(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        path = f"file:{self.program.data_dir / 'ostiary.db'}?mode=ro"
        with closing(sqlite3.connect(path, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, parameters)]

    def payments(self, customer: Customer) -> list[dict[str, Any]]:
        return self.ask_store(
            "SELECT * FROM payments WHERE payer = ? ORDER BY created_at", customer.payer.address.lower()
        )

    def charges(self) -> list[dict[str, Any]]:
        return self.ask_store("SELECT * FROM charges")

    def wallet(self) -> tuple[int, int]:
        """Of the owner: what is there, and what of it is held."""
        rows = self.ask_store("SELECT SUM(balance) AS balance, SUM(held) AS held FROM wallets")
        return rows[0]["balance"] or 0, rows[0]["held"] or 0

    def booked(self, customer: Customer) -> int:
        """What the books say that this payer paid."""
        rows = self.ask_store(
            "SELECT SUM(m.amount) AS amount FROM movements m JOIN payments p ON p.id = m.payment_id WHERE p.payer = ?",
            customer.payer.address.lower(),
        )
        return rows[0]["amount"] or 0

    def check_books(self) -> None:
        checked = self.program.at_machine("ledger", "check")
        assert checked["sound"], checked
        received = sum(row["settled"] for row in self.ask_facilitator("/test/ledger")["authorizations"])
        (row,) = self.ask_store("SELECT COUNT(*) AS n FROM movements WHERE payment_id IS NOT NULL")
        assert row["n"] == received

    def configure(self, *, node: bool) -> None:
        """`node`: the server can look at the chain."""
        rpc = f'rpc = {{ base-sepolia = "{self.facilitator}/rpc" }}' if node else ""
        settings = SETTINGS.format(facilitator=self.facilitator, rpc=rpc)
        (self.program.home / "ostiary.toml").write_text(settings, "utf-8")


@contextmanager
def open_shop(home: Path, *, mortal: bool = False) -> Generator[Shop]:
    (home / "notes").mkdir()
    shutil.copy(Path(__file__).with_name("paid_agent.py"), home / "agent.py")
    program = Program(command=SOURCE, script=MORTAL if mortal else None, home=home)
    house = House(program=program, port=free_port())
    shop = Shop(program=program, house=house, facilitator_port=free_port())
    shop.configure(node=False)
    (home / "poor.token").write_text(POOR, "utf-8")
    (home / "poor.token").chmod(0o600)
    try:
        shop.begin_facilitating()
        yield shop
    finally:
        shop.order("")
        shop.close()
        shop.end_facilitating()
