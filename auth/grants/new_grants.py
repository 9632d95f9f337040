"""The beginning of a login, and going on with one that a client asks for again: what grant types do once they have decided."""

from __future__ import annotations

import msgspec

from auth.clients import client_registry as clients
from auth.grants import login_records
from auth.grants.token_request import GrantRequest, Issue, epoch
from auth.values import sealed_rows
from auth.values.database import Db, Row
from auth.values.entropy import Entropy
from auth.values.identity_model import Client, Millis, PrincipalKind


class GrantedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to let a client in without asking anybody."""

    server: str
    scope: str


class GrantTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a login."""

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


def begin(
    db: Db, client: Client, exchange: GrantRequest, terms: GrantTerms, grant_id: str | None = None
) -> Issue:
    """Add the row of a login, as part of a job that makes sure that this happens once, and records it."""
    now, who = exchange.now, exchange.requester
    if terms.kind == PrincipalKind.USER:
        login_records.make_room(db, terms.subject, most=exchange.policy.tokens.logins_per_person, now=now)
    row = {
        "id": grant_id or Entropy(exchange.seed).identifier("grt"),
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
    issued = go_on(db, client, exchange, row, ends_at=terms.ends_at, counter=1 if terms.refreshes else None)
    if client.authorized_at is None:
        db.execute(
            "UPDATE clients SET authorized_at = ? WHERE id = ? AND authorized_at IS NULL", now, client.id
        )
    return issued


def go_on(
    db: Db,
    client: Client,
    exchange: GrantRequest,
    row: Row,
    *,
    ends_at: Millis,
    auth_time: Millis | None = None,
    counter: int | None = None,
) -> Issue:
    """Give tokens for the login of this row, as part of a job."""
    clients.note_use(db, client, exchange.now)
    return Issue(
        grant_id=row["id"],
        subject=row["subject"],
        client_id=client.id,
        server=row["server"],
        scope=row["scope"],
        auth_time=row["auth_time"] if auth_time is None else auth_time,
        issued_at=exchange.now,
        ends_at=ends_at,
        counter=counter,
    )
