"""Meters: counts that have a limit. Quotas, budgets, free calls, trials, money spent. Jobs.

A meter is raised by one conditional write, which fails where the limit would be passed: however many calls race for the last unit, one
gets it. A call that comes to nothing lowers again whatever it has raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
# Each leaves a row for every tool and day, and who is not known may come from any number of addresses: further ones share a quota.
MOST_STRANGERS: Final = 5_000
STRANGERS: Final = "strangers"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)

_RAISE: Final = (
    "INSERT INTO meters (subject, period, amount, expires_at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (subject, period) DO UPDATE SET amount = meters.amount + excluded.amount"
    " WHERE meters.amount + excluded.amount <= ?"
)
_LOWER: Final = "UPDATE meters SET amount = amount - ? WHERE subject = ? AND period = ? AND amount >= ?"


class Period(msgspec.Struct, frozen=True):
    """A day or month of UTC, or all time."""

    name: str  # 2026-11, 2026-11-22, or ever
    ends_at: Millis
    expires_at: Millis  # of its meters

    def seconds_left(self, now: Millis) -> int:
        """Return in how many seconds the next one begins; at least one."""
        return max(1, -(-(self.ends_at - now) // 1000))


class Raised(msgspec.Struct, array_like=True, frozen=True):
    """A meter that was raised, and by how much: to be lowered if the call comes to nothing."""

    subject: str
    period: str
    by: int


def period_at(kind: PeriodKind, now: Millis) -> Period:
    """Return the period that `now` is in."""
    if kind == "ever":
        return Period("ever", NEVER, NEVER)
    moment = _EPOCH + timedelta(milliseconds=now)
    begin = datetime(moment.year, moment.month, moment.day if kind == "day" else 1, tzinfo=UTC)
    # Four days beyond the 28th is the next month, whichever it is.
    end = begin + timedelta(days=1) if kind == "day" else (begin + timedelta(days=32)).replace(day=1)
    name = begin.strftime("%Y-%m-%d" if kind == "day" else "%Y-%m")
    return Period(name, (end - _EPOCH) // _MILLI, (end + KEPT - _EPOCH) // _MILLI)


def raise_meter(db: StoreDb, subject: str, period: Period, by: int, limit: int) -> Raised | None:
    """Raise a meter. None: so much is not left, and nothing was raised."""
    if by > limit:
        return None
    done = db.execute(_RAISE, subject, period.name, by, period.expires_at, limit)
    return Raised(subject, period.name, by) if done == 1 else None


def lower(db: StoreDb, raised: Iterable[Raised]) -> None:
    """Give back what was raised. Once for each: who calls this knows that nobody else does."""
    for each in raised:
        db.execute(_LOWER, each.by, each.subject, each.period, each.by)


def read_meter(db: StoreDb, subject: str, period: Period) -> int:
    row = db.fetch_one("SELECT amount FROM meters WHERE subject = ? AND period = ?", subject, period.name)
    return 0 if row is None else row["amount"]


class CountedCallers:
    """The names under which callers are counted, with those of today who are not known."""

    def __init__(self, clock: Callable[[], Millis]) -> None:
        self._clock = clock
        self._strangers: set[str] = set()
        self._until = 0

    def name(self, who: str, *, known: bool) -> str:
        """Return the name of a caller's meters. `known`: they can be told from others wherever they call from."""
        if known:
            return who
        now = self._clock()
        if now >= self._until:
            self._strangers.clear()
            self._until = period_at("day", now).ends_at
        if who not in self._strangers:
            if len(self._strangers) >= MOST_STRANGERS:
                return STRANGERS
            self._strangers.add(who)
        return who
