from __future__ import annotations

import json
from typing import Any

import pytest

from server.payments.x402.in_band import (
    find_challenge,
    find_challenge_in_error,
    find_receipt,
)
from server.payments.x402.requirements import payment_required
from tests.payments.x402.builders import RESOURCE, base64_json, offer

CHALLENGE = payment_required([offer()], RESOURCE, "Payment required: $0.01.")
FAILED = {"success": False, "transaction": "", "network": "eip155:84532"}


def test_a_receipt_is_found_beside_a_challenge() -> None:
    found = {"isError": True, "structuredContent": CHALLENGE, "_meta": {"x402/payment-response": FAILED}}
    assert find_receipt(found) == FAILED
    assert find_challenge(found) == CHALLENGE


TEXT = {"type": "text", "text": json.dumps(CHALLENGE)}


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "payment_required", "paymentRequired": CHALLENGE},
        {"isError": True, "structuredContent": CHALLENGE, "content": []},
        {"isError": True, "content": [TEXT]},
        {"isError": True, "content": [TEXT], "structuredContent": None},
        {"isError": True, "content": [TEXT], "structuredContent": {"other": 1}},
        {"isError": True, "content": [{"type": "text", "text": "no"}], "_meta": {"x402/error": CHALLENGE}},
    ],
)
def test_a_challenge_is_found_wherever_a_server_puts_it(result: dict[str, Any]) -> None:
    assert find_challenge(result) == CHALLENGE


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"isError": False, "structuredContent": CHALLENGE},
        {"structuredContent": CHALLENGE, "content": [TEXT], "_meta": {"x402/error": CHALLENGE}},
        {"isError": True, "structuredContent": {"accepts": []}},
        {"isError": True, "structuredContent": {"x402Version": 2, "accepts": "x"}},
        {"isError": True, "content": [{"type": "image", "text": json.dumps(CHALLENGE)}]},
        {"isError": True, "content": ["x"]},
        {"isError": True, "content": [{"type": "text", "text": "a city is missing"}, TEXT]},
        {"isError": True, "content": [{"type": "text", "text": base64_json(CHALLENGE)}]},
        {"isError": True, "content": "x", "_meta": [1]},
        {"resultType": "payment_required", "paymentRequired": [1]},
    ],
)
def test_an_ordinary_result_is_no_challenge(result: dict[str, Any]) -> None:
    assert find_challenge(result) is None


@pytest.mark.parametrize("code", [402, -32042])
@pytest.mark.parametrize("data", [CHALLENGE, {"x402": CHALLENGE}])
def test_a_challenge_is_found_in_an_error_that_asks_for_payment(code: int, data: object) -> None:
    assert find_challenge_in_error({"code": code, "message": "pay", "data": data}) == CHALLENGE
    assert find_challenge_in_error({"code": -32603, "message": "pay", "data": data}) is None


@pytest.mark.parametrize(
    "error", [{}, {"code": 402}, {"code": 402, "data": "x"}, {"code": 402, "data": {"x402": 1}}]
)
def test_another_error_is_no_challenge(error: dict[str, Any]) -> None:
    assert find_challenge_in_error(error) is None


@pytest.mark.parametrize(
    "result", [{}, {"_meta": None}, {"_meta": {"x402/payment-response": 7}}, {"_meta": [1]}]
)
def test_a_result_without_a_receipt_has_none(result: dict[str, Any]) -> None:
    assert find_receipt(result) is None
