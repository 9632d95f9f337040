"""A shop: asks for money, checks what it is given as a facilitator would, keeps count of what it cashed. It can lose answers."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any

from server.lib.evm.eip712 import TokenDomain, TransferWithAuthorization, transfer_digest
from server.lib.evm.secp256k1 import recover

PAYEE = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
USDC = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
TRANSACTION = "0x" + "ab" * 32
# The first key of every development chain: known to everybody.
KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
PAYER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
URL = "mcp://tool/echo"


def offer(**changes: Any) -> dict[str, Any]:
    return {
        "scheme": "exact",
        "network": "eip155:84532",
        "amount": "20000",
        "asset": USDC,
        "payTo": PAYEE,
        "maxTimeoutSeconds": 300,
        "extra": {"name": "USDC", "version": "2"},
        **changes,
    }


def offer_v1(**changes: Any) -> dict[str, Any]:
    found = offer(**{"network": "base-sepolia", **changes})
    return {**found, "maxAmountRequired": found.pop("amount"), "resource": URL, "description": "echo"}


def asking(
    *accepts: dict[str, Any], version: int = 2, error: str = "Payment required", **more: Any
) -> dict[str, Any]:
    if version == 1:
        return {"x402Version": 1, "error": error, "accepts": list(accepts) or [offer_v1()]}
    resource = {"url": URL, "description": "the same text back"}
    return {
        "x402Version": 2,
        "error": error,
        "resource": resource,
        "accepts": list(accepts) or [offer()],
        **more,
    }


def as_result(challenge: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {
        "content": [{"type": "text", "text": json.dumps(challenge)}],
        "structuredContent": challenge,
        "isError": True,
        "resultType": "complete",
        **({"_meta": meta} if meta else {}),
    }


def packed(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def unpacked(text: str) -> Any:
    return json.loads(base64.b64decode(text, validate=True))


@dataclass
class Shop:
    version: int = 2
    accepts: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)  # laid over the challenge
    refuses: str = ""  # takes no payment, and says this
    shown: list[dict[str, Any]] = field(default_factory=list)  # every payment that came
    cashed: dict[str, dict[str, Any]] = field(default_factory=dict)  # by nonce
    now: float | None = None

    @property
    def challenge(self) -> dict[str, Any]:
        return asking(*self.accepts, version=self.version, **self.more)

    @property
    def taken(self) -> int:
        return sum(int(each["payload"]["authorization"]["value"]) for each in self.cashed.values())

    def take(self, payment: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """The receipt and nothing, or None and the challenge that says what was wrong."""
        self.shown.append(payment)
        problem = self.refuses or self._problem(payment)
        if problem:
            return None, {**self.challenge, "error": problem}
        authorization = payment["payload"]["authorization"]
        self.cashed[authorization["nonce"]] = payment
        network = "base-sepolia" if self.version == 1 else "eip155:84532"
        receipt = {
            "success": True,
            "transaction": TRANSACTION,
            "network": network,
            "payer": authorization["from"],
        }
        return receipt, {}

    def _problem(self, payment: dict[str, Any]) -> str:
        if payment["x402Version"] != self.version:
            return "invalid_x402_version"
        accepts = self.challenge["accepts"]
        if self.version == 2:
            if payment["accepted"] not in accepts:
                return "not what was offered"
            if payment.get("resource") != self.challenge["resource"]:
                return "not for this"
            wanted = payment["accepted"]
        else:
            if (payment["scheme"], payment["network"]) != ("exact", "base-sepolia"):
                return "not what was offered"
            wanted = {**accepts[0], "amount": accepts[0]["maxAmountRequired"]}
        found = payment["payload"]["authorization"]
        transfer = TransferWithAuthorization(
            from_=found["from"],
            to=found["to"],
            value=int(found["value"]),
            valid_after=int(found["validAfter"]),
            valid_before=int(found["validBefore"]),
            nonce=bytes.fromhex(found["nonce"].removeprefix("0x")),
        )
        extra = wanted["extra"]
        domain = TokenDomain(
            name=extra["name"], version=extra["version"], chain_id=84532, contract=wanted["asset"]
        )
        signature = bytes.fromhex(payment["payload"]["signature"].removeprefix("0x"))
        if recover(transfer_digest(domain, transfer), signature) != transfer.from_:
            return "signed by somebody else"
        if (found["value"], found["to"]) != (wanted["amount"], wanted["payTo"]):
            return "not what was asked for"
        now = time.time() if self.now is None else self.now
        if not transfer.valid_after <= now < transfer.valid_before:
            return "not valid now"
        return ""
