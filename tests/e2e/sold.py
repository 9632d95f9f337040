"""A server that sells, a test facilitator beside it, and somebody with a key who pays. Used by the tests beside it."""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from programs import SOURCE, WAIT_SECONDS, Program, Server

from server.lib.evm.eip712 import TokenDomain, TransferWithAuthorization, transfer_digest
from server.lib.evm.payment_networks import find_network
from server.lib.evm.secp256k1 import PrivateKey

PAY_TO = "0x52908400098527886E0F7030069857D2E4169EE7"
AGENT = """
from ostiary import tool, price

COUNT = {"runs": 0}

@tool(price="$0.01")
def look_up(word: str) -> str:
    COUNT["runs"] += 1
    return f"{word} {COUNT['runs']}"

@tool(price="$0.02")
def breaks(word: str) -> str:
    raise ValueError("there is no such word")

@tool
def render(pages: int) -> str:
    return f"{pages} pages"

@price("render")
def cost(pages: int) -> str:
    return "free" if pages == 0 else f"$0.0{pages}"

@tool
def free(word: str) -> str:
    return word
"""


@dataclass(frozen=True)
class Buyer:
    key: PrivateKey = field(default_factory=lambda: PrivateKey((7).to_bytes(32, "big")))

    @property
    def address(self) -> str:
        return self.key.address

    def payment(self, wanted: Mapping[str, Any], *, version: int = 2, **changed: Any) -> dict[str, Any]:
        """For an entry of `accepts`. `changed`: what of the authorization is to be another."""
        network = find_network(wanted["network"])
        assert network is not None
        value = int(wanted.get("amount") or wanted["maxAmountRequired"])
        transfer = TransferWithAuthorization(
            from_=self.address,
            to=changed.get("to", wanted["payTo"]),
            value=changed.get("value", value),
            valid_after=0,
            valid_before=changed.get("valid_before", int(time.time()) + wanted["maxTimeoutSeconds"]),
            nonce=secrets.token_bytes(32),
        )
        domain = TokenDomain(
            name=wanted["extra"]["name"],
            version=wanted["extra"]["version"],
            contract=wanted["asset"],
            chain_id=network.chain_id,
        )
        payload = {
            "signature": "0x" + self.key.sign(transfer_digest(domain, transfer)).hex(),
            "authorization": {
                "from": transfer.from_,
                "to": transfer.to,
                "value": str(transfer.value),
                "validAfter": str(transfer.valid_after),
                "validBefore": str(transfer.valid_before),
                "nonce": "0x" + transfer.nonce.hex(),
            },
        }
        if version == 1:
            stated = {"scheme": wanted["scheme"], "network": wanted["network"]}
            return {"x402Version": 1, **stated, "payload": payload}
        return {"x402Version": 2, "accepted": dict(wanted), "payload": payload}


def packed(value: Mapping[str, Any]) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def unpacked(text: str) -> dict[str, Any]:
    return json.loads(base64.b64decode(text, validate=True))


@dataclass(kw_only=True)
class Shop:
    program: Program
    server: Server
    facilitator: str

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return httpx2.request(method, self.server.url + path, trust_env=False, timeout=WAIT_SECONDS, **more)

    def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", path, json={} if body is None else body, headers=named)

    def challenge(self, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """What is to be paid, as version 2 has it."""
        answer = self.post(path, body, **headers)
        assert answer.status_code == 402, answer.text
        return unpacked(answer.headers["payment-required"])

    def pay(self, path: str, body: Any = None, buyer: Buyer | None = None, **headers: str) -> httpx2.Response:
        wanted = self.challenge(path, body, **headers)["accepts"][0]
        payment = packed((buyer or Buyer()).payment(wanted))
        return self.post(path, body, payment_signature=payment, **headers)

    def switch(self, **switches: object) -> None:
        httpx2.post(
            f"{self.facilitator}/test/switch", json=switches, trust_env=False, timeout=WAIT_SECONDS
        ).raise_for_status()

    def settled(self) -> int:
        """How many payments moved money."""
        return self.ledger()["totals"]["settled"]

    def ledger(self) -> dict[str, Any]:
        """The facilitator's."""
        return httpx2.get(f"{self.facilitator}/test/ledger", trust_env=False, timeout=WAIT_SECONDS).json()

    def key(self) -> str:
        return self.program.at_machine("api-keys", "create", "ci")["key"]


@contextmanager
def selling(home: Path, *servers: str, agent: str = AGENT) -> Generator[Shop]:
    """`servers`: lines of each `[[server]]`, whose agent is added."""
    program = Program(command=SOURCE, home=home)
    (home / "agent.py").write_text(agent, "utf-8")
    with program.starting("facilitator", "--test", "--port", "0") as background:
        url = background.await_words(r"Listening on (http://[^\s\"/]+)")[1]
        settings = [
            f'[payments]\npay_to = "{PAY_TO}"\nnetworks = ["base-sepolia"]\n[[payments.facilitator]]\nurl = "{url}"'
        ]
        settings += [
            f'[[server]]\n{lines}\n[[server.agent]]\nkind = "python"\nfile = "agent.py"' for lines in servers
        ]
        (home / "ostiary.toml").write_text("\n".join(settings), "utf-8")
        with program.serving("--config", "ostiary.toml") as server:
            yield Shop(program=program, server=server, facilitator=re.sub(r"/$", "", url))
