"""Somebody with a key who signs, the bodies that a server sends on, and a test facilitator that listens. Used by the tests beside it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from structlog.testing import CapturingLogger

from server.lib.evm.eip712 import TokenDomain, TransferWithAuthorization, transfer_digest
from server.lib.evm.payment_networks import Asset, Network, find_network, usual_asset
from server.lib.evm.secp256k1 import PrivateKey
from server.payments.test_facilitator.coins import Coins
from server.payments.test_facilitator.endpoints import FacilitatorEndpoints
from server.payments.test_facilitator.state_file import StateFile
from server.payments.test_facilitator.switches import Switches
from server.run.test_facilitator import FacilitatorSettings, resolver
from tests.transport.http.loopback_server import Answer, Peer, Running, capturing, running

NOW = 1_800_000_000
PAY_TO = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
EACH = 1_000_000_000  # micros: 1000 dollars


def place(name: str = "base-sepolia") -> tuple[Network, Asset]:
    network = find_network(name)
    assert network is not None
    asset = usual_asset(network.caip2)
    assert asset is not None
    return network, asset


NETWORK, USDC = place()


@dataclass(frozen=True)
class Payer:
    key: PrivateKey = field(default_factory=lambda: PrivateKey((7).to_bytes(32, "big")))

    @property
    def address(self) -> str:
        return self.key.address

    def signed(
        self,
        value: int = 10_000,
        *,
        nonce: int = 1,
        to: str = PAY_TO,
        valid_after: int = 0,
        valid_before: int = NOW + 300,
        token: Asset = USDC,
        chain_id: int = NETWORK.chain_id,
        **domain: str,
    ) -> dict[str, Any]:
        """The `payload` of a payment. `domain`: what of the token's name, version or contract is to be another."""
        stated = {"name": token.name, "version": token.version, "contract": token.address, **domain}
        transfer = TransferWithAuthorization(
            from_=self.address,
            to=to,
            value=value,
            valid_after=valid_after,
            valid_before=valid_before,
            nonce=nonce.to_bytes(32, "big"),
        )
        signature = self.key.sign(transfer_digest(TokenDomain(chain_id=chain_id, **stated), transfer))
        return {
            "signature": "0x" + signature.hex(),
            "authorization": {
                "from": self.address,
                "to": to,
                "value": str(value),
                "validAfter": str(valid_after),
                "validBefore": str(valid_before),
                "nonce": f"0x{nonce:064x}",
            },
        }


def requirements(amount: int = 10_000, *, token: Asset = USDC, **changed: Any) -> dict[str, Any]:
    return {
        "scheme": "exact",
        "network": token.network,
        "amount": str(amount),
        "asset": token.address,
        "payTo": PAY_TO,
        "maxTimeoutSeconds": 300,
        "extra": {"name": token.name, "version": token.version},
        **changed,
    }


def body_2(payload: dict[str, Any], wanted: dict[str, Any] | None = None, **accepted: Any) -> dict[str, Any]:
    """`accepted`: what the payer says it accepted besides what was wanted."""
    wanted = wanted or requirements()
    return {
        "x402Version": 2,
        "paymentPayload": {
            "x402Version": 2,
            "resource": {"url": "mcp://tool/weather", "description": "The weather"},
            "accepted": {**wanted, **accepted},
            "payload": payload,
        },
        "paymentRequirements": wanted,
    }


def body_1(payload: dict[str, Any], amount: int = 10_000, **changed: Any) -> dict[str, Any]:
    return {
        "x402Version": 1,
        "paymentPayload": {
            "x402Version": 1,
            "scheme": "exact",
            "network": "base-sepolia",
            "payload": payload,
        },
        "paymentRequirements": {
            "scheme": "exact",
            "network": "base-sepolia",
            "maxAmountRequired": str(amount),
            "asset": USDC.address,
            "payTo": PAY_TO,
            "resource": "https://example.org/weather",
            "description": "The weather",
            "mimeType": "application/json",
            "maxTimeoutSeconds": 300,
            "extra": {"name": USDC.name, "version": USDC.version},
            **changed,
        },
    }


@dataclass
class Facilitating:
    server: Running
    desk: FacilitatorEndpoints
    clock: list[int]
    logged: CapturingLogger

    async def ask(self, path: str, body: object = None, **headers: str) -> Answer:
        async with await self.server.connect() as peer:
            return await self.ask_on(peer, path, body, **headers)

    async def ask_on(self, peer: Peer, path: str, body: object = None, **headers: str) -> Answer:
        await peer.send(self.request(path, body, **headers))
        return await peer.answer()

    async def said(self, path: str, body: object = None) -> dict[str, Any]:
        answer = await self.ask(path, body)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    async def ledger(self) -> dict[str, Any]:
        return await self.said("/test/ledger")

    async def switch(self, **switches: object) -> None:
        await self.said("/test/switch", switches)

    def request(self, path: str, body: object = None, *, method: str = "", **headers: str) -> bytes:
        """A POST of JSON (or of bytes as they are); without a body a GET."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        verb = method or ("GET" if body is None else "POST")
        fields = {"host": f"127.0.0.1:{self.server.port}", "content-length": str(len(data)), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{verb} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data

    def events(self) -> list[str]:
        """What was logged."""
        return [call.kwargs["event"] for call in self.logged.calls]


@asynccontextmanager
async def facilitating(
    *networks: str,
    file: StateFile | None = None,
    coins: Coins | None = None,
    host: str = "127.0.0.1",
    bind: str = "127.0.0.1:0",
) -> AsyncGenerator[Facilitating]:
    clock = [NOW]
    places = [place(name) for name in networks or ("base-sepolia",)]
    coins = coins or Coins(places, EACH)
    log, logged = capturing()
    desk = FacilitatorEndpoints(coins, Switches(), clock=lambda: clock[0], log=log, file=file)
    settings = FacilitatorSettings(host=host, port=0, networks=places, each=EACH)
    async with running(resolve=resolver(desk, settings), bind=bind) as server:
        yield Facilitating(server, desk, clock, logged)
