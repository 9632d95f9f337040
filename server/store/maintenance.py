"""The sweep of rows that nobody needs any more: in small pieces, by one node at a time.

Reads find them, which hold nobody up; each piece is then deleted by one small write, which checks the lease and the age again.
Which rows are over, and when, is retention.py's.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain, takewhile
from operator import methodcaller
from typing import Final, cast

import msgspec
import trio

from server.store import client_sweep, clock_doubt, meta_rows, reaping, task_leases
from server.store.audit_chain import REFUSED_STRANGERS
from server.store.clock_doubt import ClockDoubt
from server.store.jobs import Store, StoreDb, StoreError
from server.store.reaping import ClientPlace
from server.store.retention import DAY, PIECE, SWEPT, Retention, SweptTable
from server.store.task_leases import Lease, LeasedTable

CHORE: Final = "sweep"

# Keys that are read at once: a look may go through the whole table, so there are few of them.
FOUND: Final = 5_000

# Keys of one statement: each is a trip to the database, and all of a piece are one write, during which nobody else writes.
AT_ONCE: Final = 100

# Longer than any piece takes even on a slow disk; a node that dies is replaced after this.
LEASE_MILLIS: Final = 60_000

# Swept by the store itself, oldest first: its rows are a chain (`audit_chain.py`).
_AUDIT: Final = "audit"
_REFUSALS: Final = "audit_refusals"  # rows of the same table, out of its middle
# As much of the trail as one run sweeps, from its oldest row on: what a wrong clock that is believed takes in an hour.
_AUDIT_PER_RUN: Final = 3 * DAY
# Bounded in number rather than in age (`client_sweep.py`).
_DOCUMENT_CLIENTS: Final = "document_clients"
# With what is left of their logins (`reaping.py`).
_CLIENTS: Final = "clients"


class LeaseLost(Exception):
    """Another node sweeps now."""


async def sweep(
    store: Store, *, owner: str, clock: Callable[[], int], retention: Retention
) -> dict[str, int] | None:
    """Delete everything that is over; how many rows of each table, or None if another node is at it.

    May be cancelled between pieces: what is deleted stays deleted, and the lease is left to expire. Raises `StoreError`.
    """
    lease = await store.write(partial(_begin, owner=owner, now=clock()))
    if lease is None:
        return None
    swept: dict[str, int] = {}
    try:
        for each in SWEPT:
            swept[each.table] = await _sweep_table(store, each, lease, clock=clock, retention=retention)
        swept[_CLIENTS] = await _sweep_clients(store, lease, clock=clock, retention=retention)
        swept[_AUDIT] = await _sweep_audit(store, lease, clock=clock, kept=retention.audit)
        swept[_REFUSALS] = await _sweep_refusals(store, lease, clock=clock, kept=retention.audit_refusals)
        swept[_DOCUMENT_CLIENTS] = await _sweep_document_clients(store, lease, clock=clock)
    except LeaseLost:
        return None
    await store.write(partial(_finish, lease=lease, now=clock()))
    return swept


async def keep_sweeping(
    store: Store,
    *,
    owner: str,
    clock: Callable[[], int],
    retention: Retention,
    report: Callable[[dict[str, int] | ClockDoubt | StoreError], None],
    running: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = trio.sleep,
) -> None:
    """Sweep now and every `interval_seconds`, until cancelled. Refusals of the store are reported; the next sweep tries again.

    Nothing is swept while the clock is doubted, which is reported each time. `running` tells seconds, of a clock that nobody sets.
    """
    before = running()
    while True:
        try:
            since, before = before, running()
            ran = round((before - since) * 1_000)
            doubt = await store.write(partial(clock_doubt.advance, now=clock(), ran=ran))
            swept = doubt or await sweep(store, owner=owner, clock=clock, retention=retention)
        except StoreError as error:
            report(error)
        else:
            if swept is not None:
                report(swept)
        await sleep(retention.interval_seconds)


async def _sweep_table(
    store: Store, each: SweptTable, lease: Lease, *, clock: Callable[[], int], retention: Retention
) -> int:
    total = 0
    for end in range(len(each.ends)):
        # What was deleted just now is still read past in PostgreSQL: each look goes on where the one before ended.
        since: int | None = None
        while True:
            limits = each.limits(retention, clock())
            found = await store.read(partial(_find, sweep=each, end=end, limits=limits, since=since))
            for piece in range(0, len(found.keys), each.piece):
                some = found.keys[piece : piece + each.piece]
                delete = partial(_delete, sweep=each, keys=some, limits=limits)
                total += await store.write(partial(_while_ours, job=delete, lease=lease, now=clock()))
            if len(found.keys) < FOUND:
                break
            since = found.last
    return total


async def _sweep_audit(store: Store, lease: Lease, *, clock: Callable[[], int], kept: int) -> int:
    """Sweep from its oldest row on, where the chain itself knows to begin."""
    total = 0
    first = await store.read(lambda db: db.fetch_one("SELECT at FROM audit ORDER BY seq LIMIT 1"))
    while first is not None:
        now = clock()
        before = min(now - kept, first["at"] + _AUDIT_PER_RUN)
        if first["at"] > before:
            break
        delete = methodcaller("sweep_audit", before=before, at_most=PIECE)
        swept = await store.write(partial(_while_ours, job=delete, lease=lease, now=now))
        if not swept:
            break
        total += swept
    return total


async def _sweep_refusals(store: Store, lease: Lease, *, clock: Callable[[], int], kept: int) -> int:
    total, since, until = 0, 0, None
    while True:
        # Past what was deleted just now, which PostgreSQL would go through again.
        oldest = await store.read(lambda db, since=since: db.fetch_one(_OLDEST_REFUSAL, since))
        if oldest is None:
            return total
        since, now = oldest["at"], clock()
        until = since + _AUDIT_PER_RUN if until is None else until
        before = min(now - kept, until)
        if since > before:
            return total
        delete = methodcaller("sweep_refusals", since=since, before=before, at_most=PIECE)
        swept = await store.write(partial(_while_ours, job=delete, lease=lease, now=now))
        if not swept:
            return total
        total += swept


_OLDEST_REFUSAL: Final = f"SELECT at FROM audit WHERE {REFUSED_STRANGERS} AND at >= ? ORDER BY at LIMIT 1"


async def _sweep_clients(
    store: Store, lease: Lease, *, clock: Callable[[], int], retention: Retention
) -> int:
    total = 0
    for look in reaping.LOOKS:
        after: ClientPlace | None = None
        while True:
            now = clock()
            unused, idle = now - retention.clients_unused, now - retention.clients_idle
            over = {"unused": unused, "idle": idle, "now": now}
            found = await store.read(partial(reaping.find, look=look, after=after, **over))
            for piece in range(0, len(found.ids), reaping.PIECE):
                ids = found.ids[piece : piece + reaping.PIECE]
                delete = partial(reaping.delete, ids=ids, **over)
                total += await store.write(partial(_while_ours, job=delete, lease=lease, now=now))
            after = found.after
            if after is None:
                break
    return total


async def _sweep_document_clients(store: Store, lease: Lease, *, clock: Callable[[], int]) -> int:
    total = 0
    while True:
        now = clock()
        ids = await store.read(client_sweep.find)
        delete = partial(client_sweep.delete, ids=ids, before=now)
        if not ids or not (
            swept := await store.write(partial(_while_ours, job=delete, lease=lease, now=now))
        ):
            return total
        total += swept


def _begin(db: StoreDb, *, owner: str, now: int) -> Lease | None:
    db.execute(
        "INSERT INTO chores (name, lease_until, fence) VALUES (?, 0, 0) ON CONFLICT (name) DO NOTHING", CHORE
    )
    return task_leases.take(db, LeasedTable.CHORES, CHORE, owner=owner, now=now, millis=LEASE_MILLIS)


def _finish(db: StoreDb, *, lease: Lease, now: int) -> None:
    # The latest ever: a clock that begins in 1970 at every start would else make each right one look far ahead (`clock_doubt.py`).
    if task_leases.release(db, lease):
        db.execute(
            "UPDATE chores SET last_run_at = ? WHERE name = ? AND coalesce(last_run_at, 0) < ?",
            now,
            lease.key,
            now,
        )


class _Found(msgspec.Struct, frozen=True):
    keys: list[tuple[object, ...]]
    last: int | None  # the place of the last of them


def _find(db: StoreDb, *, sweep: SweptTable, end: int, limits: tuple[int, ...], since: int | None) -> _Found:
    place = () if since is None else (since,)
    if sweep.in_order:
        first = db.fetch_all(sweep.looked_for_first(further=since is not None), *place, FOUND)
        rows = list(takewhile(lambda row: row["ended"] <= limits[0], first))
    else:
        by = (limits[end],) * (2 if sweep.ends[end][0] in sweep.by else 1)
        sql = sweep.looked_for(end, further=since is not None)
        rows = db.fetch_all(sql, *by, *place, FOUND)
    keys = [tuple(row[column] for column in sweep.key) for row in rows]
    return _Found(keys, rows[-1]["place"] if rows else None)


def _while_ours(db: StoreDb, *, job: Callable[[StoreDb], int], lease: Lease, now: int) -> int:
    """Do a job of the sweep, if the lease is ours still; renew that. Raises `LeaseLost`."""
    if not task_leases.renew(db, lease, now=now, millis=LEASE_MILLIS):
        raise LeaseLost
    return job(db)


def _delete(
    db: StoreDb, *, sweep: SweptTable, keys: Sequence[tuple[object, ...]], limits: tuple[int, ...]
) -> int:
    deleted = 0
    # Keys of several columns go one by one: of many at once no engine says for sure that it goes by the key.
    at_once = AT_ONCE if len(sweep.key) == 1 else 1
    for start in range(0, len(keys), at_once):
        some = keys[start : start + at_once]
        deleted += db.execute(sweep.deleted(len(some)), *chain.from_iterable(some), *limits)
    if sweep.table == "changes":
        highest = max(cast("int", key[0]) for key in keys)
        known = int(meta_rows.get(db, meta_rows.CHANGES_DROPPED) or highest)
        meta_rows.put(db, meta_rows.CHANGES_DROPPED, str(max(highest, known)))
    return deleted
