"""What it costs to delete what is over from a table that is large: two hundred rows of the trail, and of the records of calls, by the program's
own sweep; and to look for programs that nobody uses among many that somebody does.

On PostgreSQL a deleted row stays where it was until it is vacuumed: so the same is done again behind those, and again after a VACUUM.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
import trio
from calls import Calls
from house import House, Tables
from pair import Ground, fill
from psycopg.conninfo import make_conninfo
from trail import Trail
from writer import opened

from auth.audit import audit_trail
from server.store import maintenance
from server.store.jobs import StoreDb
from server.store.retention import DAY, PIECE, SWEPT, Retention
from server.store.task_leases import Lease
from server.store.threaded_store import ThreadedStore

T = TypeVar("T")

FEW: Final = 100_000
MANY: Final = 1_000_000
LARGE: Final = 10_000_000
# Rows that one run deletes, of the smaller table a tenth: two days' worth, of the three that the trail is swept at once.
PART: Final = 10
PROGRAMS_FEW: Final = 100
PROGRAMS_MANY: Final = 100_000
YEAR: Final = 365 * DAY
# What the database would do by itself at some moment is done when it is measured.
BY_HAND: Final = ("ALTER TABLE audit SET (autovacuum_enabled = false)", "ALTER TABLE calls SET (autovacuum_enabled = false)")  # fmt: skip
CALLS: Final = next(each for each in SWEPT if each.table == "calls")


class Spent(NamedTuple):
    piece: float  # of so many rows as a write of the trail deletes, with the looks for them
    longest: float  # one write


def measure(ground: Ground) -> None:
    sheet = ground.sheet
    few_count, many_count = ground.many(FEW), ground.many(LARGE if ground.large else MANY)
    sheet.begin(f"{PIECE} rows deleted, of {few_count:,} → {many_count:,}")
    programs = (PROGRAMS_FEW, ground.many(PROGRAMS_MANY))
    found: list[tuple[dict[str, Spent], float]] = []
    for name, count, used in (("sweep_few", few_count, programs[0]), ("sweep_many", many_count, programs[1])):
        house = ground.house(name, "")
        for each in (Trail(count, begin=_now()).fill, Calls(count, 0).fill, partial(_programs, used)):
            fill(house, each)
        found.append(trio.run(_all_runs, house, few_count // PART))
    (few, look_few), (many, look_many) = found
    for what in many:
        sheet.add(what, few[what].piece, many[what].piece)
        sheet.add("  the longest write", few[what].longest, many[what].longest)
    sheet.group = f"programs in use: {programs[0]:,} → {programs[1]:,}"
    sheet.add("a sweep that finds none to delete", look_few, look_many)


async def _all_runs(house: House, rows: int) -> tuple[dict[str, Spent], float]:
    """What it took to delete so many rows of each table, each time; and in milliseconds, to find no program that is over."""
    found: dict[str, Spent] = {}
    times = ["", ", behind those"]
    with house.tables() as tables:
        key = house.subkey(tables)(audit_trail.KEY_PURPOSE)
        if house.parameters is not None:
            times.append(", after VACUUM")
            for statement in BY_HAND:
                tables.execute(statement)
    async with opened(house.home.database, house.parameters) as store:
        store.chain_audit(key)
        lease = await _lease(store)
        for when in times:
            if "VACUUM" in when:
                await trio.to_thread.run_sync(_vacuum, house)
            for what, sweep in (("trail", _sweep_trail), ("calls", _sweep_calls)):
                found[f"{what}{when}"] = await _timed(store, sweep, lease, rows)
        await _look_through(store, lease)
        return found, await _look_through(store, lease)


class Watched:
    """A store, and the longest that a write of it took."""

    def __init__(self, store: ThreadedStore) -> None:
        self.read = store.read
        self.longest = 0.0
        self._store = store

    async def write(self, job: Callable[[StoreDb], T]) -> T:
        begun = time.perf_counter()
        try:
            return await self._store.write(job)
        finally:
            self.longest = max(self.longest, time.perf_counter() - begun)


async def _timed(
    store: ThreadedStore, sweep: Callable[..., Awaitable[int]], lease: Lease, rows: int
) -> Spent:
    table = "audit" if sweep is _sweep_trail else "calls"
    last = await store.read(partial(_time_of, table=table, place=rows))
    watched, begun = Watched(store), time.perf_counter()
    deleted = await sweep(watched, lease, last)
    spent = time.perf_counter() - begun
    if deleted != rows:
        raise AssertionError(f"{rows} rows were over, and {deleted} are deleted")
    return Spent(piece=spent / rows * PIECE * 1e3, longest=watched.longest * 1e3)


async def _sweep_trail(store: Any, lease: Lease, last: int) -> int:
    now = _now()
    return await maintenance._sweep_audit(store, lease, clock=lambda: now, kept=now - last)  # pyright: ignore[reportPrivateUsage]


async def _sweep_calls(store: Any, lease: Lease, last: int) -> int:
    now = _now()
    retention = Retention(calls=now - last)
    return await maintenance._sweep_table(store, CALLS, lease, clock=lambda: now, retention=retention)  # pyright: ignore[reportPrivateUsage]


def _time_of(db: StoreDb, *, table: str, place: int) -> int:
    """A job: of the last of so many rows, from the first that is left."""
    row = db.fetch_one(f"SELECT at FROM {table} ORDER BY seq LIMIT 1 OFFSET ?", place - 1)
    assert row is not None
    return row["at"]


async def _lease(store: ThreadedStore) -> Lease:
    begin = partial(maintenance._begin, owner="scale", now=_now())  # pyright: ignore[reportPrivateUsage]
    lease = await store.write(begin)
    assert lease is not None
    return lease


def _vacuum(house: House) -> None:
    assert house.parameters is not None
    with psycopg.connect(make_conninfo("", **house.parameters), autocommit=True) as connection:
        connection.execute(b"VACUUM audit, calls")


def _programs(count: int, house: House, tables: Tables) -> None:
    """Registered a year ago, let in at once, and used today."""
    del house
    # What the server that made the house began, and has not ended.
    tables.execute("DELETE FROM chores")
    now = _now()

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(count):
            at = now - YEAR + number
            yield f"dyn_{number:020}", "dynamic", "An editor", "none", "", "", "", "enabled", at, at, now

    columns = (
        "id", "kind", "name", "auth_method", "grant_types", "redirect_uris", "scope", "state", "created_at", "authorized_at",
        "last_used_at",
    )  # fmt: skip
    tables.fill("clients", columns, rows())


async def _look_through(store: ThreadedStore, lease: Lease) -> float:
    begun = time.perf_counter()
    look = maintenance._sweep_clients(store, lease, clock=_now, retention=Retention())  # pyright: ignore[reportPrivateUsage]
    if await look:
        raise AssertionError("programs in use were swept")
    return (time.perf_counter() - begun) * 1e3


def _now() -> int:
    return time.time_ns() // 1_000_000
