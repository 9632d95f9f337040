"""Logins as the people in charge see them: which live, and ending one. A revocation is known everywhere at its commit."""

from __future__ import annotations

from dataclasses import dataclass

from auth import audit
from auth.db import Db
from auth.grants.exchange import epoch
from auth.model import LIVE_USER_STATES, Grant, Millis

SHOWN = 1_000  # a page of logins; a private agent has tens


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    grant: Grant
    user_name: str
    registered_name: str  # what the operator calls the client; `grant.client_name` is what it called itself
    usable: bool  # False while its user or client is disabled


def sessions(db: Db, now: Millis) -> list[Login]:
    """Every login that is neither revoked nor over, last used first."""
    rows = db.fetch_all(
        "SELECT g.*, u.name AS user_name, u.state AS user_state, c.name AS registered_name, c.state AS client_state"
        " FROM grants g JOIN users u ON u.id = g.subject JOIN clients c ON c.id = g.client_id"
        " WHERE g.revoked_at IS NULL AND g.expires_at > ? AND g.idle_until > ? AND g.epoch = ?"
        " ORDER BY g.last_used_at DESC, g.id LIMIT ?",
        now,
        now,
        epoch(db),
        SHOWN,
    )
    return [
        Login(
            grant=Grant.of(row),
            user_name=row["user_name"],
            registered_name=row["registered_name"],
            usable=row["user_state"] in LIVE_USER_STATES and row["client_state"] == "enabled",
        )
        for row in rows
    ]


def revoke(db: Db, grant_id: str, *, reason: str, by: str, now: Millis) -> bool:
    """A job: end a login, its refresh chain and all its access tokens. False if there was nothing left to end."""
    ended = db.execute(
        "UPDATE grants SET revoked_at = ?, revoked_reason = ? WHERE id = ? AND revoked_at IS NULL",
        now,
        reason,
        grant_id,
    )
    if ended:
        db.changed("grant", grant_id)
        audit.record(
            db, at=now, event="grant.revoked", actor=audit.actor(by), grant_id=grant_id, reason=reason
        )
    return bool(ended)
