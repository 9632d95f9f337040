"""Cheques as they come to be verified or settled: a signed authorization and what it is to pay for (x402 v2 §7, v1 §7).

As strict as the strictest facilitator that people meet: explicit nulls, missing fields and long descriptions are refused, so that whoever
is tested here is not surprised there. Whether it is good is judging.py's. Written apart from the server's own reading of payments, so
that a mistake there is not made here, too."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from server.lib.money.amounts import BadAmount, parse_atomic

S = TypeVar("S", bound=msgspec.Struct)

MOST_BYTES: Final = 64 * 1024
# Coinbase's facilitator refuses more.
MOST_DESCRIPTION: Final = 500

INVALID_PAYLOAD: Final = "invalid_payload"
INVALID_REQUIREMENTS: Final = "invalid_payment_requirements"
INVALID_VERSION: Final = "invalid_x402_version"

# `\Z`: `$` would let a line end through.
_Address: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^0x[0-9a-fA-F]{40}\Z")]
_Nonce: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^0x[0-9a-fA-F]{64}\Z")]
# 2**256 - 1 has 78 digits.
_Whole: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,77})\Z")]
# Contracts' signatures may be long, and are refused with a reason of their own.
_Signature: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^0x([0-9a-fA-F]{2}){1,4096}\Z")]
_Description: TypeAlias = Annotated[str, msgspec.Meta(max_length=MOST_DESCRIPTION)]
_Seconds: TypeAlias = Annotated[int, msgspec.Meta(gt=0)]
_Object: TypeAlias = dict[str, Any]


class BadCheque(ValueError):
    """A cheque that cannot be read. `reason` is a code of the protocol; the text says which part it is, and repeats nothing of it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Cheque(msgspec.Struct, frozen=True, kw_only=True):
    """A cheque of either version. Addresses as they were written."""

    x402_version: int
    scheme: str  # of the payment; what is asked for follows
    network: str
    asked_scheme: str
    asked_network: str
    asset: str
    pay_to: str
    amount: int
    domain_name: str | None
    domain_version: str | None
    payer: str
    to: str
    value: int
    valid_after: int
    valid_before: int
    nonce: bytes
    signature: bytes


def read_cheque(body: bytes) -> Cheque:
    """Read the body of a request to /verify or /settle. Raises `BadCheque`."""
    version = _decode(body, _Versioned).x402_version
    if version == 2:
        newer = _decode(body, _Body2)
        return _cheque(newer, newer.payment_payload.accepted, newer.payment_requirements.amount)
    if version == 1:
        older = _decode(body, _Body1)
        return _cheque(older, older.payment_payload, older.payment_requirements.max_amount_required)
    raise BadCheque(INVALID_VERSION, "x402Version is neither 1 nor 2")


# ── the two forms ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Form(msgspec.Struct, kw_only=True, rename="camel"):
    pass


class _Versioned(_Form):
    x402_version: int


class _Authorization(_Form):
    from_: _Address = msgspec.field(name="from")
    to: _Address
    value: _Whole
    valid_after: _Whole
    valid_before: _Whole
    nonce: _Nonce


class _Signed(_Form):
    signature: _Signature
    authorization: _Authorization


class _Resource(_Form):
    url: str
    description: _Description = ""
    mime_type: str = ""


class _Requirements2(_Form):
    scheme: str
    network: str
    amount: _Whole
    asset: _Address
    pay_to: _Address
    max_timeout_seconds: _Seconds
    extra: _Object = msgspec.field(default_factory=_Object)


class _Payment2(_Form):
    x402_version: int
    accepted: _Requirements2
    payload: _Signed
    resource: _Resource | msgspec.UnsetType = msgspec.UNSET
    extensions: _Object = msgspec.field(default_factory=_Object)


class _Body2(_Form):
    x402_version: int
    payment_payload: _Payment2
    payment_requirements: _Requirements2


class _Requirements1(_Form):
    scheme: str
    network: str
    max_amount_required: _Whole
    asset: _Address
    pay_to: _Address
    resource: str
    description: _Description
    max_timeout_seconds: _Seconds
    mime_type: str = ""
    output_schema: _Object = msgspec.field(default_factory=_Object)
    extra: _Object = msgspec.field(default_factory=_Object)


class _Payment1(_Form):
    x402_version: int
    scheme: str
    network: str
    payload: _Signed


class _Body1(_Form):
    x402_version: int
    payment_payload: _Payment1
    payment_requirements: _Requirements1


def _cheque(body: _Body1 | _Body2, stated: _Payment1 | _Requirements2, amount: str) -> Cheque:
    payment, wanted = body.payment_payload, body.payment_requirements
    if payment.x402_version != body.x402_version:
        raise BadCheque(INVALID_VERSION, "x402Version of the body and of the payment differ")
    name, domain_version = wanted.extra.get("name"), wanted.extra.get("version")
    said = payment.payload.authorization
    return Cheque(
        x402_version=body.x402_version,
        scheme=stated.scheme,
        network=stated.network,
        asked_scheme=wanted.scheme,
        asked_network=wanted.network,
        asset=wanted.asset,
        pay_to=wanted.pay_to,
        amount=_number(amount, INVALID_REQUIREMENTS),
        domain_name=name if isinstance(name, str) else None,
        domain_version=domain_version if isinstance(domain_version, str) else None,
        payer=said.from_,
        to=said.to,
        value=_number(said.value, INVALID_PAYLOAD),
        valid_after=_number(said.valid_after, INVALID_PAYLOAD),
        valid_before=_number(said.valid_before, INVALID_PAYLOAD),
        nonce=bytes.fromhex(said.nonce[2:]),
        signature=bytes.fromhex(payment.payload.signature[2:]),
    )


def _number(text: str, reason: str) -> int:
    try:
        return parse_atomic(text)
    except BadAmount as error:
        raise BadCheque(reason, f"a number {error}") from None


def _decode(body: bytes, shape: type[S]) -> S:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        text = str(error)
        about_us = "$.paymentRequirements" in text
        raise BadCheque(INVALID_REQUIREMENTS if about_us else INVALID_PAYLOAD, text) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadCheque(INVALID_PAYLOAD, "the body is no JSON that can be read") from None
