"""The audit trail: one row for every decision of identity. Never a token, a code, a passphrase.

A poll that is merely still pending (or too early) decides nothing and leaves no row: a waiting terminal would fill the table.
"""

from __future__ import annotations

from typing import Final, Literal

from auth.values.db import AuditEntry, Db
from auth.values.model import Millis

KEY_PURPOSE: Final = "audit-chain"

Outcome = Literal["ok", "refused"]


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
    db.audit(AuditEntry(at, event, actor, client_id, grant_id, ip, user_agent, outcome, reason))
