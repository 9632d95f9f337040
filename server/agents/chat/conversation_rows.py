"""Rows of conversations that several processes take part in, one for each. Jobs for the store."""

from __future__ import annotations

import msgspec

from auth.values.identity_model import Millis
from server.store.jobs import StoreDb


class KeptConversation(msgspec.Struct, frozen=True):
    version: int
    sealed: bytes | None  # None: whoever asked knows what is in this version


class ConversationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One that is to be kept. `owner_most`, `agent_most`: how many there may be, of its caller and at its agent."""

    id_hash: str
    agent: str
    owner: str
    sealed: bytes
    expires_at: Millis
    owner_most: int
    agent_most: int


def look_up(db: StoreDb, id_hash: str, *, known: int, now: Millis) -> KeptConversation | None:
    """`known`: the version that is known already; 0 for none."""
    row = db.fetch_one(
        "SELECT version, CASE WHEN version = ? THEN NULL ELSE sealed END AS sealed FROM conversations"
        " WHERE id_hash = ? AND expires_at > ?",
        known,
        id_hash,
        now,
    )
    return None if row is None else KeptConversation(row["version"], row["sealed"])


def keep(db: StoreDb, row: ConversationRow, *, known: int, now: Millis) -> KeptConversation:
    """What comes after version `known`, and which version that is. With something sealed: what somebody wrote meanwhile, and nothing is
    kept."""
    if known and db.execute(
        "UPDATE conversations SET version = version + 1, sealed = ?, used_at = ?, expires_at = ? WHERE id_hash = ? AND version = ?",
        row.sealed,
        now,
        row.expires_at,
        row.id_hash,
        known,
    ):
        return KeptConversation(known + 1, None)
    found = look_up(db, row.id_hash, known=0, now=now)
    if found is not None:
        return found
    db.execute("DELETE FROM conversations WHERE id_hash = ?", row.id_hash)  # one that is over
    for column, whose, most in (("owner", row.owner, row.owner_most), ("agent", row.agent, row.agent_most)):
        _make_room(db, column, whose, most)
    # Whoever still knows the one that was here before has no version of this one.
    version = max(known + 1, now)
    db.execute(
        "INSERT INTO conversations (id_hash, agent, owner, version, sealed, used_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        row.id_hash,
        row.agent,
        row.owner,
        version,
        row.sealed,
        now,
        row.expires_at,
    )
    return KeptConversation(version, None)


def _make_room(db: StoreDb, column: str, whose: str, most: int) -> None:
    """For one more: those go that were used least lately."""
    counted = db.fetch_one(f"SELECT COUNT(*) AS n FROM conversations WHERE {column} = ?", whose)
    assert counted is not None
    if (too_many := counted["n"] - most + 1) > 0:
        db.execute(
            f"DELETE FROM conversations WHERE id_hash IN (SELECT id_hash FROM conversations WHERE {column} = ? ORDER BY used_at LIMIT ?)",
            whose,
            too_many,
        )
