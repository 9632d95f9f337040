"""Leases with fences: who may work on a running row, and proof that it still may. Jobs.

The fence is a number that only grows. Taking a lease raises it, so whoever held it before can no longer write: every write of
an owner is conditional on owner and fence. A lease is taken only when free, or expired and its owner gone (`node_rows.py`): the clocks of
two machines differ, and a living owner loses nothing.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from server.store.jobs import StoreDb


class LeasedTable(Enum):
    """The tables with owner, lease_until and fence: name and key column. The only names that reach the SQL text."""

    CHORES = ("chores", "name")
    TASKS = ("tasks", "id_hash")


class Lease(msgspec.Struct, frozen=True):
    """What its holder shows with every write."""

    table: LeasedTable
    key: str
    owner: str  # boot id
    fence: int


def gone(column: str) -> str:
    """In SQL: whoever that column names is not alive (`node_rows.py`)."""
    return f"NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.boot_id = {column})"


def take(db: StoreDb, table: LeasedTable, key: str, *, owner: str, now: int, millis: int) -> Lease | None:
    """Take a free lease, or an expired one of one's own or of who is gone, until `now + millis`; None if somebody holds it, or there
    is no such row."""
    name, column = table.value
    taken = db.execute(
        f"UPDATE {name} SET owner = ?, lease_until = ?, fence = fence + 1"
        f" WHERE {column} = ? AND (owner IS NULL OR (lease_until <= ?"
        f" AND (owner = ? OR {gone(f'{name}.owner')})))",
        owner, now + millis, key, now, owner,
    )  # fmt: skip
    if not taken:
        return None
    row = db.fetch_one(f"SELECT fence FROM {name} WHERE {column} = ?", key)
    return None if row is None else Lease(table, key, owner, row["fence"])


def renew(db: StoreDb, lease: Lease, *, now: int, millis: int) -> bool:
    """Extend it, if it is still held; never shorten it. An expired one is lost even if nobody has taken it yet."""
    name, column = lease.table.value
    renewed = db.execute(
        f"UPDATE {name} SET lease_until = CASE WHEN lease_until > ? THEN lease_until ELSE ? END"
        f" WHERE {column} = ? AND owner = ? AND fence = ? AND lease_until > ?",
        now + millis, now + millis, lease.key, lease.owner, lease.fence, now,
    )  # fmt: skip
    return renewed == 1


def holds(db: StoreDb, lease: Lease, *, now: int) -> bool:
    """Whether it is still held. In the same job as the write that depends on it, nobody can come between."""
    name, column = lease.table.value
    sql = f"SELECT 1 AS held FROM {name} WHERE {column} = ? AND owner = ? AND fence = ? AND lease_until > ?"
    return db.fetch_one(sql, lease.key, lease.owner, lease.fence, now) is not None


def end_left(db: StoreDb) -> None:
    """Those of processes that are gone, whatever their time and the clock say. They run out rather than being released: what a dead
    process left is told from what was given back."""
    for table in LeasedTable:
        name = table.value[0]
        db.execute(
            f"UPDATE {name} SET lease_until = 0 WHERE lease_until > 0"
            f" AND (owner IS NULL OR {gone(f'{name}.owner')})"
        )


def release(db: StoreDb, lease: Lease) -> bool:
    """Give it back, if it is still this holder's. The fence stays, so a late write of this holder is refused too."""
    name, column = lease.table.value
    released = db.execute(
        f"UPDATE {name} SET owner = NULL, lease_until = 0 WHERE {column} = ? AND owner = ? AND fence = ?",
        lease.key, lease.owner, lease.fence,
    )  # fmt: skip
    return released == 1
