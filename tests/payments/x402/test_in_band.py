from __future__ import annotations

import json
from typing import Any

import pytest

from server.payments.x402.in_band import (
    challenge_result,
    extension_result,
    find_challenge,
    find_challenge_in_error,
    find_receipt,
    knows_extension,
    payment_in,
)
from server.payments.x402.requirements import payment_required
from tests.payments.x402.builders import RESOURCE, base64_json, offer, payment

CHALLENGE = payment_required([offer()], RESOURCE, "Payment required: $0.01.")
FAILED = {"success": False, "transaction": "", "network": "eip155:84532"}


def declared(extensions: object) -> dict[str, Any]:
    return {"io.modelcontextprotocol/clientCapabilities": {"extensions": extensions}}


def test_a_challenge_is_an_error_with_the_same_object_in_three_places() -> None:
    found = challenge_result(CHALLENGE)
    assert found["isError"] is True
    assert found["structuredContent"] == CHALLENGE
    assert [block["type"] for block in found["content"]] == ["text"]
    assert json.loads(found["content"][0]["text"]) == CHALLENGE
    assert found["_meta"] == {"x402/error": CHALLENGE}
    assert "resultType" not in found


def test_a_tool_that_declares_its_output_is_asked_to_be_paid_for_in_the_text_alone() -> None:
    found = challenge_result(CHALLENGE, structured=False)
    assert "structuredContent" not in found
    assert find_challenge(found) == CHALLENGE


@pytest.mark.parametrize("build", [challenge_result, extension_result])
def test_a_payment_that_failed_is_told_with_the_challenge(build: Any) -> None:
    found = build(CHALLENGE, receipt=FAILED)
    assert found["_meta"]["x402/payment-response"] == FAILED
    assert find_receipt(found) == FAILED
    assert find_challenge(found) == CHALLENGE
    assert find_receipt(build(CHALLENGE)) is None


def test_the_extension_has_a_result_of_its_own() -> None:
    assert extension_result(CHALLENGE) == {"resultType": "payment_required", "paymentRequired": CHALLENGE}


@pytest.mark.parametrize(
    ("meta", "known"),
    [
        (declared({"org.x402/payment": {}}), True),
        (declared({"org.x402/payment": {"version": 1}, "other": {}}), True),
        (declared({"org.x402/payment": True}), False),
        (declared({"org.x402/payment": None}), False),
        (declared({}), False),
        (declared([]), False),
        (declared(None), False),
        ({"io.modelcontextprotocol/clientCapabilities": "x"}, False),
        ({"org.x402/payment": {}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_only_a_request_that_says_so_knows_the_extension(meta: dict[str, Any] | None, known: bool) -> None:
    assert knows_extension(meta) is known


@pytest.mark.parametrize("brought", [payment(), base64_json(payment()), json.dumps(payment())])
def test_a_payment_is_where_the_specification_has_it(brought: object) -> None:
    assert payment_in({"x402/payment": brought, "other": 1}) == brought
    assert payment_in({"other": 1}) is None
    assert payment_in(None) is None


TEXT = {"type": "text", "text": json.dumps(CHALLENGE)}


@pytest.mark.parametrize(
    "result",
    [
        challenge_result(CHALLENGE),
        extension_result(CHALLENGE),
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
