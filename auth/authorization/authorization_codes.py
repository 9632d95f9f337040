"""Authorization codes (RFC 6749 §4.1.2): what one stands for, written down. Redeeming it is in grant_types/authorization_code_grant.py.

256 bits that leave in a redirect; the row holds their SHA-256 and everything that the code is bound to.
"""

from __future__ import annotations

import hashlib

from auth.authorization.authorization_request import WantedAccess
from auth.values import sealed_rows
from auth.values.database import Db
from auth.values.entropy import Entropy
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE
from auth.values.requester import Requester

# A page that sends a signed-in browser round and round must not fill the table: nobody signs in to thirty programs in a minute.
PER_USER_AND_MINUTE = 30


def code_hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def too_many(db: Db, user_id: str, now: Millis) -> bool:
    row = db.fetch_one(
        "SELECT COUNT(*) AS n FROM authorization_codes WHERE subject = ? AND created_at > ?",
        user_id,
        now - MINUTE,
    )
    return row is not None and row["n"] >= PER_USER_AND_MINUTE


def issue(
    db: Db,
    wanted: WantedAccess,
    *,
    subject: str,
    auth_time: Millis,
    scope: str,
    entropy: Entropy,
    who: Requester,
    lives_ms: Millis,
    now: Millis,
) -> tuple[str, str]:
    """Part of a job: the id of a new row, for the audit trail, and its code."""
    code, code_id = entropy.token(), entropy.identifier("oac")
    row = {
        "id": code_id,
        "code_hash": code_hash(code),
        "client_id": wanted.client_id,
        "subject": subject,
        "server": wanted.server,
        "origin": who.origin,
        "redirect_uri": wanted.redirect_uri,
        "challenge": wanted.challenge,
        "dpop_jkt": wanted.dpop_jkt,
        "scope": scope,
        "ip": who.ip,
        "user_agent": who.user_agent,
        "auth_time": auth_time,
        "state": "live",
        "created_at": now,
        "expires_at": now + lives_ms,
    }
    sealed_rows.insert(db, sealed_rows.CODES, row)
    return code_id, code
