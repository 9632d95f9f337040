"""A price that was named holds for a while: for this call, with these arguments, by this caller. Whoever was told one amount is not
surprised by another, and what was quoted for one call does not pay for another.

A quote is given along with the demand for payment and comes back with the payment. The server keeps nothing of it: it is signed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from auth.jose.base64url import pack, unpack
from server.lib.money.amounts import Micros
from server.payments.seller.offers import Offer

KEY_PURPOSE: Final = "till-quotes"
# As long as somebody may need to be asked and to pay.
QUOTE_SECONDS: Final = 10 * 60
MAX_QUOTE: Final = 1024
_VERSION: Final = 1
_MAC_BYTES: Final = 16
# What a message says where it is from another caller, or made up: no more than that.
_REFUSED: Final = "this quote was not given for this call"


class BadQuote(Exception):
    """`reason` is for programs, the text for whoever reads it."""

    def __init__(
        self, reason: Literal["quote_invalid", "quote_expired", "quote_mismatch"], text: str
    ) -> None:
        super().__init__(text)
        self.reason: Final = reason


class _Signed(msgspec.Struct, array_like=True, frozen=True):
    format: int
    expires_ms: int
    fingerprint: str
    caller: str
    amount: Micros
    price: str
    asset: str


_decode: Final = msgspec.json.Decoder(_Signed, strict=True).decode


class Quotes:
    """Under a key of its own. `clock` is in milliseconds."""

    def __init__(
        self, key: bytes, *, clock: Callable[[], int], lifetime_seconds: int = QUOTE_SECONDS
    ) -> None:
        self._key = key
        self._clock = clock
        self._lifetime_ms = lifetime_seconds * 1000

    def seal(self, offer: Offer, *, fingerprint: str, caller: str) -> str:
        """`caller`: the principal's key; it is not to be read from the quote."""
        signed = _Signed(
            _VERSION,
            self._clock() + self._lifetime_ms,
            fingerprint,
            self._who(caller),
            offer.amount,
            offer.version,
            offer.asset,
        )
        body = msgspec.json.encode(signed)
        return pack(self._mac(body) + body)

    def open(self, quote: str, offer: Offer, *, fingerprint: str, caller: str) -> Offer:
        """`offer` at the amount and version that were quoted, whatever it costs by now. Raises `BadQuote`."""
        signed = self._signed(quote)
        if signed is None or not hmac.compare_digest(signed.caller, self._who(caller)):
            raise BadQuote("quote_invalid", _REFUSED)
        if not hmac.compare_digest(signed.fingerprint, fingerprint):
            raise BadQuote(
                "quote_mismatch",
                "this price was quoted for other arguments or another tool: call it without a payment to be told the price of this call",
            )
        if self._clock() >= signed.expires_ms:
            raise BadQuote(
                "quote_expired", "this quote has expired: call the tool without a payment for a new one"
            )
        return msgspec.structs.replace(
            offer, amount=signed.amount, version=signed.price, asset=signed.asset, plan_only=False
        )

    def _signed(self, quote: str) -> _Signed | None:
        if not 0 < len(quote) <= MAX_QUOTE:
            return None
        try:
            raw = unpack(quote)
        except ValueError:
            return None
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            return None
        signed = _decode(body)
        return signed if signed.format == _VERSION else None

    def _mac(self, body: bytes) -> bytes:
        return hmac.new(self._key, b"quote\0" + body, hashlib.sha256).digest()[:_MAC_BYTES]

    def _who(self, caller: str) -> str:
        return hmac.new(self._key, b"caller\0" + caller.encode(), hashlib.sha256).hexdigest()[:32]
