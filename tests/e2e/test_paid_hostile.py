"""Payments that are no good: each is refused in words, without an error of ours, without a word of the facilitator's, and without a trace."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from paid_shop import CENT, Customer, Shop, answer_of, open_shop, reason_of
from programs import WAIT_SECONDS

pytestmark = pytest.mark.slow

Payment = dict[str, Any]
ELSEWHERE = "0x" + "ab" * 20
BASE = 8453


@pytest.fixture(scope="module")
def shop(shared_home: Path) -> Iterator[Shop]:
    with open_shop(shared_home) as shop:
        shop.open()
        yield shop


_places = itertools.count(2)


@pytest.fixture
def stranger(shop: Shop) -> Customer:
    """From an address of its own: bad payments are held against where they come from."""
    customer = shop.stranger()
    move(customer)
    return customer


def move(customer: Customer) -> None:
    customer.wire.close()
    transport = httpx2.HTTPTransport(local_address=f"127.0.0.{next(_places)}")
    customer.wire._http = httpx2.Client(transport=transport, trust_env=False, timeout=WAIT_SECONDS)  # pyright: ignore[reportPrivateUsage]


def accepting(**changed: Any) -> Callable[[Customer], object]:
    """Says that it accepted what was not offered."""

    def make(customer: Customer) -> object:
        payment = customer.sign("sold", "hostile")
        return {**payment, "accepted": {**payment["accepted"], **changed}}

    return make


def signing(**changed: Any) -> Callable[[Customer], object]:
    return lambda customer: customer.sign("sold", "hostile", **changed)


def with_(change: Callable[[Payment], object]) -> Callable[[Customer], object]:
    """Changed after it was signed."""

    def make(customer: Customer) -> object:
        payment = copy.deepcopy(customer.sign("sold", "hostile"))
        found = change(payment)
        return payment if found is None else found

    return make


def in_authorization(**changed: Any) -> Callable[[Customer], object]:
    return with_(lambda payment: payment["payload"]["authorization"].update(changed))


def now(seconds: int) -> int:
    return int(time.time()) + seconds


def turned(payment: Payment) -> None:
    signature = payment["payload"]["signature"]
    payment["payload"]["signature"] = signature[:10] + ("0" if signature[10] != "0" else "1") + signature[11:]


def nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def in_version_1(payment: Payment) -> Payment:
    return {
        "x402Version": 1,
        "scheme": "exact",
        "network": "base-sepolia",
        "payload": payment["payload"],
    }


SIGNATURE = "invalid_signature"
AFTER = "invalid_exact_evm_payload_authorization_valid_after"
BEFORE = "invalid_exact_evm_payload_authorization_valid_before"
RECIPIENT = "invalid_exact_evm_payload_recipient_mismatch"
VALUE = "invalid_exact_evm_payload_authorization_value_mismatch"
HOSTILE: dict[str, tuple[str, Callable[[Customer], object]]] = {
    "another amount accepted": ("amount_mismatch", accepting(amount="1")),
    "another amount signed": (VALUE, signing(value=CENT - 1)),
    "more than the price": (VALUE, signing(value=CENT + 1)),
    "another asset": ("asset_mismatch", accepting(asset=ELSEWHERE)),
    "an asset that is no text": ("asset_mismatch", accepting(asset=7)),
    "another network": ("invalid_network", accepting(network=f"eip155:{BASE}")),
    "no network of ours": ("invalid_network", accepting(network="solana:mainnet")),
    "another payee accepted": ("recipient_mismatch", accepting(payTo=ELSEWHERE)),
    "another payee signed": (RECIPIENT, signing(to=ELSEWHERE)),
    "another scheme": ("unsupported_scheme", accepting(scheme="upto")),
    "a longer time accepted": ("invalid_payment_requirements", accepting(maxTimeoutSeconds=301)),
    "nothing extra accepted": ("invalid_payment_requirements", accepting(extra={})),
    "expired": (BEFORE, lambda customer: customer.sign("sold", "hostile", valid_before=now(-1))),
    "about to expire": (BEFORE, lambda customer: customer.sign("sold", "hostile", valid_before=now(5))),
    "valid for a year": (
        BEFORE,
        lambda customer: customer.sign("sold", "hostile", valid_before=now(31_536_000)),
    ),
    "not valid yet": (AFTER, lambda customer: customer.sign("sold", "hostile", valid_after=now(60))),
    "signed for another chain": (SIGNATURE, signing(chain_id=BASE)),
    "signed for another token": (SIGNATURE, signing(contract=ELSEWHERE)),
    "another nonce than was signed": (SIGNATURE, in_authorization(nonce="0x" + "12" * 32)),
    "another payer than signed": (SIGNATURE, in_authorization(**{"from": ELSEWHERE})),
    "a later end than was signed": (
        SIGNATURE,
        with_(lambda p: p["payload"]["authorization"].update(validBefore=str(now(290)))),
    ),
    "a signature with one digit turned": (SIGNATURE, with_(turned)),
    "a signature that is too short": (
        "invalid_exact_evm_payload_signature",
        with_(lambda p: p["payload"].update(signature="0x12")),
    ),
    "for another tool": ("invalid_resource", with_(lambda p: p["resource"].update(url="mcp://tool/other"))),
    "version 3": ("invalid_x402_version", with_(lambda p: p.update(x402Version=3))),
    "a version in words": ("invalid_x402_version", with_(lambda p: p.update(x402Version="2"))),
    "version 1": ("invalid_x402_version", with_(in_version_1)),
    "a nonce that is too short": ("invalid_payload", in_authorization(nonce="0x12")),
    "a negative amount": ("invalid_payload", in_authorization(value="-10000")),
    "an amount that is a number": ("invalid_payload", in_authorization(value=CENT)),
    "an amount beyond all": ("invalid_payload", in_authorization(value="9" * 90)),
    "an amount said twice": ("invalid_payload", in_authorization(Value="10000")),
    "without a payload": ("invalid_payload", with_(lambda p: {**p, "payload": None})),
    "oversized": ("invalid_payload", with_(lambda p: p.update(extensions={"much": "x" * 20_000}))),
    "deep": ("invalid_payload", with_(lambda p: p.update(extensions=nested(200)))),
    "a list": ("invalid_payload", lambda customer: [1, 2]),
    "a number": ("invalid_payload", lambda customer: 402),
    "no JSON": ("invalid_payload", lambda customer: "{"),
    "no base64": ("invalid_payload", lambda customer: "§§§"),
    "base64 of nothing": ("invalid_payload", lambda customer: base64.b64encode(b"\xff\xfe\x00").decode()),
    "half a character": (
        "invalid_payload",
        with_(lambda p: json.dumps({**p, "extensions": {"a": "\ud800"}})),
    ),
}


def rows(shop: Shop) -> list[int]:
    return [
        shop.ask_store(f"SELECT COUNT(*) AS n FROM {table}")[0]["n"]
        for table in ("payments", "charges", "movements", "wallets", "meters")
    ]


@pytest.mark.parametrize("what", HOSTILE)
def test_a_payment_that_is_no_good_is_refused_in_words_and_leaves_nothing(
    shop: Shop, stranger: Customer, what: str
) -> None:
    reason, make = HOSTILE[what]
    before = rows(shop)
    heard = stranger.call("sold", "hostile", payment=make(stranger))
    assert (heard.status, reason_of(heard)) == (200, reason)
    result = heard.result
    assert result["structuredContent"]["accepts"], "what would be right is shown"
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert "Nothing was taken" in result["content"][1]["text"]
    assert str(shop.facilitator_port) not in json.dumps(result)
    assert shop.runs("hostile") == 0
    assert rows(shop) == before


@pytest.mark.parametrize("as_", ["an object", "JSON", "base64"])
def test_a_good_payment_is_taken_in_each_of_its_forms(shop: Shop, stranger: Customer, as_: str) -> None:
    payment = stranger.sign("sold", as_)
    text = json.dumps({**payment, "extensions": None})
    forms = {"an object": payment, "JSON": text, "base64": base64.b64encode(text.encode()).decode()}
    assert answer_of(stranger.call("sold", as_, payment=forms[as_])) == f"{as_} was run 1"


def test_what_the_facilitator_says_is_not_passed_on(shop: Shop, stranger: Customer) -> None:
    before = rows(shop)
    for step in ("verify", "settle"):
        name = f"said-{step}"
        payment = stranger.sign("sold", name)
        shop.switch(times=1, **{step: "fail:insufficient_funds_of_our_hot_wallet_17"})
        heard = stranger.call("sold", name, payment=payment)
        assert heard.result["isError"]
        assert "hot_wallet" not in json.dumps(heard.message)
    assert shop.settled(stranger) in (0, 1)
    assert rows(shop)[2:] == before[2:]


def test_a_key_that_is_none_is_refused(shop: Shop, stranger: Customer) -> None:
    for key in ("", " ", "x" * 129, "two words", "ü"):
        heard = stranger.call("sold", "keyed", payment=stranger.sign("sold", "keyed"), key=key)
        assert reason_of(heard) == "invalid_idempotency_key"
    assert shop.runs("keyed") == 0


def test_whoever_shows_bad_payments_waits_longer_each_time(shop: Shop, stranger: Customer) -> None:
    bad = [stranger.sign("sold", "bad", value=1) for _ in range(3)]
    good = stranger.sign("sold", "bad")
    for payment in bad[:2]:
        assert reason_of(stranger.call("sold", "bad", payment=payment)) == VALUE
    verified = shop.ask_facilitator("/test/ledger")["totals"]["verify_calls"]
    heard = stranger.call("sold", "bad", payment=bad[2])
    assert reason_of(heard) == "too_many_failures"
    assert heard.result["_meta"]["io.ostiary/payment"]["retryAfter"] >= 1
    assert shop.ask_facilitator("/test/ledger")["totals"]["verify_calls"] == verified
    move(stranger)  # elsewhere nobody suffers from it
    assert answer_of(stranger.call("sold", "bad", payment=good)) == "bad was run 1"


def test_a_payment_of_somebody_who_is_known_is_nobody_elses(shop: Shop, stranger: Customer) -> None:
    """Who reads a settlement on the chain has all of it."""
    asked = stranger.price("sold", "seen")
    payment = stranger.sign_for(asked)
    assert answer_of(stranger.call("sold", "seen", payment=payment, key="a-key-of-mine")) == "seen was run 1"
    reader = stranger.another()
    move(reader)
    assert reason_of(reader.call("sold", "seen", payment=payment)) == "idempotency_key_differs"
    assert reason_of(reader.call("sold", "seen", payment=payment, key="a-guess")) == "idempotency_key_differs"
    assert answer_of(stranger.call("sold", "seen", payment=payment, key="a-key-of-mine")) == "seen was run 1"


def test_after_all_of_it_the_books_agree_with_the_chain(shop: Shop) -> None:
    shop.check_books()
