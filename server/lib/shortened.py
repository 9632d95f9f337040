"""Words of others, cut to what a line of the log or a sentence has room for."""

from __future__ import annotations

from typing import Final

REASON_CHARACTERS: Final = 200
NAME_CHARACTERS: Final = 100


def short_reason(problem: object) -> str:
    """Return the beginning of what an exception says."""
    return str(problem)[:REASON_CHARACTERS]


def short_name(name: str) -> str:
    """Return the beginning of a name that somebody else chose."""
    return name[:NAME_CHARACTERS]
