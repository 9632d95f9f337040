"""Whether the clock may be believed when something is to be deleted for good because its time is over.

A clock that runs a year ahead, for five minutes, would have everything swept. So one that is far beyond the last sweep is doubted: nothing is
swept until the server has run for a day with it, in one go or in several. A server that was off for a month catches up after that day; a
clock that is right again meanwhile has erased nothing. What is over is refused all the same, by whatever the clock says.

Jobs. Who asks is maintenance.py, for the sweeping, and the server's loop that retires keys.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from server.store import meta_rows
from server.store.jobs import StoreDb

_HOUR: Final = 3_600_000
# A machine that is switched off for longer than this is rarer than one whose clock is wrong.
BEYOND_MILLIS: Final = 7 * 24 * _HOUR
TRIAL_MILLIS: Final = 24 * _HOUR
_TRIAL: Final = re.compile(r"(\d+):(\d+)")


class ClockDoubt(msgspec.Struct, frozen=True, kw_only=True):
    ahead_ms: int  # of the last sweep
    waits_ms: int  # so much longer the server has to run


class _Trial(NamedTuple):
    """Kept in `meta`, so that a machine that is switched off each night comes to an end with it."""

    at: int  # when it was looked at last, by the doubted clock
    ran: int

    def goes_on(self, now: int) -> bool:
        """A clock that jumped since is another one, and begins anew."""
        return self.at <= now <= self.at + BEYOND_MILLIS


_NONE: Final = _Trial(at=0, ran=0)


def look(db: StoreDb, *, now: int) -> ClockDoubt | None:
    """None: what is over may be deleted."""
    ahead = _ahead(db, now)
    if ahead <= BEYOND_MILLIS:
        return None
    trial = _trial(db)
    ran = trial.ran if trial.goes_on(now) else 0
    return None if ran >= TRIAL_MILLIS else ClockDoubt(ahead_ms=ahead, waits_ms=TRIAL_MILLIS - ran)


def advance(db: StoreDb, *, now: int, ran: int) -> ClockDoubt | None:
    """The same, after the server has run for so many more milliseconds, by a clock that nobody can set."""
    trial = _trial(db)
    if _ahead(db, now) <= BEYOND_MILLIS:
        if trial != _NONE:
            db.execute("DELETE FROM meta WHERE key = ?", meta_rows.CLOCK_TRIAL)
        return None
    total = trial.ran + min(ran, now - trial.at) if trial.goes_on(now) else 0
    meta_rows.put(db, meta_rows.CLOCK_TRIAL, f"{now}:{total}")
    return look(db, now=now)


def _ahead(db: StoreDb, now: int) -> int:
    """Of the last sweep, or of the start that made the database."""
    swept = db.fetch_one("SELECT max(last_run_at) AS at FROM chores")
    if swept is None or swept["at"] is None:
        swept = db.fetch_one("SELECT max(applied_at) AS at FROM schema_version")
    return 0 if swept is None or swept["at"] is None else now - swept["at"]


def _trial(db: StoreDb) -> _Trial:
    match = _TRIAL.fullmatch(meta_rows.get(db, meta_rows.CLOCK_TRIAL) or "")
    return _NONE if match is None else _Trial(at=int(match[1]), ran=int(match[2]))
