"""How many calls a rule allows: counted one by one in the store, by a conditional write that fails where the budget would be passed.

A meter of its own for each rule, caller and day, as quotas have one (server/store/limits/daily_quotas.py). Nothing is raised ahead, so nothing is lost
in a crash: budgets are for calls that matter singly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from server.store.jobs import Store, StoreDb
from server.store.limits.daily_quotas import MOST_STRANGERS, STRANGERS, Day, day_at

_TAKE: Final = (
    "INSERT INTO meters (subject, period, amount, expires_at) VALUES (?, ?, 1, ?)"
    " ON CONFLICT (subject, period) DO UPDATE SET amount = meters.amount + 1 WHERE meters.amount + 1 <= ?"
)
_PUT_BACK: Final = "UPDATE meters SET amount = amount - 1 WHERE subject = ? AND period = ? AND amount >= 1"


class TakenCall(msgspec.Struct, frozen=True):
    """One call of a budget, to be put back if it comes to nothing."""

    subject: str
    day: str


class UsedUp(msgspec.Struct, frozen=True):
    seconds: int  # until the budget opens again


class CallBudgets:
    def __init__(self, store: Store, *, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._strangers: set[str] = set()  # who have budgets of their own today
        self._strangers_until = 0

    def counted_as(self, who: str, *, known: bool) -> str:
        """Whoever is not known may come from any number of addresses, and each leaves rows: those beyond so many share."""
        if known:
            return who
        now = self._clock()
        if now >= self._strangers_until:
            self._strangers.clear()
            self._strangers_until = day_at(now).ends_at
        if who not in self._strangers:
            if len(self._strangers) >= MOST_STRANGERS:
                return STRANGERS
            self._strangers.add(who)
        return who

    async def take(self, subject: str, limit: int) -> TakenCall | UsedUp:
        """Raises `StoreUnavailable`."""
        now = self._clock()
        day = day_at(now)
        if await self._store.write(partial(_take, subject=subject, day=day, limit=limit)):
            return TakenCall(subject, day.name)
        return UsedUp(max(1, -(-(day.ends_at - now) // 1000)))

    async def put_back(self, taken: TakenCall) -> None:
        """Raises `StoreUnavailable`."""
        await self._store.write(partial(_put_back, taken=taken))


def _take(db: StoreDb, subject: str, day: Day, limit: int) -> bool:
    return db.execute(_TAKE, subject, day.name, day.expires_at, limit) == 1


def _put_back(db: StoreDb, taken: TakenCall) -> None:
    db.execute(_PUT_BACK, taken.subject, taken.day)
