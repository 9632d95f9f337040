"""Whatever anybody sends, a payment is read or refused: nothing else is ever raised, and what is read holds what it says."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from server.payments.x402.payment_payload import BadPayment, Payment, check_window, match, read_payment
from tests.payments.x402.builders import NOW, URL, offer, payment

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=8),
    st.sampled_from(
        [
            "exact",
            "upto",
            "0x",
            "0x" + "ab" * 20,
            "0x" + "ab" * 65,
            "1",
            "-1",
            "1e9",
            str(2**256),
            "base",
            "eip155:1",
            "\ud83d",
        ]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
PATHS: list[tuple[str, ...]] = [
    (), ("x402Version",), ("accepted",), ("payload",), ("resource",), ("extensions",), ("scheme",), ("network",), ("resource", "url"),
    ("extensions", "payment-identifier"), ("extensions", "payment-identifier", "info"), ("extensions", "payment-identifier", "info", "id"),
    ("payload", "signature"), ("payload", "authorization"), ("payload", "transaction"), ("payload", "permit2Authorization"),
    *(("accepted", key) for key in ("scheme", "network", "asset", "amount", "payTo", "maxTimeoutSeconds", "extra", "Amount")),
    *(("payload", "authorization", key) for key in ("from", "to", "value", "validAfter", "validBefore", "nonce", "Nonce")),
]  # fmt: skip


def whole(version: int) -> dict[str, Any]:
    found = payment(version)
    if version == 2:
        found["resource"] = {"url": URL}
        found["extensions"] = {"payment-identifier": {"info": {"required": False, "id": "order-0123456789"}}}
    return found


def put(target: dict[str, Any], path: tuple[str, ...], value: object) -> object:
    if not path:
        return value
    place: Any = target
    for key in path[:-1]:
        if not isinstance(place.get(key), dict):
            place[key] = {}
        place = place[key]
    place[path[-1]] = value
    return target


def read_or_refuse(value: object) -> Payment | None:
    before = repr(value)
    try:
        found = read_payment(value)
        match(found, [offer(), offer(network="eip155:137")], [URL])
        check_window(found, NOW, 60)
    except BadPayment as raised:
        found, refusal = None, raised
    else:
        refusal = None
    assert repr(value) == before, "what came is the caller's"
    if refusal is not None:
        assert re.fullmatch(r"[a-z0-9_]{1,80}", refusal.reason_code)
        assert refusal.sentence.isprintable() and 10 < len(refusal.sentence) < 300
    return found


def soundly_read(found: Payment) -> None:
    assert found.version in (1, 2) and found.scheme == "exact" and found.network == "eip155:84532"
    assert found.authorization.value == 10000
    assert NOW < found.authorization.valid_before <= NOW + 86_400
    assert len(json.dumps(found.forward)) < 16 * 1024
    assert read_payment(dict(found.forward)) == found
    assert re.fullmatch(r"[0-9a-f]{64}", found.proof_hash)


@given(VALUES)
def test_anything_at_all(value: object) -> None:
    assert read_or_refuse(value) is None


@given(st.one_of(st.text(), st.binary().map(lambda raw: base64.b64encode(raw).decode()), VALUES.map(repr)))
def test_any_text(text: str) -> None:
    assert read_or_refuse(text) is None


@given(st.sampled_from([1, 2]), st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3))
def test_a_payment_in_which_something_is_something_else(
    version: int, changes: list[tuple[tuple[str, ...], object]]
) -> None:
    came: object = whole(version)
    for path, value in changes:
        if isinstance(came, dict):
            came = put(came, path, value)
    if (found := read_or_refuse(came)) is not None:
        soundly_read(found)


@given(st.sampled_from([1, 2]), st.integers(0, 4000), st.integers(0, 40), st.text(max_size=6), st.booleans())
def test_a_text_of_which_a_part_is_replaced(
    version: int, at: int, length: int, text: str, packed: bool
) -> None:
    came = json.dumps(whole(version))
    at %= len(came)
    came = came[:at] + text + came[at + length :]
    if packed:
        came = base64.b64encode(came.encode("utf-8", "surrogatepass")).decode()
    if (found := read_or_refuse(came)) is not None:
        soundly_read(found)


@given(st.sampled_from([1, 2]), st.integers(0, 400))
def test_a_payment_that_is_cut_off(version: int, length: int) -> None:
    text = json.dumps(whole(version))
    assert read_or_refuse(text[: min(length, len(text) - 1)]) is None
    packed = base64.b64encode(text.encode()).decode()
    assert read_or_refuse(packed[:length]) is None
