"""Texts from elsewhere before they reach a console: nothing in them may steer a terminal or reorder what is read.

Two ways, for the same characters: `clean` is for people and leaves a mark, `escaped` is for what a program may read again and
writes them as JSON does. Whether a text is trusted or what it means is not known here.
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Controls (C0, DEL, C1), formats (the bidi ones among them), halves of characters, private ones, none at all, and two ends of lines.
_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARK: Final = "\N{REPLACEMENT CHARACTER}"


def clean(text: str, *, keep_lines: bool = False) -> str:
    """With a mark in place of each that steers, and a blank in place of any other white space."""
    if text.isprintable():  # no steering, and no white space but blanks
        return text
    return "".join(_plain(character, keep_lines) for character in text)


def _plain(character: str, keep_lines: bool) -> str:
    if character in ("\n", "\t") and keep_lines:
        return character
    if character.isspace():
        return " "
    return _MARK if unicodedata.category(character) in _STEERING else character


def escaped(text: str, *, keep: str = "") -> str:
    """With `\\u…` in place of each that steers, but for those in `keep`. JSON without line ends in it, or with `keep` for those
    between its parts, means the same afterwards."""
    if text.isprintable():
        return text
    return "".join(
        character if character in keep or _is_harmless(character) else _as_json(character)
        for character in text
    )


def _is_harmless(character: str) -> bool:
    return unicodedata.category(character) not in _STEERING


def _as_json(character: str) -> str:
    """RFC 8259 §7: beyond the basic plane, as two halves."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
