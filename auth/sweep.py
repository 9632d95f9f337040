"""Forgetting what is over, in small chunks. Run now and then by whoever holds the chore's lease."""

from __future__ import annotations

from dataclasses import dataclass

from auth.db import Db
from auth.model import Millis
from auth.policy import DAY


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """How long finished things stay. A used device code must outlive its own lifetime, so that a replay is still seen."""

    device_codes_ms: int = 1 * DAY
    grants_ms: int = 30 * DAY  # an old refresh token of an ended login is then simply unknown
    audit_ms: int = 400 * DAY


def sweep(db: Db, now: Millis, *, keep: Retention, limit: int = 500) -> int:
    """A job: remove at most `limit` rows of each kind. How many went; call again while it is not zero."""
    gone = 0
    for table, key, condition, before in (
        ("device_codes", "id", "expires_at < ?", now - keep.device_codes_ms),
        ("grants", "id", "expires_at < ?", now - keep.grants_ms),
        ("audit", "seq", "at < ?", now - keep.audit_ms),
    ):
        gone += db.execute(
            f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {condition} LIMIT ?)",
            before,
            limit,
        )
    return gone
