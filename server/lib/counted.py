"""A number with its noun, as a person reads it."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """Return `"1 call"` or `"2 calls"`."""
    said = f"{number:g}" if isinstance(number, float) else f"{number}"
    return f"{said} {noun}{'' if number == 1 else 's'}"
