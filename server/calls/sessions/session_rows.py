"""What every node must know of a session that it takes up: where it is heard, what it watches, how much it wants to be told. Jobs.

A row for each session that listens or watches something, for as long as somebody uses it; of one caller as many as it may have sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from auth.values.identity_model import Millis
from server.store.jobs import StoreDb

# As long as a session that nobody uses is kept in memory, and some more: who uses it writes again before that.
KEPT_MS: Final = 2 * 3_600_000
# Of one caller, beyond what it may have, in one go.
_PIECE: Final = 64


class FactsRow(msgspec.Struct, frozen=True, kw_only=True):
    ended_until: Millis | None  # it was ended, and its id opens nothing from then on anyway
    log_level: str | None
    reader: str | None
    watches: Sequence[bytes]  # sealed


class FactsChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is another with a session than before. None: that is as it was."""

    id_hash: str
    caller: str
    log_level: str | None = None
    reads: bool | None = None  # whether its client listens at the node that writes this
    watches: Mapping[str, bytes | None] = msgspec.field(
        default_factory=dict[str, bytes | None]
    )  # by hash; None: no more
    over: bool = False


def look_up(db: StoreDb, id_hash: str, *, now: Millis) -> FactsRow:
    ended = db.fetch_one("SELECT expires_at FROM ended_sessions WHERE id_hash = ?", id_hash)
    if ended is not None:
        return FactsRow(ended_until=ended["expires_at"], log_level=None, reader=None, watches=())
    row = db.fetch_one(
        "SELECT log_level, reader FROM shared_sessions WHERE id_hash = ? AND expires_at > ?", id_hash, now
    )
    if row is None:
        return FactsRow(ended_until=None, log_level=None, reader=None, watches=())
    watches = db.fetch_all("SELECT sealed FROM session_watches WHERE id_hash = ?", id_hash)
    return FactsRow(
        ended_until=None,
        log_level=row["log_level"],
        reader=row["reader"],
        watches=tuple(each["sealed"] for each in watches),
    )


def write(db: StoreDb, changes: Sequence[FactsChange], *, node: str, per_caller: int, now: Millis) -> None:
    for change in changes:
        if change.over:
            db.execute("DELETE FROM shared_sessions WHERE id_hash = ?", change.id_hash)
        else:
            _write(db, change, node=node, per_caller=per_caller, now=now)


def _write(db: StoreDb, change: FactsChange, *, node: str, per_caller: int, now: Millis) -> None:
    db.execute(
        "INSERT INTO shared_sessions (id_hash, caller, log_level, reader, expires_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id_hash) DO UPDATE SET expires_at = excluded.expires_at,"
        " log_level = COALESCE(excluded.log_level, shared_sessions.log_level),"
        " reader = COALESCE(excluded.reader, shared_sessions.reader)",
        change.id_hash,
        change.caller,
        change.log_level,
        node if change.reads else None,
        now + KEPT_MS,
    )
    if change.reads is False:
        db.execute(
            "UPDATE shared_sessions SET reader = NULL WHERE id_hash = ? AND reader = ?", change.id_hash, node
        )
    for uri_hash, sealed in change.watches.items():
        if sealed is None:
            db.execute(
                "DELETE FROM session_watches WHERE id_hash = ? AND uri_hash = ?", change.id_hash, uri_hash
            )
        else:
            db.execute(
                "INSERT INTO session_watches (id_hash, uri_hash, sealed) VALUES (?, ?, ?)"
                " ON CONFLICT (id_hash, uri_hash) DO NOTHING",
                change.id_hash,
                uri_hash,
                sealed,
            )
    # Nothing worth a row is left of it, or the oldest of its caller's make room.
    db.execute(
        "DELETE FROM shared_sessions WHERE id_hash = ? AND reader IS NULL AND log_level IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM session_watches AS w WHERE w.id_hash = shared_sessions.id_hash)",
        change.id_hash,
    )
    db.execute(
        "DELETE FROM shared_sessions WHERE id_hash IN"
        " (SELECT id_hash FROM shared_sessions WHERE caller = ? ORDER BY expires_at DESC LIMIT ? OFFSET ?)",
        change.caller,
        _PIECE,
        per_caller,
    )
