"""Amounts: whole millionths of one unit of money ("micros"), read from what people write and written for people to read.

The books hold nothing else, so sums are exact. A token of a chain counts in atomic units of its own; with six decimals, as USDC has,
an atomic unit is a micro. Nothing is ever rounded: what does not come out even is refused.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

Micros: TypeAlias = int

DECIMALS: Final = 6
ONE: Final = 10**DECIMALS
# What the store can hold in a column, with room for sums: a hundred billion.
MOST: Final = 10**17

_WRITTEN: Final = re.compile(r"\$?(0|[1-9][0-9]{0,11})(?:\.([0-9]{1,6}))?")
# 2**256 - 1 has 78 digits.
_ATOMIC: Final = re.compile(r"0|[1-9][0-9]{0,77}")
MOST_ATOMIC: Final = 2**256 - 1


class BadAmount(ValueError):
    """An error in an amount of money; the message is the reason."""


def parse(text: str) -> Micros:
    """Parse an amount such as `"$0.01"` or `"0.01"`. Raise `BadAmount`."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise BadAmount('is no amount: write it like "$0.01", with at most six digits behind the point')
    micros = int(match[1]) * ONE + int((match[2] or "").ljust(DECIMALS, "0"))
    if micros > MOST:
        raise BadAmount("is more than can be counted here")
    return micros


def shown(micros: Micros, currency: str = "USD") -> str:
    """Format an amount for people: `$0.01`, `-$1.50`, `0.25 EUR`. There are two decimals, or more where they are not 0."""
    sign, whole = ("-" if micros < 0 else ""), abs(micros)
    fraction = f"{whole % ONE:06d}".rstrip("0").ljust(2, "0")
    number = f"{whole // ONE}.{fraction}"
    return f"{sign}${number}" if currency == "USD" else f"{sign}{number} {currency}"


def parse_atomic(text: str) -> int:
    """Parse the decimal string of a protocol: no sign, blank, exponent or leading zero, at most 2**256 - 1. Raise `BadAmount`."""
    if _ATOMIC.fullmatch(text) is None or (number := int(text)) > MOST_ATOMIC:
        raise BadAmount("is no whole number of atomic units")
    return number


def to_atomic(micros: Micros, decimals: int) -> int:
    """Convert micros to atomic units of a token with `decimals`. Raise `BadAmount` if that would need rounding."""
    if decimals >= DECIMALS:
        return micros * 10 ** (decimals - DECIMALS)
    atomic, rest = divmod(micros, 10 ** (DECIMALS - decimals))
    if rest:
        raise BadAmount(
            f"cannot be paid with a token that has {decimals} decimals: it would have to be rounded"
        )
    return atomic


def from_atomic(atomic: int, decimals: int) -> Micros:
    """Convert atomic units of a token with `decimals` to micros. Raise `BadAmount` if that would need rounding."""
    if decimals < DECIMALS:
        return atomic * 10 ** (DECIMALS - decimals)
    micros, rest = divmod(atomic, 10 ** (decimals - DECIMALS))
    if rest:
        raise BadAmount("is finer than a millionth, and the books would have to round it")
    return micros
