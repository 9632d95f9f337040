"""What a caller may know of itself: whose login or key it uses, and how long that lasts. A job that only reads."""

from __future__ import annotations

import msgspec

from auth.tokens import api_keys
from auth.values import sealed_rows
from auth.values.database import Db
from auth.values.identity_model import OF_NOBODY, Grant, Millis, Principal, PrincipalKind


class CallerFacts(msgspec.Struct, frozen=True, kw_only=True):
    how: str = ""  # a login: device | code | client_credentials
    key_name: str = ""
    user_name: str = ""
    user_role: str = ""
    client_id: str = ""
    client_name: str = ""
    expires_at: Millis | None = None
    called_at: Millis | None = None  # the last call, to the minute


def about(db: Db, principal: Principal) -> CallerFacts:
    """Empty where there is nothing to tell: a static token is known to the settings alone."""
    if principal.kind is PrincipalKind.API_KEY:
        key = api_keys.find(db, principal.subject)
        if key is None:
            return CallerFacts()
        name, role = _user(db, key.user_id)
        ends = [end for end in (key.expires_at, key.user_ends_at) if end is not None]
        return CallerFacts(
            key_name=key.name,
            user_name=name,
            user_role=role,
            expires_at=min(ends) if ends else None,
            called_at=key.last_used_at,
        )
    row = db.fetch_one("SELECT * FROM grants WHERE id = ?", principal.grant_id)
    if row is None:
        return CallerFacts()
    grant = Grant.of(row)
    client = db.fetch_one("SELECT name FROM clients WHERE id = ?", grant.client_id)
    name, role = ("", "") if grant.principal_kind in OF_NOBODY else _user(db, grant.subject)
    return CallerFacts(
        how=grant.how,
        user_name=name,
        user_role=role,
        client_id=grant.client_id,
        client_name="" if client is None else client["name"],
        expires_at=grant.expires_at,
        called_at=grant.called_at,
    )


def _user(db: Db, user_id: str) -> tuple[str, str]:
    row = db.fetch_one("SELECT * FROM users WHERE id = ?", user_id)
    if row is None:
        return "", ""
    row = sealed_rows.checked(db, sealed_rows.USERS, row)
    return row["name"], row["role"]
