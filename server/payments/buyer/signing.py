"""From a purchase to the payment that a server takes, in both versions of the protocol (x402 v2 §5.2, v1 §5.2; EIP-3009)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from server.lib.evm.eip712 import NONCE_BYTES, TokenDomain, TransferWithAuthorization, transfer_digest
from server.lib.evm.key_files import KeyUnusable, load_key
from server.lib.evm.secp256k1 import PrivateKey
from server.payments.buyer.choice import Purchase
from server.payments.buyer.spending_policy import CannotPay
from server.payments.x402.envelopes import ENVELOPE_BYTES
from server.payments.x402.payment_identifier import with_identifier
from server.payments.x402.requirements import V1, V2

# Clocks differ; version 1's clients allow for ten minutes, version 2's sign without a beginning.
EARLIER_SECONDS: Final = 600


def sign_payment(
    purchase: Purchase,
    challenge: Mapping[str, Any],
    key: PrivateKey,
    *,
    identifier: str,
    nonce: bytes,
    now_seconds: int,
) -> tuple[dict[str, Any], int]:
    """The payment, and when it ends to be good for anything. `identifier` names this purchase where the server takes a name."""
    if len(nonce) != NONCE_BYTES:
        raise ValueError("a nonce has 32 bytes")
    requirements = purchase.requirements
    transfer = TransferWithAuthorization(
        from_=key.address,
        to=purchase.payee,
        value=int(requirements.amount),
        valid_after=now_seconds - EARLIER_SECONDS if purchase.version == V1 else 0,
        valid_before=now_seconds + purchase.seconds,
        nonce=nonce,
    )
    token = purchase.token
    domain = TokenDomain(
        name=token.name, version=token.version, chain_id=purchase.network.chain_id, contract=token.address
    )
    try:
        signature = key.sign(transfer_digest(domain, transfer))
    except ValueError:
        raise CannotPay("this has a price that cannot be signed for: its token is misnamed") from None
    payload = {
        "signature": f"0x{signature.hex()}",
        "authorization": {
            "from": transfer.from_,
            "to": transfer.to,
            "value": str(transfer.value),
            "validAfter": str(transfer.valid_after),
            "validBefore": str(transfer.valid_before),
            "nonce": f"0x{nonce.hex()}",
        },
    }
    payment = (
        _v1(purchase, payload) if purchase.version == V1 else _v2(purchase, challenge, payload, identifier)
    )
    if len(msgspec.json.encode(payment)) > ENVELOPE_BYTES:
        raise CannotPay("this wants more to be sent with a payment than servers take")
    return payment, transfer.valid_before


def _v1(purchase: Purchase, payload: Mapping[str, Any]) -> dict[str, Any]:
    # Named as the server names it: version 1 has names of its own for networks.
    network = purchase.offered["network"]
    return {"x402Version": V1, "scheme": purchase.requirements.scheme, "network": network, "payload": payload}


def _v2(
    purchase: Purchase, challenge: Mapping[str, Any], payload: Mapping[str, Any], identifier: str
) -> dict[str, Any]:
    payment: dict[str, Any] = {"x402Version": V2}
    if isinstance(resource := challenge.get("resource"), Mapping):
        payment["resource"] = resource
    # To the letter: it is compared with what was offered.
    payment |= {"accepted": purchase.offered, "payload": payload}
    extensions: object = challenge.get("extensions")
    if isinstance(extensions, Mapping) and extensions:
        payment["extensions"] = with_identifier(cast("Mapping[str, Any]", extensions), identifier)
    return payment


def paying_key(reference: str) -> PrivateKey:
    """What `env:NAME` or `file:/path` names. Raises `CannotPay`."""
    try:
        return load_key(reference)
    except KeyUnusable as error:
        raise CannotPay(str(error), hint=error.hint) from None
