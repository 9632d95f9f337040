"""Quotas: so many calls on a day (UTC). Exact over restarts and processes, and no write for most calls.

A quota is a meter in the store, raised by one conditional write that fails where it would pass its limit. It is raised by several at
once, ahead of the calls that will use them up, and what was not used is given back when the server stops, and after a minute where other
processes could use it: after a crash at most so many are lost to their caller, and never is one call more let through.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import trio

from server.store.jobs import Store, StoreBroken, StoreDb, StoreError

# A twentieth of a quota at a time, and no more than this: what a crash may cost a caller.
MOST_AHEAD: Final = 50
_PART: Final = 20
# What nobody used for so long is there for other processes again, and who comes that seldom has each call counted by itself.
UNUSED_MILLIS: Final = 60_000
_GIVEN_BACK_AT_ONCE: Final = 200
# Callers of whom something is held ahead, times tools. Of one more, what the one held longest has left is given back.
_HELD: Final = 10_000
# One that was used up is not asked for again at once: only where another process gives some back, it has more.
_USED_UP_MILLIS: Final = 5_000
# Each leaves a row for every tool and day, and who is not known may come from any number of addresses: further ones share a quota.
MOST_STRANGERS: Final = 5_000
STRANGERS: Final = "strangers"
# As of other meters: for whoever looks at what they have used.
_KEPT: Final = timedelta(days=7)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)

_RAISE: Final = (
    "INSERT INTO meters (subject, period, amount, expires_at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (subject, period) DO UPDATE SET amount = meters.amount + excluded.amount"
    " WHERE meters.amount + excluded.amount <= ?"
)
_LOWER: Final = "UPDATE meters SET amount = amount - ? WHERE subject = ? AND period = ? AND amount >= ?"


class Day(msgspec.Struct, frozen=True):
    name: str  # 2026-11-22
    ends_at: int  # milliseconds
    expires_at: int  # of its meters


class GivenBack(msgspec.Struct, frozen=True):
    """What was raised ahead and not used."""

    subject: str
    day: str
    by: int


def day_at(now: int) -> Day:
    moment = _EPOCH + timedelta(milliseconds=now)
    ends = datetime(moment.year, moment.month, moment.day, tzinfo=UTC) + timedelta(days=1)
    return Day(moment.strftime("%Y-%m-%d"), (ends - _EPOCH) // _MILLI, (ends + _KEPT - _EPOCH) // _MILLI)


def ahead_of(limit: int) -> int:
    """How many are raised at once: of a small quota each by itself."""
    return max(1, min(MOST_AHEAD, limit // _PART))


def raise_ahead(
    db: StoreDb, subject: str, day: Day, limit: int, most: int, returned: tuple[GivenBack, ...] = ()
) -> int:
    """A job: as many as there are left, up to `most`. What is returned with it costs no write of its own."""
    give_back(db, returned)
    row = db.fetch_one("SELECT amount FROM meters WHERE subject = ? AND period = ?", subject, day.name)
    by = min(most, limit - (0 if row is None else row["amount"]))
    if by <= 0:
        return 0
    return by if db.execute(_RAISE, subject, day.name, by, day.expires_at, limit) == 1 else 0


def give_back(db: StoreDb, returned: tuple[GivenBack, ...]) -> None:
    """A job."""
    for each in returned:
        db.execute(_LOWER, each.by, each.subject, each.day, each.by)


class _Ahead:
    """What one caller has left of what was raised."""

    __slots__ = ("asking", "day", "left", "used_at", "used_up_at")

    def __init__(self, day: Day) -> None:
        self.day: Final = day
        self.left = 0
        self.used_at: int | None = None
        self.asking: trio.Event | None = None  # while more is raised
        self.used_up_at: int | None = None


class Quotas:
    """Of one process. `aclose` gives back what is left."""

    def __init__(self, store: Store, *, clock: Callable[[], int], shared: bool = False) -> None:
        """`shared`: others count with the same meters, so somebody calls `give_back_unused` now and then."""
        self._store = store
        self._clock = clock
        self._shared = shared
        self._ahead: OrderedDict[str, _Ahead] = OrderedDict()
        self._returned: list[GivenBack] = []  # with the next write
        self._strangers: set[str] = set()  # who have a quota of their own today
        self._strangers_until = 0

    def stranger(self, who: str) -> str:
        """Under which name somebody is counted who is not known."""
        now = self._clock()
        if now >= self._strangers_until:
            self._strangers.clear()
            self._strangers_until = day_at(now).ends_at
        if who not in self._strangers:
            if len(self._strangers) >= MOST_STRANGERS:
                return STRANGERS
            self._strangers.add(who)
        return who

    async def take(self, subject: str, limit: int) -> int:
        """Count one: 0, or in how many seconds there are some again, and then it was not counted. Raises `StoreUnavailable`."""
        while True:
            now = self._clock()
            ahead = self._of(subject, now)
            if ahead.left > 0:
                ahead.left -= 1
                ahead.used_at = now
                return 0
            if ahead.asking is not None:
                await ahead.asking.wait()
            elif ahead.used_up_at is not None and 0 <= now - ahead.used_up_at < _USED_UP_MILLIS:
                return max(1, -(-(ahead.day.ends_at - now) // 1000))
            else:
                await self._raise(subject, ahead, limit)

    def put_back(self, subject: str) -> None:
        """One that was counted, and came to nothing. Of another day it is not missed."""
        ahead = self._ahead.get(subject)
        if ahead is not None and ahead.day.name == day_at(self._clock()).name:
            ahead.left += 1

    def let_go(self) -> None:
        """Quotas are others now: what was raised ahead of the old ones goes back with the next write, before more is raised."""
        for subject, ahead in self._ahead.items():
            self._forget(subject, ahead)
        self._ahead.clear()

    async def aclose(self) -> None:
        """What is left is there for the next process."""
        self.let_go()
        await self._write_returned()

    async def give_back_unused(self) -> None:
        """What nobody used for a while is there for other processes. Raises `StoreError`, and tries it again the next time."""
        now = self._clock()
        for subject, ahead in self._ahead.items():
            if now < ahead.day.ends_at and _seldom(ahead, now):
                self._forget(subject, ahead)
        await self._write_returned()

    async def _write_returned(self) -> None:
        while self._returned:
            returned = tuple(self._returned[:_GIVEN_BACK_AT_ONCE])
            del self._returned[: len(returned)]
            try:
                await self._store.write(partial(give_back, returned=returned))
            except StoreBroken:  # as in _raise
                raise
            except (StoreError, trio.Cancelled):
                self._returned += returned
                raise

    def _of(self, subject: str, now: int) -> _Ahead:
        ahead = self._ahead.get(subject)
        if ahead is not None and now < ahead.day.ends_at:
            return ahead
        self._ahead.pop(subject, None)  # what is left of yesterday's is worth nothing
        while len(self._ahead) >= _HELD:
            self._forget(*self._ahead.popitem(last=False))
        ahead = self._ahead[subject] = _Ahead(day_at(now))
        return ahead

    def _forget(self, subject: str, ahead: _Ahead) -> None:
        if ahead.left > 0:
            self._returned.append(GivenBack(subject, ahead.day.name, ahead.left))
            ahead.left = 0

    async def _raise(self, subject: str, ahead: _Ahead, limit: int) -> None:
        asked = ahead.asking = trio.Event()
        returned, self._returned = tuple(self._returned), []
        most = 1 if self._shared and _seldom(ahead, self._clock()) else ahead_of(limit)
        try:
            job = partial(
                raise_ahead, subject=subject, day=ahead.day, limit=limit, most=most, returned=returned
            )
            raised = await self._store.write(job)
        except StoreBroken:  # it may be written: given back a second time it would be more than there is
            raise
        except (StoreError, trio.Cancelled):
            self._returned += returned  # nothing was written
            raise
        finally:
            ahead.asking = None
            asked.set()
        ahead.used_up_at = None if raised else self._clock()
        ahead.left += raised
        if self._ahead.get(subject) is not ahead:  # it was forgotten meanwhile
            self._forget(subject, ahead)


def _seldom(ahead: _Ahead, now: int) -> bool:
    return ahead.used_at is not None and now - ahead.used_at >= UNUSED_MILLIS
