"""What a call brings to be paid with, and to be known by: its payment and its key."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from server.calls.request import Request, key_of
from server.payments.seller.priced_call import NOTHING_SHOWN, Shown
from server.payments.x402.payment_headers import NOTHING_YET, PAYMENT_HEADERS
from server.payments.x402.payment_payload import BadPayment, read_payment
from server.payments.x402.requirements import V1
from server.store.idempotency.call_keys import A_KEY, is_key


def shown_by(request: Request) -> Shown:
    """What a request brings to pay with. Raises `BadPayment`."""
    raw, key = _raw(request)
    if raw is None and key is None:
        return NOTHING_SHOWN
    payment = None if raw is None else read_payment(raw)
    if payment is not None and payment.version == V1 and request.route.params.meta.payment is not UNSET:
        raise BadPayment(
            "invalid_x402_version", "Payments inside MCP are of version 2; version 1 is for headers alone."
        )
    if key is None and payment is not None:
        key = payment.identifier
    if key is None:
        return Shown(payment=payment)
    if not is_key(key):
        raise BadPayment("invalid_idempotency_key", A_KEY)
    return Shown(payment=payment, key=key)


def known_by(request: Request) -> tuple[str, ...]:
    """What the same call comes with when it is made again: its key, or its payment. Nothing for what brings neither."""
    try:
        brought = shown_by(request)
    except BadPayment:
        return ()
    caller = request.principal.key()
    if brought.key is not None:
        return ("key", caller, brought.key)
    if brought.payment is None:
        return ()
    authorization = brought.payment.authorization
    return ("payment", caller, authorization.from_.lower(), authorization.nonce.lower())


def what_it_brings(request: Request) -> dict[str, Any]:
    """What goes into the order of a task."""
    payment, key = _raw(request)
    return {
        "payment": payment,
        "idempotency_key": key if isinstance(key, str) else None,
        "charge": request.charge,
        "address": request.address,
    }


def version_in_header(request: Request, brought: Shown) -> int:
    """Of the payment that came in a header of MCP's own wire; 0: none did. Plain HTTP answers by itself."""
    by_header = request.headers is not None and request.route.params.meta.payment is UNSET
    return brought.payment.version if by_header and brought.payment is not None else 0


def _raw(request: Request) -> tuple[Any, Any]:
    """A payment and a key as they came, in the `_meta` of a request or in its headers; None for none."""
    meta, headers = request.route.params.meta, request.headers
    payment: Any = request.payment if meta.payment is UNSET else meta.payment
    if headers is not None and payment is None:
        written = (headers[name].decode("latin-1") for name in PAYMENT_HEADERS if name in headers)
        payment = next((text for text in written if text != NOTHING_YET), None)
    return payment, key_of(request)
