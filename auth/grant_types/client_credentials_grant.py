"""A machine that acts for itself (RFC 6749 §4.4): a client that the operator has added for this, with a secret or a key.

Nobody is behind such a login, so its subject is the client under a name that no user can have. Each server and scope has one row,
which is used again: a token for every call must not become a row for every call. No refresh token (§4.4.3): the credentials are one.
"""

from __future__ import annotations

from auth.grants.new_grants import GrantedAccess, GrantTerms, begin, go_on
from auth.grants.token_request import GrantRequest, Issue, TokenRefusal, epoch, record
from auth.values import scopes, sealed_rows
from auth.values.database import Db
from auth.values.identity_model import Client, Millis, PrincipalKind
from auth.values.issuer_and_resources import ForeignResource
from auth.values.oauth_errors import OAuthRefusal
from auth.values.scopes import Vocabulary

HOW = "client_credentials"

_TEXT = {
    "unauthorized_client": "this client may not use this grant type",
    "invalid_target": "no such resource on this server",
    "invalid_scope": "none of these scopes exists for this client",
}


def subject_of(client: Client) -> str:
    """Return the subject of a machine's login. No user id has a colon."""
    return f"client:{client.id}"


def decide(
    client: Client, server: str | ForeignResource, scope: str, *, known: Vocabulary
) -> GrantedAccess | TokenRefusal:
    """Decide, without side effects. `server` is the one that the request means."""
    if client.kind != "registered" or client.public:
        # That the client is registered for this grant type was checked; a row that somebody else wrote is not enough.
        return TokenRefusal(
            error="unauthorized_client", reason="not added by the operator, or without credentials"
        )
    if isinstance(server, ForeignResource):
        return TokenRefusal(error="invalid_target", reason="another resource")
    granted = machine_scope(client, scope, known)
    if not granted:
        return TokenRefusal(error="invalid_scope", reason="no scope left")
    return GrantedAccess(server=server, scope=granted)


def machine_scope(client: Client, scope: str, known: Vocabulary) -> str:
    """Return what is granted; what moves money only if the request and the client's ceiling both name it, since nobody is asked."""
    named = set(scopes.parse(scope)) & set(scopes.parse(client.scope))
    return known.unasked(known.asked(scope, client.scope), named)


def grant(db: Db, client: Client, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """Let a machine in, as a job. The client is authenticated, enabled, and registered for this grant type."""
    site, form = exchange.site, exchange.form
    outcome = decide(
        client,
        site.meant(form.resources, (exchange.requester.origin,), client.server),
        form.scope,
        known=site.scopes,
    )
    if isinstance(outcome, TokenRefusal):
        record(db, client, exchange, "client_credentials.granted", refused=outcome.reason)
        return OAuthRefusal(error=outcome.error, description=_TEXT[outcome.error])
    issue = _again(db, client, exchange, outcome) or _first(db, client, exchange, outcome)
    # Nothing can be refreshed; it is in use as long as its last token lives.
    db.execute(
        "UPDATE grants SET last_used_at = ?, last_ip = ?, idle_until = ? WHERE id = ?",
        exchange.now,
        exchange.requester.ip,
        exchange.now + exchange.policy.tokens.access_ms,
        issue.grant_id,
    )
    record(db, client, exchange, "client_credentials.granted", reason=outcome.scope, grant_id=issue.grant_id)
    return issue


def _again(db: Db, client: Client, exchange: GrantRequest, granted: GrantedAccess) -> Issue | None:
    """Go on with the row that there is already, unless it was revoked."""
    row = db.fetch_one(
        "SELECT * FROM grants WHERE client_id = ? AND how = ? AND subject = ? AND server = ?"
        " AND scope = ? AND revoked_at IS NULL AND epoch = ? ORDER BY created_at, id LIMIT 1",
        client.id,
        HOW,
        subject_of(client),
        granted.server,
        granted.scope,
        epoch(db),
    )
    if row is None or not sealed_rows.fits(db, sealed_rows.GRANTS, row):
        return None
    ends_at = row["expires_at"]
    if ends_at < _end(exchange) - exchange.policy.tokens.device_login_ms // 2:
        # Seldom, because every process has to forget the end that it knows.
        ends_at = _end(exchange)
        if not sealed_rows.update(
            db, sealed_rows.GRANTS, row["id"], {"expires_at": ends_at}, when={"revoked_at": None}, row=row
        ):
            return None
        db.changed("grant", row["id"])
    return go_on(db, client, exchange, row, ends_at=ends_at)


def _first(db: Db, client: Client, exchange: GrantRequest, granted: GrantedAccess) -> Issue:
    terms = GrantTerms(
        kind=PrincipalKind.CLIENT,
        subject=subject_of(client),
        how=HOW,
        server=granted.server,
        origin=exchange.requester.origin,
        scope=granted.scope,
        approved_by=subject_of(client),
        auth_time=exchange.now,
        ends_at=_end(exchange),
        refreshes=False,
    )
    return begin(db, client, exchange, terms)


def _end(exchange: GrantRequest) -> Millis:
    tokens = exchange.policy.tokens
    return exchange.now + max(tokens.device_login_ms, 2 * tokens.access_ms)
