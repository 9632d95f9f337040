"""Checking receipts with nothing but the keys that their server publishes: no server is asked, and no store. Making them is receipts.py's.

A key that signs no more proves as much as one that does: its secret part was destroyed when it was replaced, so what bears its signature
was signed in its time. A key that was dropped because others may have it proves nothing, whatever the receipt's date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from auth.jose import jws
from auth.jose.jws import BadJws, CompactJws, number_in, text_in
from auth.jose.public_keys import BadKeys, PublicKey, read_key
from server.lib.money.amounts import MOST, Micros
from server.mcp.terms import SIGNED_RECEIPT
from server.payments.seller.receipts import RECEIPT_TYPE

RECEIPT_CHARACTERS: Final = 16 * 1024
# Ten years of keys that are replaced every month, and as many by hand.
KEYS: Final = 1_000
KEYS_BYTES: Final = 1024 * 1024
# Clocks of a server that was restarted, or of several, differ by so much.
LEEWAY_SECONDS: Final = 300
_OPTIONAL: Final = ("network", "payer", "transaction", "amount")


class BadReceipt(Exception):
    """What is wrong with it; the text is a sentence without its full stop."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What it says. Nobody has vouched for it before `verified`."""

    issuer: str
    at: int  # seconds since 1970
    charge: str
    caller: str
    server: str
    tool: str
    call: str
    how: str  # balance, payment, or what covered the call: trial, quota, pass
    amount: Micros
    currency: str
    price: str
    settlement: Mapping[str, str]
    kid: str
    token: CompactJws

    @property
    def payer(self) -> str:
        """The address that paid on a chain, or whoever called."""
        return self.settlement.get("payer") or self.caller


class ReceiptKey(msgspec.Struct, frozen=True, kw_only=True):
    key: PublicKey
    begins: int | None  # seconds since 1970; None: its set does not say
    ends: int | None
    revoked: bool

    def signed_at(self, at: int) -> bool:
        if self.begins is not None and at < self.begins - LEEWAY_SECONDS:
            return False
        return self.ends is None or at <= self.ends + LEEWAY_SECONDS


def receipts_in(text: str) -> list[str]:
    """Receipts as they are kept: alone, one on each line, or in the results of calls as JSON. Raises `BadReceipt`."""
    text = text.strip()
    if not text:
        raise BadReceipt("there is no receipt in it")
    if text[0] not in "{[":
        return text.split()
    try:
        document: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise BadReceipt("it is neither a receipt nor JSON") from None
    found = [
        each
        for result in (cast("list[object]", document) if isinstance(document, list) else [document])
        if (each := _in_result(result)) is not None
    ]
    if not found:
        raise BadReceipt(f'it has no _meta["{SIGNED_RECEIPT}"]: that call cost nothing, or was not answered')
    return found


def _in_result(result: object) -> str | None:
    """Of a result, or a whole JSON-RPC answer."""
    for place in ("result", "_meta", SIGNED_RECEIPT):
        if not isinstance(result, dict):
            return None
        members = cast("dict[str, object]", result)
        if place == "result" and place not in members:
            continue
        result = members.get(place)
    return result if isinstance(result, str) else None


def read_receipt(text: str) -> Receipt:
    """Raises `BadReceipt`."""
    try:
        token = jws.read(text, longest=RECEIPT_CHARACTERS)
        kind = token.header.get("typ")
        if kind != RECEIPT_TYPE:
            raise BadReceipt(f"it is no receipt: its type is {kind if isinstance(kind, str) else 'not said'}")
        claims = token.claims
        return Receipt(
            issuer=text_in(claims, "iss"),
            at=number_in(claims, "iat"),
            charge=text_in(claims, "jti"),
            caller=text_in(claims, "sub", ""),
            server=text_in(claims, "server"),
            tool=text_in(claims, "tool"),
            call=text_in(claims, "call", ""),
            how=text_in(claims, "how"),
            amount=_micros(text_in(claims, "amount")),
            currency=text_in(claims, "currency"),
            price=text_in(claims, "price", ""),
            settlement=_settlement(claims.get("settlement", {})),
            kid=text_in(token.header, "kid"),
            token=token,
        )
    except BadJws as problem:
        raise BadReceipt(f"it is not as receipts are: it {_continued(problem)}") from None


def read_keys(document: bytes) -> list[ReceiptKey]:
    """The keys of a published set. Raises `BadReceipt`."""
    try:
        found: object = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError):
        raise BadReceipt("the key set is not JSON") from None
    listed = cast("dict[str, object]", found).get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise BadReceipt('the key set has no "keys"')
    entries = cast("list[object]", listed)
    if len(entries) > KEYS:
        raise BadReceipt(f"the key set has more than {KEYS} keys")
    keys: list[ReceiptKey] = []
    for entry in entries:
        try:
            key = read_key(entry)
        except BadKeys as problem:
            raise BadReceipt(f"the key set {problem}") from None
        if key is not None:
            jwk = cast("Mapping[str, Any]", entry)
            keys.append(
                ReceiptKey(
                    key=key,
                    begins=_moment(jwk.get("nbf")),
                    ends=_moment(jwk.get("exp")),
                    revoked=jwk.get("revoked") is not None,
                )
            )
    return keys


def verify(receipt: Receipt, keys: Sequence[ReceiptKey], *, issuer: str | None = None) -> ReceiptKey:
    """The key that has signed it. Raises `BadReceipt`. `issuer`: whose receipt it must be."""
    if issuer is not None and receipt.issuer != issuer:
        raise BadReceipt(f"it is a receipt of {receipt.issuer}, and not of {issuer}")
    named = [key for key in keys if key.key.kid == receipt.kid]
    if not named:
        raise BadReceipt(
            f"it names the key {receipt.kid}, which is not among these: they are of another server, or from before it was made"
        )
    try:
        signature, algorithm = receipt.token.signature, text_in(receipt.token.header, "alg")
    except BadJws as problem:
        raise BadReceipt(f"it is not as receipts are: it {_continued(problem)}") from None
    for key in named:
        if not key.key.is_signed(receipt.token.signed, signature, algorithm):
            continue
        if key.revoked:
            raise BadReceipt(
                "its signature is right, but its key was dropped because others may have it: anybody may have made this receipt"
            )
        if not key.signed_at(receipt.at):
            raise BadReceipt("its signature is right, but its key did not sign at that time")
        return key
    raise BadReceipt("its signature is not that of the key it names: it was altered, or never issued")


def _micros(text: str) -> Micros:
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MOST:
        raise BadJws("amount is not a number of millionths")
    return int(text)


def _settlement(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise BadJws("settlement is no object")
    members = cast("dict[str, Any]", value)
    return {name: text_in(members, name) for name in _OPTIONAL if members.get(name)}


def _moment(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _continued(problem: BadJws) -> str:
    said = str(problem)
    return said if said.startswith(("is ", "gives ")) else f"is damaged: {said}"
