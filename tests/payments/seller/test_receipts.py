"""Receipts: what is signed is checked with the published keys alone, and what was altered, is another's or of a lost key is said to be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from auth.jose.base64url import pack, unpack
from auth.jose.public_keys import read_key
from auth.keys import signing_keys as keys
from auth.keys.signing_keys import SealedKey, SigningKey
from server.payments.seller.charge_rows import Charge
from server.payments.seller.receipt_check import (
    SIGNED_RECEIPT,
    BadReceipt,
    read_keys,
    read_receipt,
    receipts_in,
    verify,
)
from server.payments.seller.receipts import Receipts
from server.payments.seller.signed_terms import SignedTerms
from server.payments.x402.requirements import Requirements

NOW = 1_795_000_000_000
DAY = 86_400_000
ISSUER = "https://agent.example"
SEAL = b"s" * 32
PAYER = "0xde709f2102306220921060314715629080e2fb77"
SETTLED = {
    "success": True,
    "network": "eip155:84532",
    "payer": PAYER,
    "transaction": "0x" + "ab" * 32,
    "amount": "10000",
}


def a_key(signs_from: int = NOW, retires_at: int | None = None) -> SealedKey:
    made = keys.generate(SEAL, nonce=b"n" * 12, now=signs_from)
    return replace(made, retires_at=retires_at)


def row(key: SealedKey, **changed: Any) -> dict[str, Any]:
    return {name: getattr(key, name) for name in key.__slots__} | changed


def opened(key: SealedKey) -> SigningKey:
    return keys.unseal(row(key), SEAL)


def a_charge(**changed: Any) -> Charge:
    values: dict[str, Any] = {
        "id": "chg_1", "call_key": "", "fingerprint": "", "keyed": False, "state": "done", "paid": True,
        "how": "balance", "server": "main", "tool": "search", "call_id": "call_1", "caller": "user:usr_ann:",
        "client_id": None, "grant_id": None, "wallet": "user:usr_ann", "amount": 10_000, "currency": "USD",
        "price": "v1", "spent": "[]", "payment_id": None, "retries_left": 0, "owner": None, "created_at": NOW,
        "expires_at": NOW,
    }  # fmt: skip
    return Charge(**values | changed)


def receipt(key: SealedKey, settlement: dict[str, Any] | None = None, *, at: int = NOW, **charge: Any) -> str:
    made = Receipts(issuer=ISSUER, key=lambda: opened(key), currency="USD")
    return made.of(a_charge(**charge), settlement, at=at)


def published(*found: SealedKey) -> bytes:
    return keys.receipt_keys([row(key) for key in found])


def test_a_receipt_says_who_paid_what_for_which_call_and_its_keys_confirm_it() -> None:
    key = a_key()
    read = read_receipt(receipt(key, SETTLED, how="payment"))
    verify(read, read_keys(published(a_key(), key)), issuer=ISSUER)
    assert (read.issuer, read.at, read.server, read.tool, read.call) == (
        ISSUER,
        NOW // 1000,
        "main",
        "search",
        "call_1",
    )
    assert (read.amount, read.currency, read.payer, read.charge) == (10_000, "USD", PAYER, "chg_1")
    assert read.settlement["transaction"] == SETTLED["transaction"]
    of_balance = read_receipt(receipt(key))
    assert (of_balance.payer, of_balance.settlement) == ("user:usr_ann:", {})


@pytest.mark.parametrize("how", ["replaced", "destroyed", "restored"])
def test_a_key_that_was_replaced_since_still_confirms_what_it_signed(how: str) -> None:
    key, successor = a_key(NOW - DAY), a_key(NOW)
    rows = [row(key, retires_at=NOW + 7_200_000), row(successor)]
    if how == "destroyed":  # as `rotation` leaves it when its tokens are over
        rows[0]["sealed_private"] = ""
    if how == "restored":
        rows = [row(key, retires_at=NOW + 5, sealed_private=""), row(successor, signs_from=NOW + 9_000)]
    known = read_keys(keys.receipt_keys(rows))
    used = verify(read_receipt(receipt(key, at=NOW - 1_000)), known)
    assert used.ends is not None
    assert not used.revoked


def test_a_key_that_was_dropped_because_others_may_have_it_confirms_nothing() -> None:
    key, successor = a_key(NOW - DAY), a_key(NOW)
    rows = [row(key, retires_at=NOW, sealed_private=""), row(successor)]
    with pytest.raises(BadReceipt, match="was dropped"):
        verify(read_receipt(receipt(key, at=NOW - 1_000)), read_keys(keys.receipt_keys(rows)))


def test_a_key_that_never_signed_is_not_published() -> None:
    never = a_key(NOW + DAY)
    rows = [row(a_key()), row(never, retires_at=NOW)]
    assert never.kid not in keys.receipt_keys(rows).decode()


def test_no_secret_is_published() -> None:
    key = a_key()
    listed = json.loads(published(key))["keys"]
    assert [sorted(each) for each in listed] == [["alg", "crv", "kid", "kty", "nbf", "use", "x", "y"]]


def altered(text: str, **changed: Any) -> str:
    head, claims, signature = text.split(".")
    said = json.loads(unpack(claims)) | changed
    return ".".join((head, pack(json.dumps(said).encode()), signature))


@pytest.mark.parametrize(
    "changed", [{"amount": "1"}, {"tool": "render"}, {"sub": "user:usr_ben:"}, {"iat": NOW // 1000 + 1}]
)
def test_what_was_altered_is_not_confirmed(changed: dict[str, Any]) -> None:
    key = a_key()
    read = read_receipt(altered(receipt(key), **changed))
    with pytest.raises(BadReceipt, match="was altered, or never issued"):
        verify(read, read_keys(published(key)))


def test_what_is_another_server_s_is_not_confirmed() -> None:
    key = a_key()
    read = read_receipt(receipt(key))
    with pytest.raises(BadReceipt, match="not among these"):
        verify(read, read_keys(published(a_key())))
    with pytest.raises(BadReceipt, match=r"of https://agent\.example, and not of https://other"):
        verify(read, read_keys(published(key)), issuer="https://other.example")


def test_a_time_at_which_the_key_did_not_sign_is_noticed() -> None:
    key = a_key(NOW)
    with pytest.raises(BadReceipt, match="did not sign"):
        verify(read_receipt(receipt(key, at=NOW - DAY)), read_keys(published(key)))
    retired = replace(key, retires_at=NOW + DAY)
    with pytest.raises(BadReceipt, match="did not sign"):
        verify(read_receipt(receipt(key, at=NOW + 2 * DAY)), read_keys(published(retired)))


def test_a_token_is_no_receipt() -> None:
    key = opened(a_key())
    head = pack(json.dumps({"alg": "ES256", "kid": key.kid, "typ": "at+jwt"}).encode())
    with pytest.raises(BadReceipt, match=r"its type is at\+jwt"):
        read_receipt(f"{head}.{pack(b'{}')}.AAAA")


@pytest.mark.parametrize(
    "text",
    ["", "x", "a.b", "a.b.c", "{}", "[]", '{"_meta": 1}', '{"result": {"_meta": {}}}', "{" * 5_000, "é.é.é"],
)
def test_what_is_no_receipt_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(BadReceipt, match=r"receipt|JSON|call cost nothing"):
        read_receipt(receipts_in(text)[0])


@pytest.mark.parametrize("claims", [{"amount": "-1"}, {"amount": "9" * 30}, {"amount": 5}, {"settlement": 1}])
def test_claims_that_no_receipt_has_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(BadReceipt, match="not as receipts are"):
        read_receipt(altered(receipt(a_key()), **claims))


@pytest.mark.parametrize(
    "document", [b"", b"[]", b'{"keys": 1}', b'{"keys": [1]}', b'{"keys": [{"kty": "oct"}]}']
)
def test_a_document_that_is_no_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(BadReceipt, match="key set"):
        read_keys(document)


def test_receipts_are_found_alone_in_lines_and_in_results() -> None:
    text = receipt(a_key())
    result = {"content": [], "_meta": {SIGNED_RECEIPT: text}}
    for kept in (text, f"{text}\n", json.dumps(result), json.dumps([result]), json.dumps({"result": result})):
        assert receipts_in(kept) == [text]
    assert receipts_in(f"{text}\n\n{text}\n") == [text, text]


# ── as x402 has them ─────────────────────────────────────────────────────────────────────────────────────────────────


def claims_of(signed: dict[str, Any], document: bytes) -> dict[str, Any]:
    """What it says, if the key that its `kid` leads to has signed it."""
    assert sorted(signed) == ["format", "signature"]
    head, claims, _ = signed["signature"].split(".")
    kid = json.loads(unpack(head))["kid"]
    methods = {each["id"]: each["publicKeyJwk"] for each in json.loads(document)["verificationMethod"]}
    key = read_key(methods[kid])
    assert key is not None
    assert key.is_signed(f"{head}.{claims}".encode(), unpack(signed["signature"].split(".")[2]), "ES256")
    return json.loads(unpack(claims))


def test_signed_offers_and_receipts_are_checked_with_the_did_document_of_the_issuer() -> None:
    key, dropped, successor = a_key(), a_key(NOW - DAY), a_key(NOW + 5)
    rows = [row(dropped, retires_at=NOW + 5, sealed_private=""), row(key), row(successor)]
    document = keys.did_document(keys.receipt_keys(rows), "https://agent.example:8443")
    terms = SignedTerms(issuer="https://agent.example:8443", key=lambda: opened(key), clock=lambda: NOW)
    assert dropped.kid not in document.decode()
    wanted = Requirements(
        scheme="exact",
        network="eip155:84532",
        amount="10000",
        asset="0xA",
        pay_to="0xB",
        max_timeout_seconds=60,
        extra={},
    )
    url = "https://agent.example:8443/main/call/search"
    [offer] = terms.offers([wanted], url)["info"]["offers"]
    assert claims_of(offer, document) == {
        "version": 1, "resourceUrl": url, "scheme": "exact", "network": "eip155:84532", "asset": "0xA",
        "payTo": "0xB", "amount": "10000", "validUntil": NOW // 1000 + 60,
    }  # fmt: skip
    assert claims_of(terms.receipt(SETTLED, url)["info"]["receipt"], document) == {
        "version": 1, "resourceUrl": url, "network": "eip155:84532", "payer": PAYER, "issuedAt": NOW // 1000,
        "transaction": SETTLED["transaction"],
    }  # fmt: skip
    assert json.loads(document)["id"] == "did:web:agent.example%3A8443"
