"""What the test facilitator takes and what it refuses, with the words of the reference. Over real sockets, with real signatures."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from server.lib.evm.secp256k1 import N
from tests.payments.test_facilitator.payer import (
    EACH,
    NETWORK,
    NOW,
    PAY_TO,
    USDC,
    Payer,
    body_1,
    body_2,
    facilitating,
    place,
    requirements,
)

FUJI, FUJI_USDC = place("avalanche-fuji")
OTHER = "0x1111111111111111111111111111111111111111"
PAYER = Payer()
Body = dict[str, Any]


def with_other_tail(body: Body, last: str) -> Body:
    """The signature with another last byte."""
    payload = body["paymentPayload"]["payload"]
    payload["signature"] = payload["signature"][:-2] + last
    return body


def in_other_half(body: Body) -> Body:
    """The other form of the same signature, which recovers to the same address: tokens refuse it."""
    payload = body["paymentPayload"]["payload"]
    signature = bytes.fromhex(payload["signature"][2:])
    high = N - int.from_bytes(signature[32:64], "big")
    turned = signature[:32] + high.to_bytes(32, "big") + bytes([55 - signature[64]])
    payload["signature"] = "0x" + turned.hex()
    return body


def altered(body: Body, **authorization: str) -> Body:
    """Changed after it was signed."""
    body["paymentPayload"]["payload"]["authorization"].update(authorization)
    return body


REFUSED: dict[str, tuple[Callable[[], Body], str]] = {
    "another scheme": (
        lambda: body_2(PAYER.signed(), requirements(scheme="upto")),
        "unsupported_scheme",
    ),
    "a payment for another network than is asked for": (
        lambda: body_2(PAYER.signed(), network="eip155:43113"),
        "network_mismatch",
    ),
    "a real network": (
        lambda: body_2(PAYER.signed(chain_id=8453), requirements(network="eip155:8453")),
        "invalid_network",
    ),
    "a network by its name of version 1": (
        lambda: body_2(PAYER.signed(), requirements(network="base-sepolia")),
        "invalid_network",
    ),
    "no EIP-712 domain": (lambda: body_2(PAYER.signed(), requirements(extra={})), "missing_eip712_domain"),
    "a domain that is no text": (
        lambda: body_2(PAYER.signed(), requirements(extra={"name": "USDC", "version": 2})),
        "missing_eip712_domain",
    ),
    "the token's name on another network": (
        lambda: body_2(
            PAYER.signed(name="USD Coin"), requirements(extra={"name": "USD Coin", "version": "2"})
        ),
        "invalid_exact_evm_token_name_mismatch",
    ),
    "another version of the token": (
        lambda: body_2(PAYER.signed(version="1"), requirements(extra={"name": "USDC", "version": "1"})),
        "invalid_exact_evm_token_version_mismatch",
    ),
    "a token that is not there": (
        lambda: body_2(PAYER.signed(contract=OTHER), requirements(asset=OTHER)),
        "asset_not_deployed_contract",
    ),
    "another recipient": (
        lambda: body_2(PAYER.signed(to=OTHER)),
        "invalid_exact_evm_payload_recipient_mismatch",
    ),
    "too little": (
        lambda: body_2(PAYER.signed(9_999)),
        "invalid_exact_evm_payload_authorization_value_mismatch",
    ),
    "too much": (
        lambda: body_2(PAYER.signed(10_001)),
        "invalid_exact_evm_payload_authorization_value_mismatch",
    ),
    "too much, in version 1": (
        lambda: body_1(PAYER.signed(10_001)),
        "invalid_exact_evm_payload_authorization_value_mismatch",
    ),
    "less than the margin left": (
        lambda: body_2(PAYER.signed(valid_before=NOW + 5)),
        "invalid_exact_evm_payload_authorization_valid_before",
    ),
    "not valid yet": (
        lambda: body_2(PAYER.signed(valid_after=NOW + 1)),
        "invalid_exact_evm_payload_authorization_valid_after",
    ),
    "signed for another chain": (
        lambda: body_2(PAYER.signed(chain_id=1)),
        "invalid_exact_evm_payload_signature",
    ),
    "signed for another token": (
        lambda: body_2(PAYER.signed(contract=OTHER)),
        "invalid_exact_evm_payload_signature",
    ),
    "another nonce than was signed": (
        lambda: altered(body_2(PAYER.signed()), nonce=f"0x{2:064x}"),
        "invalid_exact_evm_payload_signature",
    ),
    "somebody else's coins": (
        lambda: altered(body_2(PAYER.signed()), **{"from": OTHER}),
        "invalid_exact_evm_payload_signature",
    ),
    "a longer time than was signed": (
        lambda: altered(body_2(PAYER.signed()), validBefore=str(NOW + 3000)),
        "invalid_exact_evm_payload_signature",
    ),
    "the other half of a signature": (
        lambda: in_other_half(body_2(PAYER.signed())),
        "invalid_exact_evm_payload_signature",
    ),
    "a last byte that tokens do not take": (
        lambda: with_other_tail(body_2(PAYER.signed()), "01"),
        "invalid_exact_evm_payload_signature",
    ),
    "the signature of a contract": (
        lambda: with_other_tail(body_2(PAYER.signed()), "1b1b"),
        "invalid_exact_evm_payload_signature",
    ),
    "more than the payer has": (
        lambda: body_2(PAYER.signed(EACH + 1), requirements(EACH + 1)),
        "invalid_exact_evm_insufficient_balance",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_not_good_is_refused_with_the_word_of_the_reference_and_moves_nothing(
    case: str,
) -> None:
    made, reason = REFUSED[case]
    async with facilitating() as facilitator:
        body = made()
        payer = body["paymentPayload"]["payload"]["authorization"]["from"]
        verified = await facilitator.said("/verify", body)
        assert verified == {"isValid": False, "invalidReason": reason, "payer": payer}
        settled = await facilitator.said("/settle", body)
        assert settled == {
            "success": False,
            "errorReason": reason,
            "payer": payer,
            "transaction": "",
            "network": body["paymentRequirements"]["network"],
        }
        assert (await facilitator.ledger())["balances"] == []


@pytest.mark.parametrize(
    "body",
    [
        body_2(PAYER.signed(valid_after=NOW, valid_before=NOW + 6)),
        body_2(PAYER.signed(EACH), requirements(EACH)),
        body_2(PAYER.signed(), requirements(payTo=PAY_TO.lower(), asset=USDC.address.lower())),
        body_1(PAYER.signed()),
    ],
    ids=["at both edges of its time", "to the last coin", "addresses in small letters", "version 1"],
)
async def test_what_is_good_is_taken(body: Body) -> None:
    async with facilitating() as facilitator:
        assert await facilitator.said("/verify", body) == {"isValid": True, "payer": PAYER.address}


async def test_verifying_moves_nothing_however_often() -> None:
    async with facilitating() as facilitator:
        for _ in range(3):
            assert (await facilitator.said("/verify", body_2(PAYER.signed())))["isValid"]
        ledger = await facilitator.ledger()
        assert ledger["balances"] == []
        assert ledger["totals"] == {"verify_calls": 3, "settle_calls": 0, "settled": 0}


async def test_each_network_has_its_token_and_its_signatures() -> None:
    async with facilitating("base-sepolia", "avalanche-fuji") as facilitator:
        wanted = requirements(token=FUJI_USDC)
        good = PAYER.signed(token=FUJI_USDC, chain_id=FUJI.chain_id)
        assert (await facilitator.said("/verify", body_2(good, wanted)))["isValid"]
        elsewhere = PAYER.signed(token=FUJI_USDC, chain_id=NETWORK.chain_id)
        refused = await facilitator.said("/verify", body_2(elsewhere, wanted))
        assert refused["invalidReason"] == "invalid_exact_evm_payload_signature"


def without(body: Body, *path: str) -> Body:
    inner = body
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return body


def put(body: Body, value: object, *path: str) -> Body:
    inner = body
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return body


AUTHORIZATION = ("paymentPayload", "payload", "authorization")
UNREADABLE: dict[str, tuple[Callable[[], object], str]] = {
    "no JSON": (lambda: b"{", "invalid_payload"),
    "no text": (lambda: b"\xff\xfe", "invalid_payload"),
    "no object": (lambda: b"[]", "invalid_payload"),
    "very deep": (lambda: b'{"x402Version":2,"paymentPayload":' + b"[" * 20_000, "invalid_payload"),
    "no version": (lambda: without(body_2(PAYER.signed()), "x402Version"), "invalid_payload"),
    "version 3": (lambda: put(body_2(PAYER.signed()), 3, "x402Version"), "invalid_x402_version"),
    "two versions": (
        lambda: put(body_2(PAYER.signed()), 1, "paymentPayload", "x402Version"),
        "invalid_x402_version",
    ),
    "no payment": (lambda: without(body_2(PAYER.signed()), "paymentPayload"), "invalid_payload"),
    "no requirements": (lambda: without(body_2(PAYER.signed()), "paymentRequirements"), "invalid_payload"),
    "requirements without a recipient": (
        lambda: without(body_2(PAYER.signed()), "paymentRequirements", "payTo"),
        "invalid_payment_requirements",
    ),
    "a null that was not left out": (
        lambda: put(body_2(PAYER.signed()), None, "paymentPayload", "extensions"),
        "invalid_payload",
    ),
    "a null deeper in": (
        lambda: put(body_2(PAYER.signed()), None, "paymentPayload", "resource", "mimeType"),
        "invalid_payload",
    ),
    "a null of version 1": (
        lambda: put(body_1(PAYER.signed()), None, "paymentRequirements", "outputSchema"),
        "invalid_payment_requirements",
    ),
    "a long description": (
        lambda: put(body_2(PAYER.signed()), "x" * 501, "paymentPayload", "resource", "description"),
        "invalid_payload",
    ),
    "a long description of version 1": (
        lambda: body_1(PAYER.signed(), description="x" * 501),
        "invalid_payment_requirements",
    ),
    "a value that is a number": (
        lambda: put(body_2(PAYER.signed()), 10_000, *AUTHORIZATION, "value"),
        "invalid_payload",
    ),
    "a value with a sign": (
        lambda: put(body_2(PAYER.signed()), "+10000", *AUTHORIZATION, "value"),
        "invalid_payload",
    ),
    "a value with an exponent": (
        lambda: put(body_2(PAYER.signed()), "1e4", *AUTHORIZATION, "value"),
        "invalid_payload",
    ),
    "a value and a line end": (
        lambda: put(body_2(PAYER.signed()), "10000\n", *AUTHORIZATION, "value"),
        "invalid_payload",
    ),
    "a value beyond 256 bits": (
        lambda: put(body_2(PAYER.signed()), str(2**256), *AUTHORIZATION, "value"),
        "invalid_payload",
    ),
    "a price beyond 256 bits": (
        lambda: body_2(PAYER.signed(), requirements(2**256)),
        "invalid_payment_requirements",
    ),
    "a short nonce": (
        lambda: put(body_2(PAYER.signed()), "0x01", *AUTHORIZATION, "nonce"),
        "invalid_payload",
    ),
    "a signature that is no hex": (
        lambda: put(body_2(PAYER.signed()), "0xzz", "paymentPayload", "payload", "signature"),
        "invalid_payload",
    ),
    "an asset that is no address": (
        lambda: body_2(PAYER.signed(), requirements(asset="USDC")),
        "invalid_payload",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_what_cannot_be_read_is_refused_with_400_and_the_place(case: str) -> None:
    made, reason = UNREADABLE[case]
    async with facilitating() as facilitator:
        verified = await facilitator.ask("/verify", made())
        assert verified.status == 400
        answer = json.loads(verified.body)
        assert (answer["isValid"], answer["invalidReason"]) == (False, reason)
        assert answer["invalidMessage"]
        settled = await facilitator.ask("/settle", made())
        assert settled.status == 400
        answer = json.loads(settled.body)
        assert (answer["success"], answer["errorReason"], answer["transaction"]) == (False, reason, "")


async def test_a_body_beyond_what_any_payment_needs_is_not_read() -> None:
    async with facilitating() as facilitator:
        assert (await facilitator.ask("/verify", b" " * (65 * 1024))).status in (400, 413)
        assert (await facilitator.said("/verify", body_2(PAYER.signed())))["isValid"]


async def test_what_another_library_signed_is_taken() -> None:
    """By eth-account 0.14, with the key 7, of the very payment that `PAYER.signed()` makes."""
    payload = PAYER.signed()
    payload["signature"] = (
        "0x2cf6449e9730a58b6db15f8478398344fc0c9d6196cdc0f5cfcd42fac49aa4ff"
        "4ec878751ebc96577691ab4db0554a1715c8af4698035fc30365877c35203f8c1b"
    )
    async with facilitating() as facilitator:
        assert (await facilitator.said("/settle", body_2(payload)))["success"]
        assert PAYER.address == "0xd41c057fd1c78805AAC12B0A94a405c0461A6FBb"
