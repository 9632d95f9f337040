"""Payments, offers and answers as others write them."""

from __future__ import annotations

import base64
import json
from typing import Any

from server.lib.evm.payment_networks import ASSETS, Asset
from server.payments.x402.requirements import PaidResource, Requirements

PAYER = "0x857b06519e91e3a54538791bdbb0e22373e36b66"
PAYEE = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
NONCE = "0x" + "f3" * 32
SIGNATURE = "0x" + "2d" * 64 + "1b"
TRANSACTION = "0x" + "ab" * 32
NOW = 1_795_000_000
URL = "https://demo.example/mcp"
RESOURCE = PaidResource(url=URL, description="The weather", service_name="Demo")

SEPOLIA: Asset = next(asset for asset in ASSETS if asset.network == "eip155:84532")


def offer(**changes: Any) -> Requirements:
    fields: dict[str, Any] = {
        "scheme": "exact",
        "network": SEPOLIA.network,
        "amount": "10000",
        "asset": SEPOLIA.address,
        "pay_to": PAYEE,
        "max_timeout_seconds": 300,
        "extra": {"name": SEPOLIA.name, "version": SEPOLIA.version},
    }
    return Requirements(**{**fields, **changes})


def authorization(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "from": PAYER,
        "to": PAYEE,
        "value": "10000",
        "validAfter": "0",
        "validBefore": str(NOW + 300),
        "nonce": NONCE,
    }
    return {**fields, **changes}


def payment(version: int = 2, /, *, signature: object = SIGNATURE, **changes: Any) -> dict[str, Any]:
    """Of the version; `changes` are of the authorization."""
    payload = {"signature": signature, "authorization": authorization(**changes)}
    if version == 1:
        return {"x402Version": 1, "scheme": "exact", "network": "base-sepolia", "payload": payload}
    return {"x402Version": 2, "accepted": offer().as_json(), "payload": payload}


def base64_json(value: object) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()
