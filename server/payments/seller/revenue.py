"""Revenue: what was earned today and this month (UTC's), by tool, less what was given back. And payments of which nobody knows what
became.

The ledger is only ever added to, so what was added up once is kept in memory and the next look goes on from there; the first one of a
process reads this month's movements, piece by piece."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
import trio

from auth.values.identity_model import Millis
from server.lib.money.amounts import Micros
from server.payments.seller import statements
from server.payments.seller.book_checks import newest
from server.store.jobs import Row, Store, StoreDb
from server.store.limits.usage_meters import period_at

_DAY: Final[Millis] = 86_400_000
_REVENUE: Final = "revenue:"
_BEYOND: Final = "revenue;"  # the first text after all that begin so
# Movements that one job looks at: some ten milliseconds of a reading thread.
STRETCH: Final = 20_000
# Tools that are shown: those that earned most.
TOOLS: Final = 100
MOST_ACCOUNTS: Final = 10_000

_ADDED_UP: Final = (
    "SELECT target AS account, at / 86400000 AS day, sum(amount) AS amount FROM movements"
    " WHERE seq BETWEEN ? AND ? AND target >= ? AND target < ? GROUP BY 1, 2"
    " UNION ALL SELECT source, at / 86400000, -sum(amount) FROM movements"
    " WHERE seq BETWEEN ? AND ? AND source >= ? AND source < ? GROUP BY 1, 2"
)


class ToolRevenue(msgspec.Struct, frozen=True, kw_only=True):
    tool: str  # server/tool
    today: Micros
    month: Micros
    ever: Micros


class Unsettled(msgspec.Struct, frozen=True, kw_only=True):
    """Payments that were sent, and have no outcome yet."""

    count: int
    unknown: int  # of them: nobody could say at the last look
    oldest_at: Millis | None


class RevenueNow(msgspec.Struct, frozen=True, kw_only=True):
    today: Micros
    month: Micros
    tools: tuple[ToolRevenue, ...]  # those that earned most this month first
    more: int
    unsettled: Unsettled


class Revenue:
    """The revenue of an installation. One per process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._month = ""
        self._seq = 0  # everything up to this movement is added up
        self._sums: dict[tuple[str, int], Micros] = {}  # by account and day
        self._lock = trio.Lock()

    async def look(self, now: Millis) -> RevenueNow:
        """Look at the revenue of now. Raises `StoreUnavailable`."""
        async with self._lock:  # whoever comes meanwhile would add the same up again
            await self._catch_up(now)
        return await self._store.read(partial(self._told, now=now, sums=dict(self._sums)))

    async def _catch_up(self, now: Millis) -> None:
        month = period_at("month", now).name
        if month != self._month:
            begin = await self._store.read(partial(_first_of, month_of=month))
            self._month, self._seq, self._sums = month, begin - 1, {}
        while True:
            piece = await self._store.read(partial(_added_up, after=self._seq))
            if piece is None:
                return
            self._seq, rows = piece
            for row in rows:
                key = (row["account"], row["day"])
                self._sums[key] = self._sums.get(key, 0) + row["amount"]

    def _told(self, db: StoreDb, *, now: Millis, sums: dict[tuple[str, int], Micros]) -> RevenueNow:
        today = now // _DAY
        first = next(day for day in range(today, today - 32, -1) if _month_of(day - 1) != _month_of(day))
        of_today: dict[str, Micros] = {}
        of_month: dict[str, Micros] = {}
        for (account, day), amount in sums.items():
            if day >= first:  # a clock that was set back leaves a day of before among them
                of_month[account] = of_month.get(account, 0) + amount
            if day == today:
                of_today[account] = of_today.get(account, 0) + amount
        every = statements.accounts(db, of_wallets=False, prefix=_REVENUE, after="", at_most=MOST_ACCOUNTS)
        tools = [
            ToolRevenue(
                tool=each.account.removeprefix(_REVENUE),
                today=of_today.get(each.account, 0),
                month=of_month.get(each.account, 0),
                ever=each.balance,
            )
            for each in every
        ]
        tools.sort(key=lambda each: (-each.month, -each.ever, each.tool))
        return RevenueNow(
            today=sum(of_today.values()),
            month=sum(of_month.values()),
            tools=tuple(tools[:TOOLS]),
            more=max(len(tools) - TOOLS, 0),
            unsettled=unsettled(db),
        )


def unsettled(db: StoreDb) -> Unsettled:
    """Count payments without an outcome; a job that reads."""
    row = db.fetch_one(
        "SELECT count(*) AS count, coalesce(sum(CASE WHEN state = 'unknown' THEN 1 ELSE 0 END), 0) AS unknown, min(created_at) AS oldest_at"
        " FROM payments WHERE state IN ('settling', 'unknown')"
    )
    assert row is not None  # an aggregate has a row
    return msgspec.convert(row, Unsettled)


def _month_of(day: int) -> str:
    return period_at("month", day * _DAY).name


def _first_of(db: StoreDb, *, month_of: str) -> int:
    """Return the number of the month's first movement, or the next one there will be. Movements are numbered in the order of their times,
    so halving finds it."""
    low, high = 1, newest(db) + 1
    while low < high:
        middle = (low + high) // 2
        row = db.fetch_one("SELECT at FROM movements WHERE seq = ?", middle)
        if row is None or period_at("month", row["at"]).name < month_of:
            low = middle + 1
        else:
            high = middle
    return low


def _added_up(db: StoreDb, *, after: int) -> tuple[int, list[Row]] | None:
    """Add up the next stretch: return up to which movement, and what it adds. None: there is no more."""
    last = newest(db)
    if last <= after:
        return None
    end = min(last, after + STRETCH)
    bounds = (after + 1, end, _REVENUE, _BEYOND)
    return end, db.fetch_all(_ADDED_UP, *bounds, *bounds)
