"""Prices by arithmetic: exact, bounded, and nothing of Python beyond it."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from fractions import Fraction
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.lib.money.amounts import MOST, ONE
from server.lib.money.expressions import MAX_PARTS, BadExpression, Expression, NoPrice

# How much work an expression may be, in calls of functions, Python's and C's: they are the same on every machine. For each part of the tree
# so many, and for a number a few for each character, because what is written there is looked up in the text.
CALLS_FOR_A_PART = 100
CALLS_FOR_A_CHARACTER = 2
# How long numbers may become, in bits: the finest float is read before it is refused, and each part can bring an argument.
FINEST_FLOAT_BITS = 1100
BITS_FOR_A_PART = 200


class Work:
    """What it takes to read an expression, and to work it out."""

    def __init__(self, text: str, arguments: dict[str, Any]) -> None:
        self.calls = self.bits = 0
        self.price: int | None = None
        self.problem: BadExpression | NoPrice | None = None
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            self.price = Expression(text).price(arguments)
        except (BadExpression, NoPrice) as problem:
            self.problem = problem
        finally:
            sys.setprofile(before)
        assert self.calls <= MAX_PARTS * (CALLS_FOR_A_PART + CALLS_FOR_A_CHARACTER * len(text))
        assert self.bits <= FINEST_FLOAT_BITS + MAX_PARTS * BITS_FOR_A_PART

    def _count(self, _frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")
        if event == "return" and isinstance(argument, Fraction):
            self.bits = max(self.bits, argument.numerator.bit_length(), argument.denominator.bit_length())


# ── what there is ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "arguments", "micros"),
    [
        ("0.01", {}, 10_000),
        ("0.01 + 0.002 * len(text)", {"text": "abcde"}, 20_000),
        ("0.1 + 0.2", {}, 300_000),
        ("0.1 * n", {"n": 0.1}, 10_000),
        ("0.1 * n", {"n": 3}, 300_000),
        ("1 - 0.999999", {}, 1),
        ("max(0.01, 0.001 * pages)", {"pages": 3}, 10_000),
        ("min(1, 0.5, 0.25)", {}, 250_000),
        ("round_up(1 / 3)", {}, 333_334),
        ("round_up(0.011, 0.01)", {}, 20_000),
        ("round_up(0.02, 0.01)", {}, 20_000),
        ("round_up(-(0 - 0.0000001))", {}, 1),
        ("0.02 if fast else 0.01", {"fast": True}, 20_000),
        ("0.02 if not fast else 0.01", {"fast": True}, 10_000),
        ('0.02 if model == "large" else 0.01', {"model": "large"}, 20_000),
        ('0.02 if model != "large" else 0.01', {"model": 3}, 20_000),
        ("0.02 if 1 < n <= 10 else 0.01", {"n": 10}, 20_000),
        ("0.02 if n > 1 and not n == 2 or n < 0 else 0.01", {"n": 2}, 10_000),
        ("0.01 * n if given(n) else 0.05", {}, 50_000),
        ("0.01 * n if given(n) else 0.05", {"n": None}, 50_000),
        ("0.02 if exact == true else 0.01", {"exact": True}, 20_000),
        ('0.01 * options["pages"]', {"options": {"pages": 4}}, 40_000),
        ('0.01 * a["b"]["c"]', {"a": {"b": {"c": 2}}}, 20_000),
        ("0.001 * len(items)", {"items": [1, 2, 3]}, 3_000),
        ("0.001 * len(items)", {"items": {"a": 1}}, 1_000),
        ("0", {}, 0),
    ],
)
def test_what_is_written_is_worked_out_exactly(text: str, arguments: dict[str, Any], micros: int) -> None:
    assert Expression(text).price(arguments) == micros


def test_only_what_is_chosen_is_looked_at() -> None:
    either = Expression("0.01 if simple else 0.1 * pages")
    assert either.price({"simple": True}) == 10_000
    assert either.names == {"simple", "pages"}


# ── what there is not ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "1 +", "1; 2", "x = 1", "import os", "a.b", "().__class__", "__import__('os')", "open('x')", "eval('1')",
        "len", "len()", "len(a, b)", "min(1)", "max(*a)", "min(a=1, b=2)", "2 ** 9", "2 // 1", "7 % 2", "1 << 2", "~1", "+1",
        "[x for x in a]", "(x for x in a)", "{1: 2}", "[1]", "(1, 2)", "lambda: 1", "f'{a}'", "1e3", "0x10", "1_000", "1j", "01",
        "0.0000000000001", "1000000000000000", "None", "...", "b'a'", "a[0]", "a[b]", "len(a)['x']", "a if b", "1 is 1", "1 in a",
        "(yield)", "(b := 1)", "given('a')", "given(a, b)", "given()", "await a", "a @ b", "1 if 2", "é", "a\n+ b\x00",
        "1 / 3", "1 - 1 / 3", "min(1, n / 3)", "1 if a else n / 2", "-(n / 2)", "print(1)", "round_up(1, 2, 3)", "True.real",
    ],
)  # fmt: skip
def test_nothing_else_of_python_is_there(text: str) -> None:
    with pytest.raises(BadExpression):
        Expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 240 + "1" + ")" * 240, "-" * 490 + "1", "not " * 120 + "a", "1" + "+1" * 240,
        "1 if a else " * 40 + "1", "min(1," * 80 + "1" + ")" * 80, "a" * 501, " " * 600,
    ],
)  # fmt: skip
def test_what_is_long_or_deep_is_refused_with_little_work(text: str) -> None:
    assert isinstance(Work(text, {}).problem, BadExpression)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("0.01 * n", {}),
        ("0.01 * n", {"n": "3"}),
        ("0.01 * n", {"n": True}),
        ("0.01 * n", {"n": None}),
        ("0.01 * n", {"n": [1]}),
        ("0.01 * n", {"n": 10**16}),
        ("0.01 * n", {"n": 1e300}),
        ("0.01 * n", {"n": 1e-300}),
        ("0.01 * n", {"n": math.nan}),
        ("0.01 * n", {"n": math.inf}),
        ("0.01 * n", {"n": -1}),
        ("0.01 * n", {"n": 0.00001}),
        ("1000000 * n", {"n": 10**15}),
        ("n", {"n": "free"}),
        ("n == 1", {"n": 1}),
        ("1 if n else 2", {"n": 1}),
        ("1 if n < m else 2", {"n": 1, "m": "a"}),
        ("1 if n < m else 2", {"n": True, "m": False}),
        ("len(n)", {"n": 5}),
        ('n["a"]', {"n": 5}),
        ('n["a"]', {"n": {}}),
        ("round_up(1 / n)", {"n": 0}),
        ("round_up(1, n)", {"n": 0}),
        ("round_up(1, n)", {"n": -1}),
    ],
)
def test_arguments_that_make_no_price_are_told_without_their_values(
    text: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(NoPrice) as told:
        Expression(text).price(arguments)
    assert "1e" not in str(told.value) and "0000" not in str(told.value)


# ── whatever is written, whatever comes ──────────────────────────────────────────────────────────────────────────────

NUMBERS = st.decimals(min_value=0, max_value=1000, places=4).map(lambda number: f"{number.normalize():f}")
NAMES = st.sampled_from(["a", "b", "text", "options"])
TEXTS = st.recursive(
    st.one_of(NUMBERS, NAMES, st.sampled_from(["true", '"x"', 'options["n"]'])),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*", "/", "<", ">=", "==", "and", "or"]), part).map(
            lambda found: f"({found[0]} {found[1]} {found[2]})"
        ),
        st.tuples(part, part, part).map(lambda found: f"({found[0]} if {found[1]} else {found[2]})"),
        st.tuples(st.sampled_from(["len", "given", "round_up"]), part).map(
            lambda found: f"{found[0]}({found[1]})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), part, part).map(
            lambda found: f"{found[0]}({found[1]}, {found[2]})"
        ),
        part.map(lambda found: f"(-{found})"),
    ),
    max_leaves=40,
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda part: st.one_of(
        st.lists(part, max_size=3), st.dictionaries(st.sampled_from(["n", "b"]), part, max_size=2)
    ),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.dictionaries(NAMES, JSON))
def test_an_expression_is_a_price_or_a_sentence_with_little_work(
    text: str, arguments: dict[str, Any]
) -> None:
    work = Work(text, arguments)
    assert str(work.problem) if work.price is None else 0 <= work.price <= MOST


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_any_text_at_all_is_read_or_refused(text: str) -> None:
    try:
        found = Expression(text).text
    except BadExpression as problem:
        found = str(problem)
    assert found


@settings(max_examples=300, deadline=None)
@given(
    st.decimals(min_value=0, max_value=10**6, places=6),
    st.decimals(min_value=0, max_value=10**6, places=3),
)
def test_a_float_counts_as_the_decimal_that_was_sent(rate: Decimal, count: Decimal) -> None:
    sent = json.loads(f"{count:f}")  # an int or a float, as a call has it
    exact = math.ceil(Fraction(rate) * Fraction(count) * ONE)
    if exact > MOST:
        return
    assert Expression(f"round_up({rate.normalize():f} * n)").price({"n": sent}) == exact


@pytest.mark.parametrize(("sign", "counted"), [("*", False), ("+", False), ("/", True)])
def test_the_largest_expression_over_the_longest_numbers_is_little_work(sign: str, counted: bool) -> None:
    most = "round_up(" + f" {sign} ".join(["n"] * (MAX_PARTS // 2 - 2)) + ")"
    work = Work(most, {"n": 999999999999999.9})
    assert (work.price is not None) == counted and work.bits >= 50
    assert Work(most, {"n": 0.1234567890123456}).calls > MAX_PARTS
