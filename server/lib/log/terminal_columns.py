"""Texts in the columns of a terminal: how many one takes, and as much of it as fits."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

STYLING: Final = re.compile(r"\x1b\[[0-9;]*m")
_STYLED: Final = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)


def cells(text: str) -> int:
    """How many columns a terminal gives this text; our own styling takes none."""
    return sum(_columns_of(character) for character in STYLING.sub("", text))


def cut(text: str, room: int) -> str:
    """`text` in at most `room` columns, with its styling."""
    if cells(text) <= room:
        return text
    kept: list[str] = []
    left = room - 1
    for part in _STYLED.findall(text):
        if part.startswith("\x1b"):
            kept.append(part)
        elif _columns_of(part) <= left:
            kept.append(part)
            left -= _columns_of(part)
        else:
            left = 0
    return "".join(kept).rstrip() + "…"


def padded(text: str, room: int) -> str:
    """With blanks behind it, up to `room` columns; what is longer pushes the rest to the right."""
    return text + " " * (room - cells(text))


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
