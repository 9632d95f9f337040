"""Witnesses who pay for each call on its own, by x402, and the facilitator that they are paid through: it knows what really moved."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from caller import Answer
from durability_clients import PAUSE_SECONDS, Book, Door, Witness
from network_faults import Cables
from restartable_server import lasting_port
from targets import START_SECONDS, Broken, environment
from wire import call_parts, fetch_status

from server.lib.evm.secp256k1 import PrivateKey
from server.lib.money.amounts import Micros
from server.payments.buyer.choice import choose
from server.payments.buyer.signing import sign_payment
from server.payments.buyer.spending_policy import ANYBODY, read_policy

PAY_TO = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
NETWORK = "base-sepolia"
PAYMENT, KEY, SETTLED = "x402/payment", "x402/idempotency-key", "x402/payment-response"
REFUSAL = "io.ostiary/payment"
TOOL = "sold"
LOOK_SECONDS = 0.05
# So says a client without a login that it comes to pay.
COMES_TO_PAY = {"PAYMENT-SIGNATURE": "e30="}
POLICY = read_policy(
    per_call="$1", per_day="$1000000", networks=[NETWORK], payees=[ANYBODY], confirm_above=None
)


class Buyer(Witness):
    """Each call has a payment and a key of its own, and is made with both until it is answered: served, or nothing was taken and nobody knows how far it
    came."""

    noun = "bought calls"

    def __init__(self, server: Door, dice: Random, over: Event, name: str) -> None:
        super().__init__(server, dice, over, name)
        self.books[self.noun] = Book()
        self.wallet = PrivateKey(secrets.token_bytes(31).rjust(32, b"\1"))
        self.served: dict[str, str] = {}  # call → the nonce of what it was paid with
        self.unknown: list[str] = []
        self._challenge: dict[str, Any] | None = None
        self._number = 0

    def settle(self) -> None:
        """What the facilitator and the books say of it is compared with `served`."""

    def turn(self) -> None:
        if self._challenge is None:
            unpaid, _ = self.surely(lambda: self._ask("what it costs", {}))
            self._challenge = _result(unpaid).get("structuredContent")
            return
        self._number += 1
        name, book = f"{self.name}-{self._number}", self.books[self.noun]
        purchase = choose(self._challenge, POLICY, lambda name, value: f"{name} {value}")
        nonce = secrets.token_bytes(32)
        payment, _ = sign_payment(
            purchase,
            self._challenge,
            self.wallet,
            identifier=f"pay_{secrets.token_hex(16)}",
            nonce=nonce,
            now_seconds=int(time.time()),
        )
        while True:
            answer, doubt = self.surely(lambda: self._ask(name, {PAYMENT: payment, KEY: f"key-{name}"}))
            book.in_doubt += doubt
            result = _result(answer)
            if not (result.get("isError") and "retryAfter" in _facts(result)):
                break
            time.sleep(LOOK_SECONDS)
        if result.get("isError") and _facts(result).get("reason") == "interrupted":
            self.unknown.append(name)
        elif result.get("isError"):
            book.missing.append(f"{name} was answered {answer.status}: {answer.body[-300:]!r}")
        elif f"{name} is {TOOL}" not in str(result["content"]):
            raise Broken(f"{name} was answered {answer.body[:300]!r}")
        elif result["_meta"].get(SETTLED, {}).get("success") is not True:
            book.missing.append(f"{name} was served without a word of its payment")
        else:
            book.acknowledged += 1
            self.served[name] = f"0x{nonce.hex()}"
        time.sleep(PAUSE_SECONDS)

    def _ask(self, name: str, meta: dict[str, Any]) -> Answer:
        call = {"name": TOOL, "arguments": {"name": name}, "_meta": meta}
        headers, body = call_parts("tools/call", call, name=TOOL)
        return self._caller.ask("POST", "/mcp", {**headers, **COMES_TO_PAY}, body)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A transfer that took place."""

    payer: str
    nonce: str
    amount: Micros


class TestFacilitator:
    """One for all nodes, each of which reaches it at its own machine: so does a test facilitator have to be reached. The way there is the
    node's cable to its clients."""

    def __init__(self, command: Sequence[str], home: Path, cables: Cables, nodes: Sequence[str]) -> None:
        port = lasting_port()
        self.url = f"http://127.0.0.1:{port}"
        self._command, self._home, self._cables, self._nodes, self._port = command, home, cables, nodes, port
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        port, home, cables = self._port, self._home, self._cables
        self._run((*self._command, "facilitator", "--test", "--port", str(port), "--coins", "$1000000"), home)
        if cables.switch_host:
            outside = f"{cables.switch_host}:{port}"
            self._run(_relay(outside, f"127.0.0.1:{port}"), home)
            for node in self._nodes:
                self._run((*cables.inside(node), *_relay(f"127.0.0.1:{port}", outside)), home)
        until = time.monotonic() + START_SECONDS
        while fetch_status("127.0.0.1", port, "/supported") != 200:
            if time.monotonic() > until:
                raise Broken("the facilitator does not answer")
            time.sleep(0.05)

    def settled(self) -> list[Settled]:
        with urllib.request.urlopen(f"{self.url}/test/ledger", timeout=30) as answer:
            rows: list[dict[str, Any]] = json.load(answer)["authorizations"]
        return [
            Settled(payer=row["from"].lower(), nonce=row["nonce"].lower(), amount=int(row["value"]))
            for row in rows
            if row["settled"]
        ]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _run(self, command: Sequence[str], home: Path) -> None:
        self._processes.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                cwd=home, env=environment(home),
            )
        )  # fmt: skip


def _relay(source: str, target: str) -> Sequence[str]:
    return (sys.executable, "-P", str(Path(__file__).with_name("relay.py")), source, target)


def _result(answer: Answer) -> dict[str, Any]:
    try:
        said = answer.json
    except ValueError:
        raise Broken(f"answered {answer.status}: {answer.body[:300]!r}") from None
    return said.get("result", {"isError": True})


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    return result.get("_meta", {}).get(REFUSAL, {})
