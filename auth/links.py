"""One-time links: a secret in a URL that works once, soon, and only by pressing its button (oauth.md §5.2, design §12.16).

Following a link shows a form and uses nothing up, so that a mail scanner or a preview cannot spend it; the POST does.
Only the SHA-256 of the token is stored. What a link lets its holder do is in users.py (claim).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from auth import audit
from auth.db import Db
from auth.model import Millis

CLAIM = "claim"

LIFETIME: Millis = (
    30 * 60 * 1_000
)  # long enough to walk to another device, short enough to be worthless in a log
TOKEN_BYTES = 24  # 192 bit in 32 characters; at least 128 are asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    kind: str
    user_id: str
    expires_at: Millis


def token_from(entropy: bytes) -> str:
    """The secret part of the link. `entropy` is `TOKEN_BYTES` from the system's generator."""
    if len(entropy) != TOKEN_BYTES:
        raise ValueError(f"a link needs {TOKEN_BYTES} random bytes")
    return base64.urlsafe_b64encode(entropy).decode()


def path_of(token: str) -> str:
    return f"/claim/{token}"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def make(db: Db, *, kind: str, user_id: str, token: str, now: Millis, by: str = "local:admin") -> Link:
    """A job: store a new link. Any earlier link of this kind for this user stops working."""
    db.execute("DELETE FROM one_time_links WHERE kind = ? AND user_id = ? AND used_at IS NULL", kind, user_id)
    link = Link(kind=kind, user_id=user_id, expires_at=now + LIFETIME)
    db.execute(
        "INSERT INTO one_time_links (token_hash, kind, user_id, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        _hash(token),
        kind,
        user_id,
        now,
        link.expires_at,
    )
    audit.record(db, at=now, event=f"{kind}.link_made", actor=audit.actor(by), reason=user_id)
    return link


def find(db: Db, *, kind: str, token: str, now: Millis) -> Link | None:
    """A job: the link, if it would still work. Looking uses nothing up."""
    row = db.fetch_one(
        "SELECT kind, user_id, expires_at FROM one_time_links"
        " WHERE token_hash = ? AND kind = ? AND used_at IS NULL AND expires_at > ?",
        _hash(token),
        kind,
        now,
    )
    return (
        None if row is None else Link(kind=row["kind"], user_id=row["user_id"], expires_at=row["expires_at"])
    )


def use(db: Db, *, kind: str, token: str, now: Millis) -> Link | None:
    """A job: use the link up and return it; None if it is unknown, over, or somebody was faster."""
    link = find(db, kind=kind, token=token, now=now)
    used = db.execute(
        "UPDATE one_time_links SET used_at = ?"
        " WHERE token_hash = ? AND kind = ? AND used_at IS NULL AND expires_at > ?",
        now,
        _hash(token),
        kind,
        now,
    )
    return link if used == 1 else None
