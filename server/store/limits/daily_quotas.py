"""Quotas: so many calls on a day (UTC). Exact over restarts and processes, and no write for most calls.

The meter of a quota is raised by several at once, ahead of the calls that will use them up, and the rest is given back when the server
stops, and after a minute where other processes could use it: after a crash at most so many are lost to their caller, and never is one call
more let through."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import trio

from server.store.jobs import Store, StoreBroken, StoreDb, StoreError
from server.store.limits.usage_meters import (
    CountedCallers,
    Period,
    Raised,
    lower,
    period_at,
    raise_meter,
    read_meter,
)

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


def ahead_of(limit: int) -> int:
    """Return how many are raised at once: of a small quota each by itself."""
    return max(1, min(MOST_AHEAD, limit // _PART))


def raise_ahead(
    db: StoreDb, subject: str, day: Period, limit: int, most: int, returned: Sequence[Raised] = ()
) -> int:
    """Raise as many as there are left, up to `most`; a job. Giving back `returned` with it costs no write of its own."""
    lower(db, returned)
    by = min(most, limit - read_meter(db, subject, day))
    return by if by > 0 and raise_meter(db, subject, day, by, limit) else 0


class _Ahead:
    """The rest of the calls that were raised ahead for one caller."""

    __slots__ = ("asking", "day", "left", "used_at", "used_up_at")

    def __init__(self, day: Period) -> None:
        self.day: Final = day
        self.left = 0
        self.used_at: int | None = None
        self.asking: trio.Event | None = None  # while more is raised
        self.used_up_at: int | None = None


class Quotas:
    """All quotas of one process. `aclose` gives back what is left."""

    def __init__(self, store: Store, *, clock: Callable[[], int], shared: bool = False) -> None:
        """Begin with nothing raised. `shared`: others count with the same meters, so somebody calls `give_back_unused` now and then."""
        self._store = store
        self._clock = clock
        self._shared = shared
        self._ahead: OrderedDict[str, _Ahead] = OrderedDict()
        self._returned: list[Raised] = []  # with the next write
        self.callers: Final = CountedCallers(clock)

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
                return ahead.day.seconds_left(now)
            else:
                await self._raise(subject, ahead, limit)

    def put_back(self, subject: str) -> None:
        """Take back a call that was counted and came to nothing. That of another day is not missed."""
        ahead = self._ahead.get(subject)
        if ahead is not None and ahead.day.name == period_at("day", self._clock()).name:
            ahead.left += 1

    def let_go(self) -> None:
        """Forget quotas that are others now: what was raised ahead goes back with the next write, before more is raised."""
        for subject, ahead in self._ahead.items():
            self._forget(subject, ahead)
        self._ahead.clear()

    async def aclose(self) -> None:
        """Give back what is left, for the next process."""
        self.let_go()
        await self._write_returned()

    async def give_back_unused(self) -> None:
        """Give back what nobody used for a while. Raises `StoreError`, and tries it again the next time."""
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
                await self._store.write(partial(lower, raised=returned))
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
        ahead = self._ahead[subject] = _Ahead(period_at("day", now))
        return ahead

    def _forget(self, subject: str, ahead: _Ahead) -> None:
        if ahead.left > 0:
            self._returned.append(Raised(subject, ahead.day.name, ahead.left))
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
