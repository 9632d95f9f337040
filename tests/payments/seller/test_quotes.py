"""Quotes and fingerprints: a price that was named holds, for that call alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from till_fakes import NOW

from server.payments.seller.quotes import BadQuote, Quotes
from server.store.idempotency.call_keys import NotComparable, canonical, fingerprint
from tests.payments.seller.open_till import an_offer

QUOTE_SECONDS = 600

KEY = b"k" * 32


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotes(clock: Clock) -> Quotes:
    return Quotes(KEY, clock=clock)


def reason(quotes: Quotes, quote: str, **other: Any) -> str:
    fields: dict[str, Any] = {"fingerprint": "f1", "caller": "user:ada:", **other}
    with pytest.raises(BadQuote) as refused:
        quotes.open(quote, an_offer(), **fields)
    assert str(refused.value)
    return refused.value.reason


def test_what_was_quoted_holds_although_the_price_has_changed(quotes: Quotes) -> None:
    quote = quotes.seal(an_offer(10_000, version="old", asset="usdc"), fingerprint="f1", caller="user:ada:")
    now = an_offer(90_000, version="new", plan_only=True, trial=3)
    offer = quotes.open(quote, now, fingerprint="f1", caller="user:ada:")
    assert offer == an_offer(10_000, version="old", asset="usdc", trial=3)
    assert "ada" not in quote


def test_a_quote_is_for_its_arguments_its_caller_and_its_time(quotes: Quotes, clock: Clock) -> None:
    quote = quotes.seal(an_offer(), fingerprint="f1", caller="user:ada:")
    assert reason(quotes, quote, fingerprint="f2") == "quote_mismatch"
    assert reason(quotes, quote, caller="user:bob:") == "quote_invalid"
    clock.now += QUOTE_SECONDS * 1000 - 1
    assert quotes.open(quote, an_offer(1), fingerprint="f1", caller="user:ada:") == an_offer()
    clock.now += 1
    assert reason(quotes, quote) == "quote_expired"


def test_a_quote_of_another_key_is_none(quotes: Quotes, clock: Clock) -> None:
    other = Quotes(b"x" * 32, clock=clock).seal(an_offer(), fingerprint="f1", caller="user:ada:")
    assert reason(quotes, other) == "quote_invalid"


@pytest.mark.parametrize("text", ["", "a", "=", "é", "A" * 2000, "AAAA", "not a quote", "-_-_" * 10])
def test_what_is_no_quote_is_refused(quotes: Quotes, text: str) -> None:
    assert reason(quotes, text) == "quote_invalid"


def test_no_letter_of_a_quote_can_be_changed(quotes: Quotes) -> None:
    quote = quotes.seal(an_offer(), fingerprint="f1", caller="user:ada:")
    for place, letter in enumerate(quote):
        changed = quote[:place] + ("B" if letter == "A" else "A") + quote[place + 1 :]
        assert reason(quotes, changed) == "quote_invalid"
    for longer in (quote + "=", quote + "A", quote + "\n", quote[:-1]):
        assert reason(quotes, longer) == "quote_invalid"


# ── which call it is ─────────────────────────────────────────────────────────────────────────────────────────────────


def print_of(arguments: Any, tool: str = "search", server: str = "main", key: bytes = KEY) -> str:
    return fingerprint(key, server, tool, arguments)


def test_the_order_of_keys_does_not_matter_and_everything_else_does() -> None:
    arguments = {"b": 1, "a": {"d": [1, 2], "c": "é"}}
    same = json.loads('{"a": {"c": "é", "d": [1, 2]}, "b": 1}')
    assert print_of(arguments) == print_of(same)
    others = [
        print_of({"b": 1.0, "a": {"d": [1, 2], "c": "é"}}),
        print_of({"b": 1, "a": {"d": [2, 1], "c": "é"}}),
        print_of({"b": 1, "a": {"d": [1, 2], "c": "e\u0301"}}),
        print_of({"b": "1", "a": {"d": [1, 2], "c": "é"}}),
        print_of({"b": 1, "a": {"d": [1, 2], "c": "é"}, "x": None}),
        print_of(arguments, tool="look"),
        print_of(arguments, server="other"),
        print_of(arguments, key=b"x" * 32),
    ]
    assert len({print_of(arguments), *others}) == len(others) + 1
    assert len(print_of(arguments)) == 64


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda part: st.one_of(st.lists(part, max_size=4), st.dictionaries(st.text(max_size=4), part, max_size=4)),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_what_travels_as_json_has_the_same_fingerprint_at_the_other_end(arguments: dict[str, Any]) -> None:
    there = json.loads(json.dumps(dict(reversed(arguments.items()))))
    assert print_of(there) == print_of(arguments)


def test_names_cannot_be_shifted_into_one_another() -> None:
    assert print_of({}, tool="b", server="a") != print_of({}, tool="", server="ab")


def test_lists_in_lists_without_an_end_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    try:
        with pytest.raises(NotComparable):
            canonical(deep)
    finally:  # or taking it apart would go as deep
        while deep:
            deep = deep.pop()
