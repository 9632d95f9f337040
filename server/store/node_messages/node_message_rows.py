"""Jobs for the rows of messages between nodes, in the table `letters`; what a message says arrives and leaves sealed (node_messages.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from server.store.jobs import StoreDb

# Nearly every message is smaller, and comes with its row; what is larger is fetched by those whom it concerns.
SMALL_BYTES: Final = 4 * 1024
# Deleted in one go.
PIECE: Final = 500


class SealedNodeMessage(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    kind: str
    topic: str
    sealed: bytes


class NodeMessageRow(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    node: str
    kind: str
    topic: str
    sealed: bytes | None  # None: it is large


def put(
    db: StoreDb,
    messages: Sequence[SealedNodeMessage],
    *,
    node: str,
    now: int,
    before: int | None,
    in_doubt: bool = False,
) -> None:
    """Insert messages, and wake the other nodes.

    `before`: what this node wrote earlier has been read by all, and goes. Only its own, for clocks of others may be wrong.
    `in_doubt`: they may have been put in, with others, in one transaction.
    """
    if in_doubt and _is_there(db, messages[0]):
        return
    for message in messages:
        db.execute(
            "INSERT INTO letters (node, kind, topic, sealed, at) VALUES (?, ?, ?, ?, ?)",
            message.node,
            message.kind,
            message.topic,
            message.sealed,
            now,
        )
    db.wake_others()
    if before is not None:
        db.execute(
            "DELETE FROM letters WHERE seq IN (SELECT seq FROM letters WHERE at < ? AND node = ? ORDER BY at LIMIT ?)",
            before,
            node,
            PIECE,
        )


def _is_there(db: StoreDb, message: SealedNodeMessage) -> bool:
    sql = "SELECT 1 AS one FROM letters WHERE node = ? AND kind = ? AND topic = ? AND sealed = ?"
    return db.fetch_one(sql, message.node, message.kind, message.topic, message.sealed) is not None


def newest(db: StoreDb) -> int:
    row = db.fetch_one("SELECT max(seq) AS seq FROM letters")
    return 0 if row is None else row["seq"] or 0


def after(db: StoreDb, seq: int, *, limit: int) -> list[NodeMessageRow]:
    rows = db.fetch_all(
        "SELECT seq, node, kind, topic, CASE WHEN length(sealed) <= ? THEN sealed END AS sealed"
        " FROM letters WHERE seq > ? ORDER BY seq LIMIT ?",
        SMALL_BYTES,
        seq,
        limit,
    )
    return [NodeMessageRow(**row) for row in rows]


def whole(db: StoreDb, seq: int) -> bytes | None:
    """Return all that a message says, or None if it was deleted."""
    row = db.fetch_one("SELECT sealed FROM letters WHERE seq = ?", seq)
    return None if row is None else row["sealed"]
