"""What a plain word of YAML stands for (YAML 1.2, §10.3: the core schema), and what escapes in double quotes do (§5.7)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

# A number of more digits is no number that anybody computes with: it stays the text that it is.
MAX_DIGITS: Final = 30

Scalar: TypeAlias = str | int | float | bool | None

_WORDS: Final[Mapping[str, Scalar]] = MappingProxyType(
    {
        "": None, "~": None, "null": None, "Null": None, "NULL": None,
        "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    }
)  # fmt: skip
_INTEGER: Final = re.compile(r"[-+]?[0-9]+").fullmatch
_OCTAL: Final = re.compile(r"0o[0-7]+").fullmatch
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+").fullmatch
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?").fullmatch

ESCAPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
        " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
    }
)  # fmt: skip
CODES: Final[Mapping[str, int]] = MappingProxyType({"x": 2, "u": 4, "U": 8})
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def plain(text: str) -> Scalar:
    """`yes`, `on` and dates are texts. What JSON has no number for (`.inf`, `.nan`, `1e999`) is a text as well."""
    if text in _WORDS:
        return _WORDS[text]
    if not text[0].isdigit() and text[0] not in "+-.":
        return text
    if len(text) > MAX_DIGITS:
        return text
    if _INTEGER(text):
        return int(text)
    if _OCTAL(text):
        return int(text[2:], 8)
    if _HEXADECIMAL(text):
        return int(text[2:], 16)
    if _FLOAT(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def coded(text: str, start: int, kind: str) -> str | None:
    """The character whose number follows `\\x`, `\\u` or `\\U` at `start`; None where none does."""
    digits = text[start : start + CODES[kind]]
    if len(digits) < CODES[kind] or not _DIGITS.issuperset(digits) or int(digits, 16) > 0x10FFFF:
        return None
    return chr(int(digits, 16))


def paired(text: str) -> str:
    """With every pair of surrogates made one character, as JSON writes it; half of one is none."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
