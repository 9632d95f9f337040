"""What commands of the admin socket read out of their arguments, each of them bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from server.admin.control import CommandRefused

LONGEST: Final = 512


def number(arguments: Mapping[str, Any], name: str) -> int | None:
    """Raises `CommandRefused`."""
    value = arguments.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise CommandRefused(f"{name} is a whole number")
    return value


def text(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str | None:
    """Raises `CommandRefused`."""
    value = arguments.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > longest:
        raise CommandRefused(f"{name} is a text of at most {longest} characters")
    return value


def line(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str:
    """One that people will read; empty where it is left out. Raises `CommandRefused`."""
    value = (text(arguments, name, longest) or "").strip()
    if not value.isprintable():
        raise CommandRefused(f"{name} is not printable")
    return value
