from __future__ import annotations

import base64
import json

import pytest

from server.payments.x402.envelopes import UnreadableEnvelope
from server.payments.x402.in_band import opened
from server.payments.x402.payment_headers import (
    PAYMENT_HEADERS,
    challenge_header,
    payment_header,
    read_challenge_header,
    receipt_header,
)
from server.payments.x402.payment_payload import read_payment
from server.payments.x402.requirements import payment_required
from server.transport.http import entry, mcp_reply
from tests.payments.x402.builders import RESOURCE, TRANSACTION, offer, payment


def test_a_challenge_goes_out_in_its_header_as_base64_of_json() -> None:
    challenge = payment_required([offer()], RESOURCE, "Zahlung nötig.")
    name, text = challenge_header(challenge)
    assert name == "PAYMENT-REQUIRED"
    assert json.loads(base64.b64decode(text, validate=True)) == challenge
    assert read_challenge_header(text) == challenge


@pytest.mark.parametrize(("version", "name"), [(1, "X-PAYMENT"), (2, "PAYMENT-SIGNATURE")])
def test_a_payment_goes_out_in_the_header_of_its_version(version: int, name: str) -> None:
    found, text = payment_header(payment(version))
    assert found == name
    assert found.lower().encode() in PAYMENT_HEADERS
    assert read_payment(text) == read_payment(payment(version))


@pytest.mark.parametrize(("version", "name"), [(1, "X-PAYMENT-RESPONSE"), (2, "PAYMENT-RESPONSE")])
def test_a_receipt_comes_back_in_the_header_of_its_payments_version(version: int, name: str) -> None:
    told = {"success": True, "transaction": TRANSACTION}
    found, text = receipt_header(told, version)
    assert found == name and found.encode() in mcp_reply.EXPOSED.split(b", ")
    assert opened(text) == told


def test_the_newer_header_is_looked_for_first() -> None:
    assert PAYMENT_HEADERS == (b"payment-signature", b"x-payment")
    # Those by which a request is told to bring a payment, where nothing of payments is loaded.
    assert tuple(entry.PAYMENT_HEADERS.items()) == ((2, PAYMENT_HEADERS[0]), (1, PAYMENT_HEADERS[1]))


@pytest.mark.parametrize("text", ["", "x", "{", "e30=" * 30_000])
def test_a_header_that_holds_nothing_is_refused(text: str) -> None:
    with pytest.raises(UnreadableEnvelope):
        read_challenge_header(text)
