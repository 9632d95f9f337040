from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from server.payments.x402.facilitator_reasons import reason_for
from server.payments.x402.payment_payload import (
    LONGEST_VALID_SECONDS,
    MARGIN_SECONDS,
    BadPayment,
    Payment,
    check_window,
    match,
    read_payment,
)
from server.payments.x402.requirements import Requirements
from tests.payments.x402.builders import (
    NONCE,
    NOW,
    PAYEE,
    PAYER,
    RESOURCE,
    SEPOLIA,
    SIGNATURE,
    URL,
    authorization,
    base64_json,
    offer,
    payment,
)
from tests.snapshots import Snapshot

OTHER = "0x" + "99" * 20
POLYGON = "eip155:137"


# What was sent, in place of a good payment; and what was offered for it, where that matters.
SENT: dict[str, Callable[[], object]] = {
    "nothing": lambda: read_payment(None),
    "a text that is no JSON": lambda: read_payment("hello"),
    "version 3": lambda: read_payment({**payment(), "x402Version": 3}),
    "the scheme upto": lambda: read_payment(accepting(scheme="upto")),
    "no scheme": lambda: read_payment(accepting(scheme=None)),
    "another method": lambda: read_payment(accepting(extra={"assetTransferMethod": "permit2"})),
    "Solana": lambda: read_payment(accepting(network="solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp")),
    "a network of another kind": lambda: read_payment(accepting(network="cosmos:x")),
    "a network that version 1 does not know": lambda: read_payment({**payment(1), "network": "eip155:8453"}),
    "no network": lambda: read_payment(accepting(network=None)),
    "an amount that is a number": lambda: read_payment(payment(value=10000)),
    "an address of half the length": lambda: read_payment(payment(to="0x12")),
    "a nonce of half the length": lambda: read_payment(payment(nonce="0x12")),
    "a short signature": lambda: read_payment(payment(signature="0x")),
    "two spellings": lambda: read_payment(accepting(pay_to=PAYEE)),
    "a key twice": lambda: read_payment(
        json.dumps(payment()).replace('"value": "10000"', '"value": "1", "value": "10000"')
    ),
    "no object": lambda: read_payment({**payment(), "payload": None}),
    "extensions that are a list": lambda: read_payment({**payment(), "extensions": []}),
    "a resource without an address": lambda: read_payment({**payment(), "resource": {}}),
    "a key of another form": lambda: read_payment(
        {**payment(), "extensions": {"payment-identifier": {"info": {"required": True, "id": "short"}}}}
    ),
    "what is too long": lambda: read_payment({**payment(), "extensions": {"x": "y" * 17_000}}),
    "for another resource": lambda: match(
        read_payment({**payment(), "resource": {"url": URL}}), [offer()], []
    ),
    "where nothing is offered": lambda: match(paid(), [], [URL]),
    "on a network that is not offered": lambda: match(paid(), [offer(network=POLYGON)], [URL]),
    "accepting another token": lambda: match(paid(accepted={"asset": OTHER}), [offer()], [URL]),
    "accepting another payee": lambda: match(paid(accepted={"payTo": OTHER}), [offer()], [URL]),
    "accepting another amount": lambda: match(paid(accepted={"amount": "10001"}), [offer()], [URL]),
    "accepting another time": lambda: match(paid(accepted={"maxTimeoutSeconds": 301}), [offer()], [URL]),
    "accepting something else besides": lambda: match(paid(accepted={"extra": None}), [offer()], [URL]),
    "signed to another address": lambda: match(paid(to=OTHER), [offer()], [URL]),
    "signed for another amount": lambda: match(paid(value="9999"), [offer()], [URL]),
    "not valid yet": lambda: check_window(paid(validAfter=str(NOW + 1)), NOW, 0),
    "no longer valid": lambda: check_window(paid(validBefore=str(NOW)), NOW, 0),
    "valid for too short": lambda: check_window(paid(), NOW, 300),
    "valid for too long": lambda: check_window(
        paid(validBefore=str(NOW + LONGEST_VALID_SECONDS + 1)), NOW, 0
    ),
}
# What a facilitator says: one for each of our answers.
SAID = (
    "invalid_signature", "insufficient_funds", "payment_expired", "invalid_exact_evm_payload_authorization_valid_after",
    "invalid_exact_evm_payload_authorization_value_mismatch", "invalid_exact_evm_payload_recipient_mismatch",
    "smart_wallet_deployment_failed", "invalid_payload", "nonce_already_used", "transaction_simulation_failed",
    "transaction_failed", "settlement_pending", "unsupported_scheme", "internal_error", "something that nobody knows",
)  # fmt: skip


def accepting(**changes: Any) -> dict[str, Any]:
    came = payment()
    came["accepted"].update(changes)
    return came


def test_the_sentences_for_whoever_pays(snapshot: Snapshot) -> None:
    lines = [f"{sent}\n  {code}: {sentence}" for sent in SENT for code, sentence in [refused(SENT[sent])]]
    for said in SAID:
        reason = reason_for(said)
        lines.append(f"the facilitator says {said}\n  {reason.code}: {reason.sentence}")
    snapshot("payments", "\n".join(lines))


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(BadPayment) as raised:
        call()
    error = raised.value
    assert error.sentence == str(error)
    assert error.sentence[0].isupper() and error.sentence.endswith(".")
    assert "\n" not in error.sentence and len(error.sentence) < 300
    return error.reason_code, error.sentence


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("carried", [lambda p: p, json.dumps, base64_json], ids=["object", "json", "base64"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_payment_is_read_however_it_is_carried(version: int, carried: Callable[[Any], object]) -> None:
    found = read_payment(carried(payment(version)))
    assert (found.version, found.scheme, found.network) == (version, "exact", "eip155:84532")
    assert (found.signature, found.resource_url, found.identifier) == (SIGNATURE, None, None)
    read = found.authorization
    assert (read.from_, read.to, read.value, read.nonce) == (PAYER, PAYEE.lower(), 10000, NONCE)
    assert (read.valid_after, read.valid_before) == (0, NOW + 300)


def test_what_a_facilitator_is_sent_is_what_was_read_and_nothing_besides() -> None:
    came = payment()
    came["more"] = came["payload"]["more"] = came["payload"]["authorization"]["more"] = "x"
    assert read_payment(came).forward == {
        "x402Version": 2,
        "accepted": offer().as_json(),
        "payload": {"signature": SIGNATURE, "authorization": authorization(to=PAYEE.lower())},
    }
    assert read_payment(payment(1)).forward == {
        "x402Version": 1,
        "scheme": "exact",
        "network": "base-sepolia",
        "payload": {"signature": SIGNATURE, "authorization": authorization(to=PAYEE.lower())},
    }


def test_nulls_for_what_is_left_out_are_no_part_of_a_payment() -> None:
    came = payment()
    came["resource"] = {"url": URL, "description": None, "mimeType": None}
    came["extensions"] = None
    came["accepted"]["extra"]["decimals"] = None
    found = read_payment(came)
    assert found.resource_url == URL
    assert found.forward["resource"] == {"url": URL}
    assert found.forward["accepted"] == offer().as_json()
    assert "extensions" not in found.forward


@pytest.mark.parametrize("version", [1, 2])
def test_hex_is_read_in_capitals_and_small_letters_and_is_one_payment(version: int) -> None:
    loud = payment(
        version,
        signature="0x" + SIGNATURE[2:].upper(),
        **{"from": "0x" + PAYER[2:].upper(), "to": PAYEE.lower(), "nonce": "0x" + NONCE[2:].upper()},
    )
    assert read_payment(loud) == read_payment(payment(version))
    assert read_payment(loud).proof_hash == read_payment(payment(version)).proof_hash


def test_the_proof_is_another_for_every_field_that_was_signed_and_for_the_signature() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"from": OTHER}, {"to": OTHER}, {"value": "10001"}, {"validAfter": "1"}, {"validBefore": str(NOW)}, {"nonce": "0x" + "00" * 32},
        {"signature": "0x" + "2e" * 65},
    ]  # fmt: skip
    proofs = {read_payment(payment(2, **change)).proof_hash for change in changes}
    elsewhere = payment()
    elsewhere["accepted"]["network"] = POLYGON
    assert len(proofs | {read_payment(elsewhere).proof_hash}) == len(changes) + 1
    assert all(len(proof) == 64 for proof in proofs)


def test_the_proof_is_the_same_whatever_else_the_payment_says() -> None:
    other = payment()
    other["resource"] = {"url": URL}
    other["extensions"] = {"x": {"info": {}}}
    other["accepted"]["extra"]["note"] = "mine"
    assert (
        read_payment(other).proof_hash
        == read_payment(payment()).proof_hash
        == read_payment(payment(1)).proof_hash
    )


def test_a_payment_is_shown_without_what_would_carry_it_out() -> None:
    shown = repr(read_payment(payment()))
    assert SIGNATURE not in shown and NONCE not in shown


def test_a_contracts_signature_may_be_long() -> None:
    assert read_payment(payment(signature="0x" + "ab" * 2000)).signature == "0x" + "ab" * 2000


def test_the_key_that_a_payer_gave_its_purchase_is_read() -> None:
    came = payment()
    came["extensions"] = {
        "payment-identifier": {"info": {"required": False, "id": "order-0123456789"}, "schema": {}}
    }
    found = read_payment(came)
    assert found.identifier == "order-0123456789"
    assert found.forward["extensions"] == came["extensions"]


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [None, 0, 3, -2, "2", True, 2.0, [2], {"n": 2}, 10**18], ids=repr)
def test_another_version_is_refused_by_name(version: object) -> None:
    assert refused(lambda: read_payment({**payment(), "x402Version": version}))[0] == "invalid_x402_version"


@pytest.mark.parametrize("scheme", ["upto", "batch-settlement", "auth-capture", "Exact"])
@pytest.mark.parametrize("version", [1, 2])
def test_another_scheme_is_refused_by_name(version: int, scheme: str) -> None:
    came = payment(version)
    (came if version == 1 else came["accepted"])["scheme"] = scheme
    code, sentence = refused(lambda: read_payment(came))
    assert code == "unsupported_scheme"
    assert f'"{scheme}"' in sentence and '"exact"' in sentence


@pytest.mark.parametrize(
    "scheme", [None, 7, True, "", "a b", "<b>", "x" * 65, ["exact"], "exact\n"], ids=repr
)
def test_what_is_no_name_of_a_scheme_is_not_repeated(scheme: object) -> None:
    came = payment()
    came["accepted"]["scheme"] = scheme
    code, sentence = refused(lambda: read_payment(came))
    assert (code, sentence) == ("invalid_scheme", refused(SENT["no scheme"])[1])


@pytest.mark.parametrize(
    ("payload", "extra", "method"),
    [
        ({"permit2Authorization": {}, "signature": "0x"}, {}, "permit2"),
        ({"permissionContext": "0x", "delegationManager": "0x", "delegator": "0x"}, {}, "erc7710"),
        ({"transaction": "AQID"}, {}, "svm"),
        (None, {"assetTransferMethod": "permit2"}, "permit2"),
        (None, {"assetTransferMethod": "something-new"}, "something-new"),
        (None, {"assetTransferMethod": ["eip3009"]}, "another"),
    ],
)
def test_another_method_is_refused_by_name(payload: object, extra: dict[str, Any], method: str) -> None:
    came = payment()
    came["accepted"]["extra"].update(extra)
    if payload is not None:
        came["payload"] = payload
    code, sentence = refused(lambda: read_payment(came))
    assert code == "unsupported_scheme"
    assert f'"{method}"' in sentence and '"eip3009"' in sentence


def test_the_usual_method_may_be_named() -> None:
    came = payment()
    came["accepted"]["extra"]["assetTransferMethod"] = "eip3009"
    assert match(read_payment(came), [offer()], [URL]) == offer()


@pytest.mark.parametrize(
    ("version", "network", "fact"),
    [
        (2, "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "Solana"),
        (2, "base", '"base"'),
        (2, "cosmos:x", '"cosmos:x"'),
        (1, "solana", '"solana"'),
        (1, "eip155:8453", '"eip155:8453"'),
        (1, None, "on which network"),
        (2, 84532, "on which network"),
        (2, "eip155:84532\r\nX: y", "on which network"),
    ],
)
def test_another_network_is_refused_by_name(version: int, network: object, fact: str) -> None:
    came = payment(version)
    (came if version == 1 else came["accepted"])["network"] = network
    code, sentence = refused(lambda: read_payment(came))
    assert code == "invalid_network"
    assert fact in sentence
    assert "84532" not in sentence  # nothing is repeated that is no name


@pytest.mark.parametrize(
    "number",
    [None, 10000, 1.0, True, "", " 1", "1 ", "+1", "-1", "1e4", "1E4", "0x10", "1_000", "1.0", "01", "1\n", "٣", "¹", str(2**256), "9" * 5000],
    ids=lambda number: repr(number)[:20],
)  # fmt: skip
@pytest.mark.parametrize("key", ["value", "validAfter", "validBefore"])
def test_a_number_is_a_text_of_digits_and_nothing_else(key: str, number: object) -> None:
    code, sentence = refused(lambda: read_payment(payment(2, **{key: number})))
    assert code == "invalid_payload"
    assert f'"{key}"' in sentence and "digits" in sentence


def test_the_largest_number_that_a_chain_knows_is_read() -> None:
    assert read_payment(payment(2, value=str(2**256 - 1))).authorization.value == 2**256 - 1


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "0x",
        PAYER[2:],
        "0X" + PAYER[2:],
        PAYER + "0",
        PAYER[:-1],
        "0x" + "g" * 40,
        PAYER + "\n",
        " " + PAYER,
        "0x" + "٣" * 40,
    ],
    ids=repr,
)
@pytest.mark.parametrize("key", ["from", "to", "nonce"])
def test_an_address_and_a_nonce_have_one_form(key: str, text: object) -> None:
    code, sentence = refused(lambda: read_payment(payment(2, **{key: text})))
    assert code == "invalid_payload"
    assert f'"{key}"' in sentence and "0x" in sentence


@pytest.mark.parametrize(
    "signature",
    [
        None,
        7,
        "",
        "0x",
        "0x" + "ab" * 64,
        "0x" + "ab" * 65 + "a",
        "ab" * 65,
        "0x" + "zz" * 65,
        "0x" + "ab" * 4097,
        {"r": "0x"},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_signature_is_hex_of_at_least_65_bytes(signature: object) -> None:
    assert (
        refused(lambda: read_payment(payment(signature=signature)))[0]
        == "invalid_exact_evm_payload_signature"
    )


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("authorization", ("value", "Value")),
        ("authorization", ("validBefore", "valid_before")),
        ("authorization", ("validBefore", "VALIDBEFORE")),
        ("payload", ("signature", "Signature")),
        ("accepted", ("payTo", "pay_to")),
        ("payment", ("payload", "Payload")),
        ("payment", ("x402Version", "x402version")),
        ("resource", ("url", "URL")),
    ],
)
def test_what_is_said_in_two_spellings_is_refused(where: str, keys: tuple[str, str]) -> None:
    came = payment()
    came["resource"] = {"url": URL}
    places: dict[str, dict[str, Any]] = {
        "payment": came,
        "accepted": came["accepted"],
        "payload": came["payload"],
        "authorization": came["payload"]["authorization"],
        "resource": came["resource"],
    }
    places[where][keys[1]] = places[where][keys[0]]
    code, sentence = refused(lambda: read_payment(came))
    assert code == "invalid_payload"
    assert f"The {where} " in sentence and "spellings" in sentence


def test_what_is_said_twice_is_refused() -> None:
    text = json.dumps(payment()).replace('"value": "10000"', '"value": "1", "value": "10000"')
    assert refused(lambda: read_payment(text)) == ("invalid_payload", "The payment says something twice.")


@pytest.mark.parametrize("key", ["accepted", "payload"])
@pytest.mark.parametrize("value", [None, [], "x", 7, True], ids=repr)
def test_what_must_be_an_object_is_one(key: str, value: object) -> None:
    assert refused(lambda: read_payment({**payment(), key: value})) == (
        "invalid_payload",
        f'The payment has no object "{key}".',
    )


@pytest.mark.parametrize("value", [[], "x", 7, True], ids=repr)
@pytest.mark.parametrize("key", ["resource", "extensions"])
def test_what_is_optional_is_an_object_where_it_is_there(key: str, value: object) -> None:
    assert refused(lambda: read_payment({**payment(), key: value}))[0] == "invalid_payload"


@pytest.mark.parametrize("url", [None, 7, ["x"]], ids=repr)
def test_a_resource_has_an_address(url: object) -> None:
    assert refused(lambda: read_payment({**payment(), "resource": {"url": url}}))[0] == "invalid_payload"


@pytest.mark.parametrize(
    "identifier", ["short", "x" * 129, "with a blank in it", 7, "ümlaut-0123456789"], ids=repr
)
def test_a_key_of_another_form_is_refused(identifier: object) -> None:
    came = payment()
    came["extensions"] = {"payment-identifier": {"info": {"required": True, "id": identifier}}}
    assert refused(lambda: read_payment(came))[0] == "invalid_payment_identifier"


@pytest.mark.parametrize(
    "value", [None, [], 7, b"{}", "", "hello", "e30=", "{}", {"x402Version": 2}, "\ud83d"], ids=repr
)
def test_what_is_no_payment_is_refused(value: object) -> None:
    refused(lambda: read_payment(value))


def test_a_long_or_deep_payment_is_refused() -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = {"a": deep}
    long = {**payment(), "extensions": {"x": "y" * 17_000}}
    for came in ({**payment(), "extensions": {"x": deep}}, long):
        for carried in (came, json.dumps(came), base64_json(came)):
            assert refused(lambda carried=carried: read_payment(carried))[0] == "invalid_payload"


# ── matching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def paid(version: int = 2, /, *, accepted: Any = None, **changes: Any) -> Payment:
    came = payment(version, **changes)
    if accepted:
        came["accepted"] |= accepted
    return read_payment(came)


@pytest.mark.parametrize("version", [1, 2])
def test_a_payment_is_matched_with_our_own_offer_of_its_network(version: int) -> None:
    others = [offer(network=POLYGON), offer(amount="20000"), offer()]
    assert match(paid(version), others, [URL]) is others[2]


def test_a_client_may_add_to_what_we_said_and_write_addresses_its_own_way() -> None:
    extra = {**offer().extra, "more": [1, {"a": None}]}
    accepted = {"extra": extra, "asset": SEPOLIA.address.lower(), "payTo": PAYEE.upper().replace("0X", "0x")}
    assert match(paid(accepted=accepted), [offer()], [URL]) == offer()


def test_of_two_offers_that_differ_in_what_is_extra_the_accepted_one_is_found() -> None:
    offers = [offer(extra={**offer().extra, "paymentFlow": "upfront"}), offer()]
    assert match(paid(), offers, [URL]) is offers[1]


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("network", POLYGON, "invalid_network"),
        ("asset", OTHER, "asset_mismatch"),
        ("asset", None, "asset_mismatch"),
        ("payTo", OTHER, "recipient_mismatch"),
        ("amount", "10001", "amount_mismatch"),
        ("amount", 10000, "amount_mismatch"),
        ("amount", "10000.0", "amount_mismatch"),
        ("maxTimeoutSeconds", 301, "invalid_payment_requirements"),
        ("maxTimeoutSeconds", "300", "invalid_payment_requirements"),
        ("maxTimeoutSeconds", 300.0, "invalid_payment_requirements"),
        ("extra", {"name": "USDC"}, "invalid_payment_requirements"),
        ("extra", {"name": "USDC", "version": 2}, "invalid_payment_requirements"),
        ("extra", {"name": "USD Coin", "version": "2"}, "invalid_payment_requirements"),
        ("extra", None, "invalid_payment_requirements"),
        ("extra", ["name"], "invalid_payment_requirements"),
    ],
)
def test_what_was_accepted_must_have_been_offered(key: str, value: object, code: str) -> None:
    found, _ = refused(lambda: match(paid(accepted={key: value}), [offer()], [URL]))
    assert found == code


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("to", OTHER, "invalid_exact_evm_payload_recipient_mismatch"),
        ("value", "9999", "invalid_exact_evm_payload_authorization_value_mismatch"),
        ("value", "10001", "invalid_exact_evm_payload_authorization_value_mismatch"),
        ("value", "0", "invalid_exact_evm_payload_authorization_value_mismatch"),
    ],
)
def test_what_was_signed_must_be_what_was_accepted(version: int, key: str, value: str, code: str) -> None:
    found, _ = refused(lambda: match(paid(version, **{key: value}), [offer()], [URL]))
    assert found == code


def test_nothing_is_matched_where_nothing_is_offered() -> None:
    assert refused(lambda: match(paid(), [], [URL]))[0] == "unsupported_scheme"
    assert refused(lambda: match(paid(1), [offer(network=POLYGON)], [URL]))[0] == "invalid_network"


@pytest.mark.parametrize("extra", [{"a": 1}, {"a": True}, {"a": [1, "x"]}, {"a": {"b": 1}}], ids=str)
@pytest.mark.parametrize(
    "theirs",
    [{"a": 1.0}, {"a": 1}, {"a": True}, {"a": [True, "x"]}, {"a": [1, "x", 2]}, {"a": {"b": 1, "c": 2}}],
    ids=str,
)
def test_values_are_compared_as_json_has_them(extra: dict[str, Any], theirs: dict[str, Any]) -> None:
    ours: Requirements = offer(extra=extra)
    same = json.dumps(extra) == json.dumps(theirs)
    if same:
        assert match(paid(accepted={"extra": theirs}), [ours], [URL]) is ours
    else:
        refused(lambda: match(paid(accepted={"extra": theirs}), [ours], [URL]))


def test_a_payment_that_names_another_resource_is_refused_and_one_that_names_none_is_not() -> None:
    came = payment()
    came["resource"] = {"url": URL}
    assert match(read_payment(came), [offer()], ["mcp://tool/a", URL]) == offer()
    assert refused(lambda: match(read_payment(came), [offer()], [URL + "/"]))[0] == "invalid_resource"
    assert refused(lambda: match(read_payment(came), [offer()], []))[0] == "invalid_resource"
    assert match(paid(), [offer()], []) == offer()
    assert RESOURCE.url == URL


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("needed", [0, 60, 300 - MARGIN_SECONDS])
def test_a_payment_that_lasts_until_the_work_is_done_is_taken(needed: int) -> None:
    check_window(paid(), NOW, needed)


@pytest.mark.parametrize(
    ("changes", "needed", "code", "word"),
    [
        ({}, 300 - MARGIN_SECONDS + 1, "valid_before", "300 more seconds"),
        ({"validBefore": str(NOW)}, 0, "valid_before", "no longer"),
        ({"validBefore": str(NOW + 1)}, 0, "valid_before", "longer"),
        ({"validBefore": "0"}, 0, "valid_before", "no longer"),
        ({"validBefore": str(NOW + LONGEST_VALID_SECONDS + 1)}, 0, "valid_before", "24 hours"),
        ({"validBefore": str(2**256 - 1)}, 0, "valid_before", "24 hours"),
        ({"validAfter": str(NOW + 1)}, 0, "valid_after", "not valid yet"),
        ({"validAfter": str(2**256 - 1)}, 0, "valid_after", "not valid yet"),
    ],
)
def test_a_payment_out_of_its_time_is_refused(
    changes: dict[str, str], needed: int, code: str, word: str
) -> None:
    found, sentence = refused(lambda: check_window(paid(2, **changes), NOW, needed))
    assert found == f"invalid_exact_evm_payload_authorization_{code}"
    assert word in sentence


def test_a_payment_may_be_valid_for_a_day() -> None:
    check_window(paid(2, validBefore=str(NOW + LONGEST_VALID_SECONDS), validAfter=str(NOW)), NOW, 60)
