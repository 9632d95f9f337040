from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.payments.x402.facilitator_reasons import OTHER, kept, reason_for
from server.payments.x402.payment_payload import read_payment
from server.payments.x402.settlements import (
    AlreadyUsed,
    NoAnswer,
    Rejected,
    Settled,
    SettleOutcome,
    Unknown,
    Verified,
    read_settled,
    read_verified,
)
from tests.payments.x402.builders import PAYER, TRANSACTION, payment

PAYMENT = read_payment(payment())
HERE = "https://facilitator.example"
OK = {
    "success": True,
    "payer": PAYER,
    "transaction": TRANSACTION,
    "network": "eip155:84532",
    "amount": "10000",
}


def settled(answer: object, *, status: int = 200, repeated: bool = False, version: int = 2) -> SettleOutcome:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_settled(status, body, read_payment(payment(version)), "10000", repeated=repeated)


def verified(answer: object, *, status: int = 200) -> Verified | Rejected:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_verified(status, body, PAYMENT, HERE)


def no(reason: str | None, **more: Any) -> dict[str, Any]:
    return {"success": False, "errorReason": reason, "transaction": "", "network": "eip155:84532", **more}


# ── settle ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "change",
    [
        {},
        {
            "payer": None,
            "network": None,
            "amount": None,
            "errorReason": None,
            "extensions": None,
            "extra": {"a": 1},
        },
        {"payer": PAYER.upper().replace("0X", "0x"), "transaction": TRANSACTION.upper().replace("0X", "0x")},
        {"payer": "", "network": "", "amount": ""},
        {"network": "base-sepolia"},
    ],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_a_yes_about_this_payment_is_a_settlement(change: dict[str, Any], repeated: bool) -> None:
    assert settled({**OK, **change}, repeated=repeated) == Settled(
        transaction=TRANSACTION, payer=PAYER, network="eip155:84532", amount="10000"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"payer": "0x" + "11" * 20}, {"network": "eip155:8453"}, {"network": "base"}, {"network": "mars"}, {"amount": "9999"},
        {"transaction": ""}, {"transaction": None}, {"transaction": "0x12"}, {"transaction": 7},
    ],
    ids=str,
)  # fmt: skip
def test_a_yes_that_does_not_fit_this_payment_says_nothing(change: dict[str, Any]) -> None:
    assert isinstance(settled({**OK, **change}), Unknown)


@pytest.mark.parametrize("success", [None, "true", "yes", 1, 1.0, [], {}], ids=repr)
def test_a_yes_is_true_and_nothing_like_it(success: object) -> None:
    found = settled({**OK, "success": success})
    assert isinstance(found, Unknown) and found.transaction == TRANSACTION


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("insufficient_funds", "insufficient_funds"),
        ("invalid_exact_evm_insufficient_balance", "insufficient_funds"),
        ("invalid_exact_evm_payload_signature", "invalid_signature"),
        (" Invalid_Exact_EVM_Signature ", "invalid_signature"),
        ("invalid_exact_evm_payload_authorization_valid_before", "payment_expired"),
        ("invalid_exact_evm_payload_authorization_valid_after", "payment_not_yet_valid"),
        ("invalid_exact_evm_payload_recipient_mismatch", "recipient_mismatch"),
        ("invalid_exact_evm_payload_authorization_value_mismatch", "amount_mismatch"),
        ("unsupported_scheme", "facilitator_cannot"),
    ],
)
def test_a_no_whose_reason_comes_before_anything_is_sent_is_certain_the_first_time(
    reason: str, code: str
) -> None:
    first = settled(no(reason))
    assert isinstance(first, Rejected) and first.code == code and first.certain
    again = settled(no(reason), repeated=True)
    assert isinstance(again, Rejected) and again.code == code and not again.certain


@pytest.mark.parametrize(
    "reason",
    [
        "transaction_failed",
        "invalid_transaction_state",
        "settle_exact_failed_onchain",
        "made_up",
        "",
        None,
        7,
        "x" * 5000,
    ],
)
def test_a_no_for_any_other_reason_is_not_certain(reason: Any) -> None:
    found = settled(no(reason))
    assert isinstance(found, Rejected) and not found.certain


@pytest.mark.parametrize("repeated", [False, True])
def test_a_nonce_that_was_used_is_a_case_of_its_own(repeated: bool) -> None:
    found = settled(no("invalid_exact_evm_nonce_already_used"), repeated=repeated)
    assert found == AlreadyUsed(said="invalid_exact_evm_nonce_already_used")


@pytest.mark.parametrize(
    "reason", ["insufficient_funds", "transaction_failed", "invalid_exact_evm_payload_signature"]
)
def test_a_no_with_a_transaction_is_unknown_whatever_it_says(reason: str) -> None:
    assert settled(no(reason, transaction=TRANSACTION)) == Unknown(
        problem=f"says: {reason}", transaction=TRANSACTION
    )
    assert isinstance(settled(no(reason, transaction="somewhere")), Unknown)


@pytest.mark.parametrize(
    "reason",
    [
        "settlement_pending", "unexpected_settle_error", "settlement_in_progress", "confirmation_timed_out",
        "settle_exact_evm_transaction_confirmation_timed_out", "settle_exact_node_failure",
    ],
)  # fmt: skip
def test_a_settlement_that_is_pending_or_went_wrong_is_unknown(reason: str) -> None:
    assert isinstance(settled(no(reason)), Unknown)


@pytest.mark.parametrize(
    "status", [201, 202, 204, 301, 307, 400, 401, 402, 404, 409, 429, 500, 502, 503, 504]
)
@pytest.mark.parametrize("answer", [OK, no("insufficient_funds"), b"", b"<html>", {"error": "down"}])
def test_with_any_other_status_nothing_is_known(status: int, answer: object) -> None:
    found = settled(answer, status=status)
    assert isinstance(found, Unknown) and found.problem.startswith(f"answered with status {status}")


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b"true", b'"eyJ9"', b"eyJzdWNjZXNzIjp0cnVlfQ==", b"\xff{}", b"{}", b'{"success": true, "success": false}',
     b'{"a":' * 5000, b" " * 100_000],
    ids=lambda body: repr(body)[:20],
)  # fmt: skip
def test_garbage_is_unknown(body: bytes) -> None:
    assert isinstance(settled(body), Unknown)


@given(st.integers(100, 599), st.binary(max_size=200), st.booleans())
def test_no_bytes_settle_anything(status: int, body: bytes, repeated: bool) -> None:
    assert isinstance(read_settled(status, body, PAYMENT, "10000", repeated=repeated), Unknown)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "success",
                "transaction",
                "payer",
                "network",
                "amount",
                "errorReason",
                "errorMessage",
                "isValid",
                "invalidReason",
            ]
        ),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-5, 5),
            st.text(max_size=8),
            st.sampled_from([TRANSACTION, PAYER, "eip155:84532", "10000"]),
        ),
    )
)
def test_money_moved_only_where_an_answer_says_so_with_its_transaction(answer: dict[str, Any]) -> None:
    if isinstance(found := settled(answer), Settled):
        assert answer["success"] is True and answer["transaction"] == TRANSACTION
        assert (
            answer.get("payer") in (None, "", PAYER)
            or not isinstance(answer["payer"], str)
            or not answer["payer"].strip()
        )
        assert found.amount == "10000"


# ── verify ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("payer", [PAYER, PAYER.upper().replace("0X", "0x"), None, ""])
def test_a_payment_that_is_good_is_verified_by_the_one_that_says_so(payer: str | None) -> None:
    assert verified({"isValid": True, "payer": payer, "invalidReason": None}) == Verified(
        payer=PAYER, facilitator=HERE
    )


@pytest.mark.parametrize("status", [200, 400, 402, 422])
def test_a_payment_that_is_bad_is_refused_with_our_words(status: int) -> None:
    answer = {
        "isValid": False,
        "invalidReason": "insufficient_funds",
        "invalidMessage": "0xdead has 3 wei\n\x1b[31m",
        "payer": PAYER,
    }
    assert verified(answer, status=status) == Rejected(
        code="insufficient_funds",
        sentence=reason_for("insufficient_funds").sentence,
        said="insufficient_funds: 0xdead has 3 wei [31m",
        certain=True,
    )


def test_a_reason_that_nobody_knows_is_not_repeated_to_the_payer() -> None:
    found = verified({"isValid": False, "invalidReason": "Traceback: key sk_live_1 in /srv/app.py"})
    assert isinstance(found, Rejected)
    assert (found.code, found.sentence) == (OTHER.code, OTHER.sentence)
    assert found.said == "Traceback: key sk_live_1 in /srv/app.py"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"isValid": True, "payer": PAYER}, 201),
        ({"isValid": True, "payer": PAYER}, 500),
        ({"isValid": True, "payer": "0x" + "11" * 20}, 200),
        ({"isValid": "true", "payer": PAYER}, 200),
        ({"isValid": 1}, 200),
        ({"success": True}, 200),
        ({}, 200),
        (b"", 200),
        (b"<html>", 502),
        ({"error": "busy"}, 503),
        ({"isValid": False, "invalidReason": "unexpected_verify_error"}, 200),
        ({"isValid": False, "invalidReason": "unsupported_scheme"}, 200),
    ],
)
def test_another_facilitator_is_asked_where_one_has_nothing_to_say_of_the_payment(
    answer: object, status: int
) -> None:
    with pytest.raises(NoAnswer):
        verified(answer, status=status)


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_bytes_verify_anything(status: int, body: bytes) -> None:
    with pytest.raises(NoAnswer):
        read_verified(status, body, PAYMENT, HERE)


# ── reasons and receipts ─────────────────────────────────────────────────────────────────────────────────────────────


@given(st.text())
def test_whatever_a_facilitator_says_there_is_a_sentence_of_ours(text: str) -> None:
    found = reason_for(text)
    assert found.sentence.endswith(".")
    assert len(kept(text)) <= 200 and (kept(text) == "" or kept(text).isprintable())
