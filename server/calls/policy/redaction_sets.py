"""Sets of patterns for redaction: mail addresses, numbers of payment cards, keys and tokens of well-known shape.

These know what they do, and are not held to what patterns.py holds those of the settings to; tests do that, with bounds of their own and
with hostile texts. Where a pattern begins with plain characters, the engine finds them fast: what must not stand before them is asked
behind them."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from server.calls.policy.patterns import SafePattern

# How many digits a card has, and with what its number begins. With a 2 there are few, so that no date is taken for one.
_CARD_DIGITS: Final = range(13, 20)
_CARD_BEGINS: Final = frozenset("3456")
_CARD_BEGINS_2: Final = (range(2131, 2132), range(2200, 2205), range(2221, 2721))
# A blank or a dash may stand anywhere in the number. Where other marks do, the groups have to be those of a card: numbers stand in
# columns, with points in them, and in lines.
_CARD_GROUPS: Final = frozenset(
    {
        (4, 4, 4, 4),
        (4, 4, 4, 4, 1),
        (4, 4, 4, 4, 2),
        (4, 4, 4, 4, 3),
        (4, 6, 5),
        (4, 6, 4),
        (4, 4, 5),
        (4, 3, 3, 3),
    }
)
_CARD_MARK: Final = r"[\s.\-\u00ad\u00b7\u2010-\u2015\u2212\u200b-\u200d\u2060\ufeff]"
_CARD_MARKS: Final = f"{_CARD_MARK}{{1,6}}+"
# How such groups go on behind the first digit, as far as the shortest number reaches.
_GROUPED: Final = r"\d{3}M(?:\d{4}M(?:\d{4}M\d{4}|\d{5})|\d{6}M\d{4}|\d{3}M\d{3}M\d{3})".replace(
    "M", _CARD_MARKS
)


class Blot(msgspec.Struct, frozen=True):
    """A pattern, and what is done with a match: `put` says where that ends which is blotted out, and what stands in its place; None where
    it stays."""

    pattern: SafePattern
    put: Callable[[re.Match[str]], tuple[int, str] | None]


def plain(pattern: SafePattern, mark: str = "[redacted]") -> Blot:
    return Blot(pattern, lambda found: (found.end(), mark))


SECRET_MARK: Final = "[secret redacted]"
_KEY_NAME: Final = "secret[_-]?+access[_-]?+key"  # of AWS
_KEY_OF_AWS: Final = "[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])"


def _of(words: str, reach: int, text: str) -> Blot:
    return plain(SafePattern(re.compile(text), reach), f"[{words}]")


def _secret(reach: int, text: str) -> Blot:
    return _of("secret redacted", reach, text)


# ── cards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def card_lengths(digits: str) -> list[int]:
    """Return the lengths of those beginnings that are a card's number, by the check digit that ISO/IEC 7812 gives them (Luhn)."""
    if not digits.isascii():  # of another script
        digits = "".join(str(int(digit)) for digit in digits)
    if digits[0] not in _CARD_BEGINS and not any(int(digits[:4]) in each for each in _CARD_BEGINS_2):
        return []
    found: list[int] = []
    total = other = 0  # of a number that ends here, and of one that goes on
    for length, digit in enumerate(digits, 1):
        value = int(digit)
        total, other = other + value, total + (2 * value if value < 5 else 2 * value - 9)
        if total % 10 == 0 and length in _CARD_DIGITS and len(set(digits[:length])) > 1:
            found.append(length)
    return found


def _without_card(found: re.Match[str]) -> tuple[int, str] | None:
    """Blot out the longest number of a card that begins here and ends where a group of digits does."""
    window = found[0] + found[1]
    lengths = card_lengths(re.sub(_CARD_MARK, "", window))
    if not lengths:
        return None
    parts = re.split(f"({_CARD_MARKS})", window)
    counted, at, end = 0, found.start(), None
    for place, part in enumerate(parts):
        at += len(part)
        if place % 2 == 0:
            counted += len(part)
            # The last group may be longer than a card has room for.
            whole = not found.string[at : at + 1].isdecimal()
            if whole and counted in lengths and _is_in_groups(parts[: place + 1]):
                end = at
    return None if end is None else (end, "[card number redacted]")


def _is_in_groups(parts: Sequence[str]) -> bool:
    marks = parts[1::2]
    if all(mark in (" ", "-") for mark in marks):
        return True
    lines = sum("\n" in mark or "\r" in mark for mark in marks)
    return lines <= 1 and tuple(map(len, parts[::2])) in _CARD_GROUPS


# ── keys and tokens ──────────────────────────────────────────────────────────────────────────────────────────────────


def _without_password(found: re.Match[str]) -> tuple[int, str] | None:
    """Blot out Basic credentials (RFC 7617), which "basic information" is not."""
    encoded = found[1].rstrip("=")
    try:
        plain = b64decode(
            encoded + "=" * (-len(encoded) % 4),
            altchars=b"-_" if "-" in encoded or "_" in encoded else None,
            validate=True,
        ).decode()
    except ValueError:
        return None
    return (found.end(), SECRET_MARK) if ":" in plain and plain.isprintable() else None


# In this order, whichever are asked for: what is left of a password by the pattern of mail addresses is still one.
SETS: Final[Mapping[str, tuple[Blot, ...]]] = MappingProxyType(
    {
        "secrets": (
            _secret(36_011, r"eyJ(?<![\w-]eyJ)[\w-]{8,4000}+(?:\.[\w-]{1,16000}+){1,2}+"),
            _secret(433, r"rt[0-9]{1,6}+\.[\w-]{1,200}+\.[0-9]{1,20}+\.[\w-]{1,200}+"),
            _secret(261, r"ost_(?<!\wost_)[\w.-]{16,250}+"),
            _secret(4018, r"(?i:bearer)\s{1,10}+[\w.~+/=-]{8,4000}+"),
            _secret(259, r"sk-(?<!\wsk-)[\w-]{20,250}+"),
            _secret(260, r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,250}+"),
            _secret(256, r"gh[oprsu]_[A-Za-z0-9]{36,250}+"),
            _secret(263, r"github_pat_\w{22,250}+"),
            _secret(258, r"glpat-[\w-]{20,250}+"),
            _secret(268, r"hooks\.slack\.com/[\w/-]{10,250}+"),
            # The password of an address; what is before and behind it stays.
            plain(
                SafePattern(re.compile(r"://[^\s/?#:@\"'<>]{0,200}+:[^\s/?#\"'<>]{1,500}@"), 707),
                f"://{SECRET_MARK}@",
            ),
            # One that is not written as an address wants it, with a / ? or # of its own; a port that a path follows is none.
            plain(
                SafePattern(
                    re.compile(r"://[^\s/?#:@\[\"'<>]{0,200}+:(?!\d{1,5}+[/?#])[^\s\"'<>]{1,500}@"), 713
                ),
                f"://{SECRET_MARK}@",
            ),
            Blot(
                SafePattern(re.compile(r"(?i:basic)\s{1,10}+([\w+/-]{4,4000}+={0,2}+)", re.ASCII), 4019),
                _without_password,
            ),
            _secret(72, rf"(?i:{_KEY_NAME})[\s\"':=>]{{1,12}}+{_KEY_OF_AWS}"),
            _secret(257, r"xox[abeprs]-[\w-]{10,250}+"),
            _secret(23, r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
            _secret(41, r"AIza[\w-]{35}"),
            _secret(42, r"npm_[A-Za-z0-9]{36}"),
            _secret(
                16_137,
                r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----)){0,16000}+(?:-----END[A-Z -]{0,60}+)?",
            ),
        ),
        "emails": (
            _of(
                "email redacted",
                796,
                r"(?<![\w.%+-])[\w.%+-]{1,256}+@(?:\w[\w-]{0,62}+\.){1,8}[^\W\d_]{2,24}+",
            ),
        ),
        "cards": (
            Blot(
                # Found at each group of digits that may begin one, and no further than one reaches: they may follow each other for long.
                SafePattern(
                    re.compile(
                        rf"[^\D01789](?<!\d.)(?=(?:[ -]?+\d){{12}}+|{_GROUPED})(?=((?:{_CARD_MARK}{{0,6}}+\d){{12,18}}+))"
                    ),
                    164,
                ),
                _without_card,
            ),
        ),
    }
)


def is_named_secret(name: str, value: str) -> bool:
    """Say whether a member of an object is a secret that is known by its name alone, because it has no shape of its own."""
    return re.search(_KEY_NAME, name, re.IGNORECASE) is not None and (
        re.fullmatch(_KEY_OF_AWS, value.strip()) is not None
    )
