"""Reading `changes`: how a process learns what others revoked. Jobs; writing is `StoreDb.changed`."""

from __future__ import annotations

import msgspec

from server.store import meta_rows
from server.store.jobs import Change, StoreDb


class ChangePage(msgspec.Struct, frozen=True):
    changes: tuple[Change, ...]  # in order; the last one's seq is where the next page starts
    complete: bool  # False: some after `after_seq` are gone already, so drop every cached entity


def newest_change(db: StoreDb) -> int:
    """Where a process that starts with empty caches begins to read."""
    row = db.fetch_one("SELECT max(seq) AS seq FROM changes")
    newest = row["seq"] if row is not None else None
    return max(newest or 0, _dropped(db))


def read_changes(db: StoreDb, *, after_seq: int, limit: int = 1000) -> ChangePage:
    rows = db.fetch_all(
        "SELECT seq, kind, entity_id FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", after_seq, limit
    )
    found = tuple(Change(seq=row["seq"], kind=row["kind"], entity_id=row["entity_id"]) for row in rows)
    return ChangePage(found, complete=after_seq >= _dropped(db))


def _dropped(db: StoreDb) -> int:
    return int(meta_rows.get(db, meta_rows.CHANGES_DROPPED) or 0)
