"""Receipts: what was charged for one call, signed with the keys that sign access tokens, so that anybody can check it offline.

A receipt is a JWS of type `receipt+jwt`. Nobody takes one for a token: the types differ, and it has no audience.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from auth.jose.base64url import pack
from auth.jose.es256 import sign
from auth.keys.signing_keys import SigningKey
from auth.values.compact_json import json_bytes
from server.payments.seller.charge_rows import Charge

RECEIPT_TYPE: Final = "receipt+jwt"


class Receipts:
    """`key` is the one that signs now."""

    def __init__(self, *, issuer: str, key: Callable[[], SigningKey], currency: str) -> None:
        self._issuer = issuer
        self._key = key
        self._currency = currency

    def of(self, charge: Charge, settlement: Mapping[str, Any] | None, *, at: int) -> str:
        claims: dict[str, Any] = {
            "iss": self._issuer,
            "iat": at // 1000,
            "jti": charge.id,
            "sub": charge.caller,
            "server": charge.server,
            "tool": charge.tool,
            "call": charge.call_id,
            "how": charge.how,
            "amount": str(charge.amount),  # micros
            "currency": self._currency,
            "price": charge.price,
        }
        if settlement is not None:
            claims["settlement"] = _settlement(settlement)
        key = self._key()
        head = pack(json_bytes({"alg": key.algorithm, "kid": key.kid, "typ": RECEIPT_TYPE}))
        return sign(f"{head}.{pack(json_bytes(claims))}".encode(), key.key).decode()


def _settlement(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in ("network", "payer", "transaction", "amount") if name in told}
