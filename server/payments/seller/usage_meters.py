"""Meters: counts that have a limit. Free calls, quotas, trials, money spent. Jobs.

A meter is raised by one conditional write, which fails where the limit would be passed: however many calls race for the last unit, one
gets it. What a call has raised goes with its charge, and is lowered again if the call comes to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from auth.values.identity_model import Millis
from server.store.jobs import StoreDb

PeriodKind: TypeAlias = Literal["day", "month", "ever"]

# A meter stays a while after its period, for those who look at what they have used, and for calls that end later.
KEPT: Final = timedelta(days=7)
# The end of the year 9999: nothing sweeps a trial that was used up.
NEVER: Final[Millis] = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_RAISE: Final = (
    "INSERT INTO meters (subject, period, amount, expires_at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (subject, period) DO UPDATE SET amount = meters.amount + excluded.amount"
    " WHERE meters.amount + excluded.amount <= ?"
)
_LOWER: Final = "UPDATE meters SET amount = amount - ? WHERE subject = ? AND period = ? AND amount >= ?"


class Period(msgspec.Struct, frozen=True):
    name: str  # 2026-11, 2026-11-22, or ever
    expires_at: Millis


class Raised(msgspec.Struct, array_like=True, frozen=True):
    """A meter that was raised, and by how much: to be lowered if the call comes to nothing."""

    subject: str
    period: str
    by: int


_decode: Final = msgspec.json.Decoder(tuple[Raised, ...]).decode


def period_at(kind: PeriodKind, now: Millis) -> Period:
    """The period of UTC that `now` is in."""
    if kind == "ever":
        return Period("ever", NEVER)
    day = _EPOCH + timedelta(milliseconds=now)
    begin = datetime(day.year, day.month, day.day if kind == "day" else 1, tzinfo=UTC)
    # Four days beyond the 28th is the next month, whichever it is.
    end = begin + timedelta(days=1) if kind == "day" else (begin + timedelta(days=32)).replace(day=1)
    name = begin.strftime("%Y-%m-%d" if kind == "day" else "%Y-%m")
    return Period(name, (end + KEPT - _EPOCH) // timedelta(milliseconds=1))


def raise_meter(db: StoreDb, subject: str, period: Period, by: int, limit: int) -> Raised | None:
    """None: so much is not left, and nothing was raised."""
    if by > limit:
        return None
    done = db.execute(_RAISE, subject, period.name, by, period.expires_at, limit)
    return Raised(subject, period.name, by) if done == 1 else None


def lower(db: StoreDb, raised: Iterable[Raised]) -> None:
    """Give back. Once for each: whoever calls this ends the charge in the same job, with a conditional write."""
    for each in raised:
        db.execute(_LOWER, each.by, each.subject, each.period, each.by)


def read_meter(db: StoreDb, subject: str, period: Period) -> int:
    row = db.fetch_one("SELECT amount FROM meters WHERE subject = ? AND period = ?", subject, period.name)
    return 0 if row is None else row["amount"]


def as_text(raised: Sequence[Raised]) -> str:
    """For the column of a charge."""
    return msgspec.json.encode(raised).decode() if raised else "[]"


def from_text(text: str) -> tuple[Raised, ...]:
    return _decode(text) if text != "[]" else ()
