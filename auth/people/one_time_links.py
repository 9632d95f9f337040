"""One-time links: a secret in a URL that works once, soon, and only by pressing its button.

Following a link shows a form and uses nothing up, so that a mail scanner or a preview cannot spend it; the POST does.
Only the SHA-256 of the token is stored. Acts that a link allows are in user_accounts.py (claim) and auth/administration/guest_accounts.py (accept an
invitation, set a new passphrase).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

import msgspec

from auth.audit import audit_trail
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import Limit
from auth.values import sealed_rows
from auth.values.database import Db, from_row
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY, MINUTE
from auth.values.requester import Requester

CLAIM: Final = "claim"  # the owner makes the server theirs
INVITE: Final = "invite"  # somebody new takes the account that was made for them
RESET: Final = "reset"  # somebody chooses a new passphrase
# What follows these in a path is a secret, and never for a log.
PATHS: Final = tuple(f"/{kind}/" for kind in (CLAIM, INVITE, RESET))

# Long enough to walk to another device, short enough to be worthless in a log.
LIFETIME: Final[Millis] = 30 * MINUTE
INVITED_FOR: Final[Millis] = 3 * DAY  # an invitation waits for somebody else's evening
INVITED_AT_MOST: Final[Millis] = 30 * DAY
TOKEN_BYTES: Final = 24  # 192 bit in 32 characters; at least 128 are asked for
MARK_CHARACTERS: Final = 24  # of a hash, to know a link by
TOKEN_CHARACTERS: Final = 64  # of what comes in a path; ours have 32

# Forms sent from the pages of links, right or wrong. Nobody guesses 192 bits, but each may cost a hash.
PER_NETWORK: Final = Limit(tries=30, window=10 * MINUTE)


class OneTimeLink(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    user_id: str
    expires_at: Millis


def token_from(entropy: bytes) -> str:
    """Make the secret part of the link. `entropy` is `TOKEN_BYTES` from the system's generator."""
    if len(entropy) != TOKEN_BYTES:
        raise ValueError(f"a link needs {TOKEN_BYTES} random bytes")
    return base64.urlsafe_b64encode(entropy).decode()


def path_of(token: str, kind: str = CLAIM) -> str:
    return f"/{kind}/{token}"


def token_of(path: str) -> str:
    """Return what stands in the place of a token in such a path."""
    return path.rpartition("/")[2][:TOKEN_CHARACTERS]


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def admit(db: Db, who: Requester, now: Millis) -> Millis:
    """Count a form from a link's page, as a job; return 0, or when this network may send the next one."""
    bucket = f"links:network:{who.network}"
    until = attempt_limits.closed_until(db, ((bucket, PER_NETWORK),), now)
    if not until:
        attempt_limits.count(db, bucket, now)
    return until


def make(
    db: Db,
    *,
    kind: str,
    user_id: str,
    token: str,
    now: Millis,
    lifetime: Millis = LIFETIME,
    by: str = "local:admin",
) -> OneTimeLink:
    """Store a new link, as a job. Any earlier link of this kind for this user stops working."""
    db.execute("DELETE FROM one_time_links WHERE kind = ? AND user_id = ? AND used_at IS NULL", kind, user_id)
    link = OneTimeLink(kind=kind, user_id=user_id, expires_at=now + lifetime)
    row = {
        "token_hash": _hash(token),
        "kind": kind,
        "user_id": user_id,
        "created_at": now,
        "expires_at": link.expires_at,
        "used_at": None,
    }
    sealed_rows.insert(db, sealed_rows.LINKS, row)
    audit_trail.record(db, now, f"{kind}.link_made", actor=audit_trail.actor(by), reason=user_id)
    return link


def find(db: Db, *, kind: str, token: str, now: Millis) -> OneTimeLink | None:
    """Find the link, as a job, if it would still work. Looking uses nothing up."""
    row = db.fetch_one(
        "SELECT * FROM one_time_links"
        " WHERE token_hash = ? AND kind = ? AND used_at IS NULL AND expires_at > ?",
        _hash(token),
        kind,
        now,
    )
    fits = row is not None and sealed_rows.fits(db, sealed_rows.LINKS, row)
    return from_row(OneTimeLink, row) if row is not None and fits else None


def newest(db: Db, user_id: str) -> str:
    """Return, as a job, what tells a person's newest link from any that is made later, and opens nothing; empty if there was none."""
    row = db.fetch_one(
        "SELECT token_hash FROM one_time_links WHERE user_id = ? ORDER BY created_at DESC, token_hash LIMIT 1",
        user_id,
    )
    return "" if row is None else row["token_hash"][:MARK_CHARACTERS]


def use(db: Db, *, kind: str, token: str, now: Millis) -> OneTimeLink | None:
    """Use the link up, as a job, and return it; None if it is unknown, over, or somebody was faster."""
    link = find(db, kind=kind, token=token, now=now)
    used = db.execute(
        f"UPDATE one_time_links SET used_at = ?, {sealed_rows.WIPED}"
        " WHERE token_hash = ? AND kind = ? AND used_at IS NULL AND expires_at > ?",
        now,
        _hash(token),
        kind,
        now,
    )
    return link if used == 1 else None
