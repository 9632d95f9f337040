"""A chain on this machine for the tests of payments: anvil, calling itself Base Sepolia, with a dollar where that has its USDC.

The dollar is ours (tests/peers/payments/contracts.sol); clients and facilitators of others know its address, and so take it by default. Accounts have
fixed keys that the whole world knows. Each test takes accounts of its own, so that what it reads of them is its own doing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from programs import ROOT, WAIT_SECONDS, Background, needed, until

PAYMENT_PEERS = ROOT / "tests" / "peers" / "payments"
ANVIL = PAYMENT_PEERS / "node_modules" / "@foundry-rs" / "anvil-linux-amd64" / "bin" / "anvil"
CAIP2, CHAIN_ID, V1_NAME = "eip155:84532", 84532, "base-sepolia"
DOLLAR = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
MANY_CALLS = "0xcA11bde05977b3631167028862bE2a173976CA11"
ACCOUNTS = 200


class ChainAccount(NamedTuple):
    address: str
    key: str  # everybody knows it: no secret of anybody's


class Spent(NamedTuple):
    """An authorization that was used."""

    nonce: str
    transaction: str


def word(value: str | int | bool) -> str:
    """As the chain's interface spells a number, an address or a nonce: 32 bytes in hex."""
    return f"{int(value, 16) if isinstance(value, str) else int(value):064x}"


@cache
def contracts() -> dict[str, Any]:
    return json.loads((PAYMENT_PEERS / "contracts.json").read_text("utf-8"))


@dataclass(kw_only=True)
class LocalChain:
    url: str
    _unused: Iterator[ChainAccount]
    _web: httpx2.Client = field(default_factory=lambda: httpx2.Client(trust_env=False, timeout=WAIT_SECONDS))

    def ask(self, method: str, *parameters: Any) -> Any:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer = self._web.post(self.url, json=asked).raise_for_status().json()
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def account(self) -> ChainAccount:
        """One that nobody used."""
        return next(self._unused)

    def send(self, sender: str, target: str, data: str) -> str:
        """A transaction that is mined at once; its hash. One that fails raises `AssertionError`."""
        return self.ask("eth_sendTransaction", {"from": sender, "to": target, "data": data})

    def topic(self, event: str) -> str:
        return self.ask("web3_sha3", "0x" + event.encode().hex())

    @contextmanager
    def standing_still(self) -> Generator[None]:
        """What is sent waits to be mined, and is mined at the end."""
        self.ask("evm_setAutomine", False)
        try:
            yield
        finally:
            self.ask("evm_setAutomine", True)
            self.ask("anvil_mine", "0x1")

    def await_waiting(self, number: int) -> None:
        """Until so many transactions wait to be mined."""

        def look() -> bool | None:
            return int(self.ask("txpool_status")["pending"], 16) >= number or None

        until(f"{number} transactions that wait", look)

    def close(self) -> None:
        self._web.close()


@dataclass(frozen=True, kw_only=True)
class TestDollar:
    __test__ = False

    chain: LocalChain
    bank: str  # who pays for the transactions of the tests themselves
    address: str = DOLLAR

    def call(self, signature: str, *words: str | int | bool) -> str:
        asked = {"to": self.address, "data": self.data(signature, *words)}
        return self.chain.ask("eth_call", asked, "latest")

    def data(self, signature: str, *words: str | int | bool) -> str:
        return "0x" + contracts()["TestDollar"]["selectors"][signature] + "".join(map(word, words))

    def balance(self, owner: str) -> int:
        """In atomic units: millionths of a dollar."""
        return int(self.call("balanceOf(address)", owner), 16)

    def mint(self, owner: str, atomic: int) -> None:
        self.chain.send(self.bank, self.address, self.data("mint(address,uint256)", owner, atomic))

    def rich(self, atomic: int = 10_000_000) -> ChainAccount:
        """Somebody with that much, and no past."""
        account = self.chain.account()
        self.mint(account.address, atomic)
        return account

    def submit(self, payload: Mapping[str, Any]) -> None:
        """Somebody takes this payment to the chain, who need not be who it is made out to."""
        given, signature = payload["authorization"], payload["signature"]
        numbers = [int(given[name]) for name in ("value", "validAfter", "validBefore")]
        signed = int(signature[-2:], 16), signature[2:66], signature[66:130]
        data = self.data(
            "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
            given["from"], given["to"], *numbers, given["nonce"], *signed,
        )  # fmt: skip
        self.chain.send(self.bank, self.address, data)

    def used(self, payer: str, nonce: str) -> bool:
        return bool(int(self.call("authorizationState(address,bytes32)", payer, nonce), 16))

    def spent_by(self, payer: str) -> Sequence[Spent]:
        """The authorizations of this payer that were used, in their order."""
        found = self.chain.ask(
            "eth_getLogs",
            {
                "address": self.address,
                "fromBlock": "0x0",
                "topics": [self.chain.topic("AuthorizationUsed(address,bytes32)"), "0x" + word(payer)],
            },
        )
        return [Spent(nonce=log["topics"][2], transaction=log["transactionHash"]) for log in found]


@contextmanager
def background(
    command: Sequence[str | Path], log: Path, environment: dict[str, str] | None = None
) -> Generator[Background]:
    """A program for others to speak to, ended with the block."""
    given = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(log.parent), **(environment or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=log.parent,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    running = Background(process=process, log=log)
    try:
        yield running
    finally:
        running.end()


@contextmanager
def local_chain(folder: Path) -> Generator[tuple[LocalChain, TestDollar]]:
    written = folder / "anvil.json"
    options = (
        "--host", "127.0.0.1", "--port", "0", "--chain-id", str(CHAIN_ID), "--accounts", str(ACCOUNTS),
        "--hardfork", "cancun", "--config-out", str(written),
    )  # fmt: skip
    with background((needed(ANVIL, "scripts/peers"), *options), folder / "anvil.log") as running:
        found = running.await_words(r"Listening on ([\d.:]+)")
        known = json.loads(written.read_text("utf-8"))
        bank, *others = map(ChainAccount, known["available_accounts"], known["private_keys"])
        chain = LocalChain(url=f"http://{found[1]}", _unused=iter(others))
        try:
            for address, name in ((DOLLAR, "TestDollar"), (MANY_CALLS, "ManyCalls")):
                chain.ask("anvil_setCode", address, contracts()[name]["code"])
            yield chain, TestDollar(chain=chain, bank=bank.address)
        finally:
            chain.close()
