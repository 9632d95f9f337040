"""The row of a new login: written by whatever grant type has just used up what it was given for."""

from __future__ import annotations

import msgspec

from auth.clients import client_registry as clients
from auth.grants import login_records
from auth.grants.token_request import GrantRequest, Issue, epoch
from auth.values import sealed_rows
from auth.values.database import Db
from auth.values.identity_model import Client, Millis, PrincipalKind


class GrantTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What was agreed."""

    kind: PrincipalKind
    subject: str
    how: str  # device | code | client_credentials | assertion | payment
    client_name: str = ""  # as claimed
    hostname: str = ""
    redirect_host: str = ""
    server: str
    origin: str
    scope: str
    approved_by: str
    auth_time: Millis
    ends_at: Millis
    refreshes: bool


def begin(db: Db, client: Client, exchange: GrantRequest, grant_id: str, terms: GrantTerms) -> Issue:
    """Part of a job: the caller has made sure that this happens once, and records it."""
    now, who = exchange.now, exchange.requester
    if terms.kind == PrincipalKind.USER:
        login_records.make_room(db, terms.subject, most=exchange.policy.tokens.logins_per_person, now=now)
    row = {
        "id": grant_id,
        "principal_kind": str(terms.kind),
        "subject": terms.subject,
        "client_id": client.id,
        "client_name": terms.client_name,
        "hostname": terms.hostname,
        "how": terms.how,
        "redirect_host": terms.redirect_host,
        "server": terms.server,
        "origin": terms.origin,
        "scope": terms.scope,
        "ip": who.ip,
        "last_ip": who.ip,
        "user_agent": who.user_agent,
        "approved_by": terms.approved_by,
        "auth_time": terms.auth_time,
        "created_at": now,
        "counter": 1,
        "epoch": epoch(db),
        "rotated_at": now,
        "last_used_at": now,
        "idle_until": min(now + exchange.policy.tokens.refresh_idle_ms, terms.ends_at),
        "expires_at": terms.ends_at,
        # RFC 9449 §5: a client that proves who it is may change its key, since its refresh token is worth nothing to others.
        "jkt": exchange.jkt if client.public else None,
        "revoked_at": None,
    }
    sealed_rows.insert(db, sealed_rows.GRANTS, row)
    clients.note_use(db, client, now)
    if client.authorized_at is None:
        db.execute(
            "UPDATE clients SET authorized_at = ? WHERE id = ? AND authorized_at IS NULL", now, client.id
        )
    return Issue(
        grant_id=grant_id,
        subject=terms.subject,
        client_id=client.id,
        server=terms.server,
        scope=terms.scope,
        auth_time=terms.auth_time,
        issued_at=now,
        ends_at=terms.ends_at,
        counter=1 if terms.refreshes else None,
    )
