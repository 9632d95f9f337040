"""Lengths of time and dates as people type them and are told them, read alike by every option: `90m`, `12h`, `30d`, `2w`, `30` (days), `2027-01-31`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from server.cli import terminal

NEVER: Final = "never"
DAY: Final = 86_400_000
ACCOUNT_DAYS: Final = 36_500  # a century: what is meant for ever is "never"
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
SHORTEST: Final = 60_000  # what lasts less is over before anybody can use it
UNITS: Final[Mapping[str, int]] = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY, "w": 7 * DAY, "": DAY}


def length(text: str) -> int | None:
    """Return milliseconds of `12h` or `30d`; a number alone is days. None for what is no length of time."""
    found = re.fullmatch(r"([0-9]{1,15})([smhdw]?)", text.strip().lower())
    return None if found is None else int(found[1]) * UNITS[found[2]]


def date(text: str) -> int | None:
    """Return milliseconds since 1970 of a date, which is its beginning, or a time, in this terminal's clock unless it says another."""
    try:
        return max(0, int(datetime.fromisoformat(text.strip()).timestamp() * 1_000))
    except (ValueError, OverflowError, OSError):
        return None


def moment(text: str) -> int:
    """Return milliseconds since 1970 of `2h` (ago), or of a date or time in this terminal's clock. Raise `Misuse`."""
    ago, at = length(text), date(text)
    if ago is not None:
        return max(0, now() - ago)
    if at is None:
        raise terminal.Misuse(f"{text!r} is no time", hint="2h, 7d, 2026-03-01 or 2026-03-01T12:00")
    return at


def of_when(command: Decorated) -> Decorated:
    """Add `--since` and `--until`, which the command is given as `moment` reads them."""
    for name, text in (
        ("--until", "before then"),
        ("--since", "from then on: 2h, 7d, 2026-03-01 or 2026-03-01T12:00"),
    ):
        command = click.option(name, metavar="WHEN", help=text, callback=_read_moment)(command)
    return command


def _read_moment(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None or context.resilient_parsing else moment(value)


def told(millis: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Write a moment in the time of this terminal."""
    return datetime.fromtimestamp(millis / 1000).astimezone().strftime(form)


def told_shortly(millis: int, clock: str = "%H:%M:%S") -> str:
    """Write a moment in the time of this terminal, with the year only where it is another."""
    this_year = told(millis, "%Y") == time.strftime("%Y")
    return told(millis, f"%d %b {clock}" if this_year else f"%d %b %Y {clock}")


def iso(millis: int, timespec: str = "milliseconds") -> str:
    """Write a moment for programs, in UTC."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec=timespec)


def now() -> int:
    return time.time_ns() // 1_000_000


def until(lasts: int | str | None, name: str = "lasts_ms") -> dict[str, Any]:
    """Return what a command of the server is told of a `TimeSpan`."""
    return {"never": lasts == NEVER, name: None if lasts == NEVER else lasts}


class TimeSpan(click.ParamType[Any]):
    """The type of an option that says how long something lasts from now on, or when it ends: milliseconds, or NEVER where that is allowed."""

    name = "time"

    def __init__(self, *, days: int, never: bool = True, clock: Callable[[], int] = now) -> None:
        self._days, self._never, self._clock = days, never, clock

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or (value == NEVER and self._never):
            return value
        lasts, end = length(value), date(value)
        if lasts is None and end is not None:
            lasts = end - self._clock()
            if lasts <= 0:
                self.fail(f"{value!r} is past", param, ctx)
        if lasts is None:
            forever = ", or never" if self._never else ""
            self.fail(
                f"{value!r} is no time: write 90m, 12h, 30d, 2w, a date like 2027-01-31{forever}", param, ctx
            )
        if lasts < SHORTEST:
            self.fail(f"{value!r} is too short: a minute at least", param, ctx)
        if lasts > self._days * DAY:
            forever = ", or never" if self._never else ""
            self.fail(f"{value!r} is too long: {self._days} days at most{forever}", param, ctx)
        return lasts


class Seconds(click.ParamType[Any]):
    """The type of an option that says how long to wait: a number alone is seconds here, as everywhere where programs wait."""

    name = "time"

    def __init__(self, *, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            seconds = float(value)
        except ValueError:
            millis = length(value)
            if millis is None:
                self.fail(f"{value!r} is no time: write 90, 90s or 5m", param, ctx)
            seconds = millis / 1_000
        if not self._shortest <= seconds <= self._longest:  # not a number is in no bounds, too
            self.fail(f"{value!r} is not from {self._shortest:g} to {self._longest:g} seconds", param, ctx)
        return seconds
