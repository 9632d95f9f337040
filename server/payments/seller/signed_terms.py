"""The offer-and-receipt extension of x402 in its JWS form: what was asked for, and that it was paid and served, each signed by itself.

Signed with the keys of receipts. A `kid` is a URL below `did:web:` of the issuer, whose document lists them (`/.well-known/did.json`). Our own
receipts (receipts.py) say more, and of every call; these are for payers who know x402 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from auth.jose.base64url import pack
from auth.jose.es256 import sign
from auth.keys.signing_keys import SigningKey, did_of
from server.payments.x402.requirements import Requirements

OFFER_RECEIPT: Final = "offer-receipt"
VERSION: Final = 1

# RFC 8785, as far as texts and whole numbers go: members in order, no blanks.
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class SignedTerms:
    """`key` is the one that signs now."""

    def __init__(self, *, issuer: str, key: Callable[[], SigningKey], clock: Callable[[], int]) -> None:
        self._did = did_of(issuer)
        self._key = key
        self._clock = clock

    def offers(self, requirements: Sequence[Requirements], resource_url: str) -> dict[str, Any]:
        """For the extensions of a challenge: one for each entry of `accepts`, in its order."""
        now = self._clock() // 1000
        return _info(
            offers=[
                self._signed(
                    {
                        "version": VERSION,
                        "resourceUrl": resource_url,
                        "scheme": each.scheme,
                        "network": each.network,
                        "asset": each.asset,
                        "payTo": each.pay_to,
                        "amount": each.amount,
                        "validUntil": now + each.max_timeout_seconds,
                    }
                )
                for each in requirements
            ]
        )

    def receipt(self, settlement: Mapping[str, Any], resource_url: str) -> dict[str, Any]:
        """For the extensions of a settlement that is told to whoever paid."""
        said = {
            "version": VERSION,
            "network": settlement["network"],
            "resourceUrl": resource_url,
            "payer": settlement["payer"],
            "issuedAt": self._clock() // 1000,
        }
        if settlement.get("transaction"):
            said["transaction"] = settlement["transaction"]
        return _info(receipt=self._signed(said))

    def _signed(self, payload: Mapping[str, Any]) -> dict[str, str]:
        key = self._key()
        head = pack(_canonical({"alg": key.algorithm, "kid": f"{self._did}#{key.kid}"}))
        return {
            "format": "jws",
            "signature": sign(f"{head}.{pack(_canonical(payload))}".encode(), key.key).decode(),
        }


def _info(**said: Any) -> dict[str, Any]:
    return {"info": {"version": VERSION, **said}}
