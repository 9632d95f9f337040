"""What is blotted out under a name: mail addresses, numbers of payment cards, keys and tokens of well-known shape.

These know what they do, and are not held to what patterns.py holds those of the settings to; tests do that, with bounds of their own and
with hostile texts. Where a pattern begins with plain characters, the engine finds them fast: what must not stand before them is asked behind them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from server.policy.patterns import SafePattern

# How many digits a card has, and with what its number begins.
_CARD_DIGITS: Final = range(13, 20)
_CARD_BEGINS: Final = frozenset("23456")


class Blot(msgspec.Struct, frozen=True):
    """`put` makes of a match what stands in its place."""

    pattern: SafePattern
    put: Callable[[re.Match[str]], str]


def plain(pattern: SafePattern, words: str = "redacted") -> Blot:
    mark = f"[{words}]"
    return Blot(pattern, lambda _: mark)


def _of(words: str, reach: int, text: str) -> Blot:
    return plain(SafePattern(re.compile(text), reach), words)


def _secret(reach: int, text: str) -> Blot:
    return _of("secret redacted", reach, text)


# ── cards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_card(digits: str) -> bool:
    """By the check digit that ISO/IEC 7812 gives them (Luhn)."""
    if len(digits) not in _CARD_DIGITS or digits[0] not in _CARD_BEGINS or len(set(digits)) == 1:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _without_cards(found: re.Match[str]) -> str:
    """Of a run of digits in groups, whichever groups together are a card's number."""
    parts = re.split(r"([ -])", found[0])
    out: list[str] = []
    at = 0
    while at < len(parts):
        digits, end = "", 0
        for to in range(at, len(parts), 2):
            digits += parts[to]
            if len(digits) > _CARD_DIGITS[-1]:
                break
            if is_card(digits):
                end = to + 1
        if end:
            out.append("[card number redacted]")
            at = end
        else:
            out.append(parts[at])
            at += 1
        if at < len(parts):
            out.append(parts[at])
            at += 1
    return "".join(out)


SETS: Final[Mapping[str, tuple[Blot, ...]]] = MappingProxyType(
    {
        "emails": (
            _of(
                "email redacted",
                900,
                r"(?<![\w.%+-])[\w.%+-]{1,256}+@(?:\w[\w-]{0,62}+\.){1,8}[^\W\d_]{2,24}+",
            ),
        ),
        "cards": (
            Blot(
                SafePattern(re.compile(r"(?<![0-9])[0-9](?:[ -]?+[0-9]){12,400}+", re.ASCII), 900),
                _without_cards,
            ),
        ),
        "secrets": (
            _secret(20_100, r"eyJ(?<![\w-]eyJ)[\w-]{8,4000}+(?:\.[\w-]{1,16000}+){1,2}+"),
            _secret(450, r"rt[0-9]{1,6}+\.[\w-]{1,200}+\.[0-9]{1,20}+\.[\w-]{1,200}+"),
            _secret(300, r"ost_(?<!\wost_)[\w.-]{16,250}+"),
            _secret(4100, r"(?i:bearer)\s{1,10}+[\w.~+/=-]{8,4000}+"),
            _secret(300, r"sk-(?<!\wsk-)[\w-]{20,250}+"),
            _secret(300, r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,250}+"),
            _secret(300, r"gh[oprsu]_[A-Za-z0-9]{36,250}+"),
            _secret(300, r"github_pat_\w{22,250}+"),
            _secret(300, r"glpat-[\w-]{20,250}+"),
            _secret(300, r"xox[abeprs]-[\w-]{10,250}+"),
            _secret(60, r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
            _secret(60, r"AIza[\w-]{35}"),
            _secret(60, r"npm_[A-Za-z0-9]{36}"),
            _secret(
                16_200,
                r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----)){0,16000}+(?:-----END[A-Z -]{0,60}+)?",
            ),
        ),
    }
)
