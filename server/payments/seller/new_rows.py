"""Rows of the till before they are written: the charge and the payment of a call, and the key by which the same call is known again."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

import msgspec

from server.payments.seller.charge_rows import KEPT_MS, Charge
from server.payments.seller.claims import NOTHING
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.payment_requirements import PaymentOffers
from server.payments.seller.payment_rows import PaymentRow
from server.payments.seller.priced_call import RETRIES, PricedCall
from server.payments.seller.settlement import kept
from server.payments.x402.payment_payload import Payment
from server.payments.x402.requirements import Requirements
from server.store.idempotency.call_keys import call_key
from server.store.idempotency.sealed_answers import AnswerVault

ID_BYTES: Final = 12
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class NewRows:
    """Of one server."""

    def __init__(
        self,
        *,
        server: str,
        showcase: PaymentOffers,
        answers: AnswerVault,
        key: bytes,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        boot_id: str,
    ) -> None:
        self._server = server
        self._showcase = showcase
        self._answers = answers
        self._key = key
        self._clock = clock
        self._entropy = entropy
        self._boot_id = boot_id

    def call_key(self, caller: str, call: PricedCall, key: str | None) -> str:
        return call_key(
            self._key,
            caller=caller,
            server=self._server,
            tool=call.tool,
            fingerprint=call.fingerprint,
            key=key,
        )

    def is_key_of(self, charge: Charge, call: PricedCall, key: str | None) -> bool:
        return hmac.compare_digest(charge.call_key, self.call_key(charge.caller, call, key))

    def charge(self, call: PricedCall, offer: Offer, key: str | None) -> Charge:
        """Of a call on a balance."""
        now = self._clock()
        return Charge(
            id=self._new_id("chg"),
            call_key=self.call_key(call.caller, call, key),
            fingerprint=call.fingerprint,
            keyed=key is not None,
            state="running",
            paid=False,
            how="balance",
            server=call.server,
            tool=call.tool,
            call_id=call.call_id,
            caller=call.caller,
            client_id=call.client_id,
            grant_id=call.grant_id,
            wallet=call.wallet,
            amount=offer.amount,
            currency=CURRENCY,
            price=offer.version,
            spent=NOTHING,
            payment_id=None,
            retries_left=RETRIES if offer.upfront else 0,
            owner=self._boot_id,
            created_at=now,
            expires_at=now + KEPT_MS,
        )

    def charge_paid_with(self, row: PaymentRow, call: PricedCall, offer: Offer, key: str | None) -> Charge:
        """Of a call with a payment of its own."""
        return msgspec.structs.replace(
            self.charge(call, offer, key),
            how="payment",
            payment_id=row.id,
            # The first time is taken up like the others.
            retries_left=RETRIES + 1 if offer.upfront else 0,
        )

    def payment(
        self, call: PricedCall, offer: Offer, payment: Payment, requirements: Requirements
    ) -> PaymentRow:
        now = self._clock()
        authorization = payment.authorization
        payment_id = self._new_id("pay")
        return PaymentRow(
            id=payment_id,
            network=requirements.network,
            asset=requirements.asset.lower(),
            payer=authorization.from_.lower(),
            nonce=authorization.nonce.lower(),
            proof_hash=payment.proof_hash,
            purpose="call",
            fingerprint=call.fingerprint,
            server=self._server,
            caller=call.caller,
            wallet=None,
            atomic=requirements.amount,
            amount=offer.amount,
            currency=CURRENCY,
            pay_to=requirements.pay_to,
            valid_before=authorization.valid_before,
            requirements=kept(requirements, self._showcase.resource(call.tool)),
            sealed=self._answers.seal_bytes(payment_id, _encode(payment.forward)),
            owner=self._boot_id,
            created_at=now,
            expires_at=max(now + KEPT_MS, authorization.valid_before * 1000),
        )

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self._entropy(ID_BYTES).hex()}"


def payer_of(row: PaymentRow) -> str:
    """The caller that somebody is of whom nothing is known but the payment."""
    return f"payer:{row.network}:{row.payer}"
