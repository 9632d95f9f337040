"""Budgets of rules: how many calls a rule allows, counted one by one in meters, each of a rule, a caller and a day.

Nothing is raised ahead, as it is of quotas (server/store/limits/daily_quotas.py), so nothing is lost in a crash: budgets are for calls
that matter singly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from server.store.jobs import Store
from server.store.limits.usage_meters import CountedCallers, Raised, lower, period_at, raise_meter


class CallBudgets:
    """The budgets of all rules."""

    def __init__(self, store: Store, *, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self.callers = CountedCallers(clock)

    async def take(self, subject: str, limit: int) -> Raised | int:
        """Take one call, or return in how many seconds the budget opens again. Raises `StoreUnavailable`."""
        now = self._clock()
        day = period_at("day", now)
        job = partial(raise_meter, subject=subject, period=day, by=1, limit=limit)
        return await self._store.write(job) or day.seconds_left(now)

    async def put_back(self, taken: Raised) -> None:
        """Give back a call that came to nothing. Raises `StoreUnavailable`."""
        await self._store.write(partial(lower, raised=(taken,)))
