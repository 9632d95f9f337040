"""What the extensions declare is true of what they declare it of: directories check, and turn a payment away with what is not."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from server.payments.x402.payment_identifier import (
    BadIdentifier,
    declaration,
    is_identifier,
    read_identifier,
    with_identifier,
)


def is_true(extension: dict[str, Any] | None) -> bool:
    assert extension is not None and set(extension) == {"info", "schema"}
    return jsonschema_rs.is_valid(extension["schema"], extension["info"])


@pytest.mark.parametrize("required", [False, True])
def test_the_key_of_a_purchase_is_declared_and_comes_back(required: bool) -> None:
    asked = {"payment-identifier": declaration(required=required), "bazaar": {"info": {}, "schema": {}}}
    answered = with_identifier(asked, "order-0123456789")
    assert read_identifier(answered) == "order-0123456789"
    assert is_true(answered["payment-identifier"])
    assert answered["payment-identifier"]["info"]["required"] is required
    assert answered["bazaar"] == asked["bazaar"]
    assert read_identifier(asked) is None, "what was asked is left as it was"


def test_a_server_that_takes_no_keys_is_sent_none() -> None:
    assert with_identifier({"bazaar": {}}, "order-0123456789") == {"bazaar": {}}


@pytest.mark.parametrize("text", ["a" * 16, "a" * 128, "A-Za_z-0123456789"])
def test_a_key_of_the_right_form_is_one(text: str) -> None:
    assert is_identifier(text)
    assert read_identifier({"payment-identifier": {"info": {"id": text}}}) == text


@pytest.mark.parametrize("text", ["", "a" * 15, "a" * 129, "a" * 16 + "\n", "a b" * 6, "ü" * 16])
def test_a_key_of_another_form_is_none(text: str) -> None:
    assert not is_identifier(text)
    with pytest.raises(BadIdentifier):
        read_identifier({"payment-identifier": {"info": {"id": text}}})


@pytest.mark.parametrize(
    "extension", [7, "x", [], {}, {"info": None}, {"info": "x"}, {"info": {"id": 7}}], ids=repr
)
def test_an_extension_of_another_form_is_refused(extension: object) -> None:
    with pytest.raises(BadIdentifier):
        read_identifier({"payment-identifier": extension})


def test_no_extension_is_no_key() -> None:
    assert read_identifier({}) is None
    assert read_identifier({"payment-identifier": {"info": {"required": False}}}) is None
