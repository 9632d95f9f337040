"""The audit trail: one row for every decision of identity. Never a token, a code, a passphrase.

A poll that is merely still pending (or too early) decides nothing and leaves no row: a waiting terminal would fill the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from auth.db import Db, Row
from auth.model import Millis

Outcome = Literal["ok", "refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    seq: int
    at: Millis
    event: str
    actor: str
    client_id: str | None
    grant_id: str | None
    ip: str | None
    user_agent: str | None
    outcome: str
    reason: str


def actor(by: str) -> str:
    """`user:…`, `client:…`, `local:<uid>` as they are; a bare user id becomes `user:<id>`."""
    return by if ":" in by or by == "anonymous" else f"user:{by}"


def record(
    db: Db,
    *,
    at: Millis,
    event: str,
    actor: str = "anonymous",
    outcome: Outcome = "ok",
    reason: str = "",
    client_id: str | None = None,
    grant_id: str | None = None,
    ip: str | None = None,
    user_agent: str | None = None,
) -> None:
    db.execute(
        "INSERT INTO audit (at, event, actor, client_id, grant_id, ip, user_agent, outcome, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        at,
        event,
        actor,
        client_id,
        grant_id,
        ip,
        user_agent,
        outcome,
        reason,
    )


def read(db: Db, *, before: int | None = None, event: str | None = None, limit: int = 100) -> list[Entry]:
    """The newest entries first; page on with `before` the last `seq` seen."""
    conditions: list[str] = []
    values: list[object] = []
    if before is not None:
        conditions.append("seq < ?")
        values.append(before)
    if event is not None:
        conditions.append("event = ?")
        values.append(event)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = db.fetch_all(f"SELECT * FROM audit{where} ORDER BY seq DESC LIMIT ?", *values, min(limit, 1_000))
    return [_entry(row) for row in rows]


def _entry(row: Row) -> Entry:
    return Entry(
        seq=row["seq"],
        at=row["at"],
        event=row["event"],
        actor=row["actor"],
        client_id=row["client_id"],
        grant_id=row["grant_id"],
        ip=row["ip"],
        user_agent=row["user_agent"],
        outcome=row["outcome"],
        reason=row["reason"],
    )
