"""Readers of the arguments of commands, each of them bounded. They raise `CommandRefused`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY
from server.admin.control import CommandRefused

LONGEST: Final = 512


def number(arguments: Mapping[str, Any], name: str) -> int | None:
    value = arguments.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise CommandRefused(f"{name} is a whole number")
    return value


def text(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str | None:
    value = arguments.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > longest:
        raise CommandRefused(f"{name} is a text of at most {longest} characters")
    return value


def line(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str:
    """Read one that people will read; empty where it is left out."""
    value = (text(arguments, name, longest) or "").strip()
    if not value.isprintable():
        raise CommandRefused(f"{name} is not printable")
    return value


def needed_text(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value or len(value) > longest:
        raise CommandRefused(f"{name} is missing or too long")
    return value


def optional_text(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str | None:
    """Read one that is not empty, if it is there."""
    return None if arguments.get(name) is None else needed_text(arguments, name, longest)


def needed_line(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        raise CommandRefused(f"{name} is missing, too long, or not printable")
    return value.strip()


def optional_line(arguments: Mapping[str, Any], name: str, longest: int = LONGEST) -> str | None:
    return None if arguments.get(name) is None else needed_line(arguments, name, longest)


def texts(arguments: Mapping[str, Any], name: str, *, most: int, longest: int = LONGEST) -> tuple[str, ...]:
    value = cast("object", arguments.get(name))
    if value is None:
        return ()
    found = cast("list[object]", value) if isinstance(value, list) else [None]
    if len(found) > most or not all(isinstance(each, str) and len(each) <= longest for each in found):
        raise CommandRefused(f"{name} is a list of at most {most} texts of at most {longest} characters")
    return tuple(cast("list[str]", found))


def lasting(arguments: Mapping[str, Any], *, days: int, refused: str) -> Millis | None:
    """Read how long something lasts, of so many days at most; None for what never ends by itself, which must be said."""
    lasts, never = arguments.get("lasts_ms"), arguments.get("never") is True
    if never and lasts is None:
        return None
    if never or not isinstance(lasts, int) or isinstance(lasts, bool) or not 0 < lasts <= days * DAY:
        raise CommandRefused(refused)
    return lasts
