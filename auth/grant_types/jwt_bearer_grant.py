"""Redeeming what an identity provider says of a person (RFC 7523 §2.1, draft-ietf-oauth-identity-assertion-authz-grant §4.4): single
use, for whom the provider's list names, within what the provider, the client and the user may all have.

Nobody is asked here, so the client is one that has proven who it is. There is no refresh token (§4.4.3): the client brings another
assertion, and so the provider is asked again. One login has one row for as long as it goes on in this way. Reading assertions
and checking signatures are in auth/grants/identity_assertions.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from auth.clients import client_registry as clients
from auth.grants.identity_assertions import AssertedPerson, Unproven
from auth.grants.new_grants import GrantedAccess, GrantTerms, begin, go_on
from auth.grants.token_request import GrantRequest, Issue, TokenRefusal, epoch, record
from auth.providers import provider_sign_in as upstream
from auth.providers.provider_sign_in import ListedAccount, NotLetIn
from auth.values import scopes, sealed_rows
from auth.values.database import Db
from auth.values.identity_model import Client, Millis, PrincipalKind
from auth.values.issuer_and_resources import ForeignResource, Site
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import clean
from auth.values.scopes import Vocabulary

HOW: Final = "assertion"
EVENT: Final = "assertion.redeemed"
KINDS: Final = frozenset({"registered", "document"})  # of clients: not what registered itself a moment ago
RETRY_SECONDS: Final = 10


_TEXT: Final = {
    "unauthorized_client": "this client may not use this grant type",
    "invalid_grant": "the assertion lets nobody in here",
    "invalid_target": "the assertion is for another resource, or does not name the one that is asked for",
    "invalid_scope": "none of these scopes is left of what the assertion, the client and the user may have",
}


def server_of(said: Sequence[str], asked: Sequence[str], site: Site, origin: str) -> str | ForeignResource:
    """Return the one server that a token is to be for. An assertion that names none is for the default one, and no other."""
    named = {site.server_of(resource, (origin,)) for resource in said} if said else {site.default}
    wanted = site.choose(asked, (origin,))
    if None in named or isinstance(wanted, ForeignResource):
        return ForeignResource()
    if wanted is None and len(named) == 1:
        return named.pop() or ForeignResource()
    return wanted if wanted is not None and wanted in named else ForeignResource()


def decide(
    said: AssertedPerson,
    client: Client,
    listed: ListedAccount | NotLetIn,
    *,
    server: str | ForeignResource,
    asked: str,
    known: Vocabulary,
    now: Millis,
) -> GrantedAccess | TokenRefusal:
    """Decide, without side effects. `asked` is the request's own `scope`, which can only narrow."""
    if client.kind not in KINDS or client.public:
        # That the client is registered for this grant type was checked; a row that somebody else wrote is not enough.
        return TokenRefusal(
            error="unauthorized_client", reason="registered by itself, or without credentials"
        )
    if said.client_id != client.id:
        return TokenRefusal(error="invalid_grant", reason="made for another client")
    if isinstance(server, ForeignResource) or client.server not in (None, server):
        return TokenRefusal(error="invalid_target", reason="another resource")
    if isinstance(listed, NotLetIn):
        return TokenRefusal(error="invalid_grant", reason=listed.why)
    if not listed.user.may(now):
        return TokenRefusal(error="invalid_grant", reason="user not enabled")
    scope = granted_scope(said.scope, asked, client.scope, listed.user.scope, known)
    if not scope:
        return TokenRefusal(error="invalid_scope", reason="no scope left")
    return GrantedAccess(server=server, scope=scope)


def granted_scope(said: str | None, asked: str, client: str, user: str, known: Vocabulary) -> str:
    """Return what is granted; what moves money only where provider and client's ceiling both name it, since nobody is asked here."""
    wanted = known.asked(asked if scopes.parse(asked) else said or "", client)
    vouched = {name for name in scopes.parse(said or "") if name in known}
    if said is not None:
        wanted = scopes.narrow(wanted, scopes.join(sorted(vouched)))
    return known.unasked(scopes.narrow(wanted, user), vouched & set(scopes.parse(client)))


def redeem_assertion(db: Db, client: Client, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """Let a person in on their provider's word, as a job, for a client that is authenticated, enabled, and registered for this."""
    said, form, site, now = exchange.asserted, exchange.form, exchange.site, exchange.now
    if form.assertion is None or said is None:
        return OAuthRefusal(error="invalid_request", description="assertion is missing")
    if isinstance(said, Unproven):
        return _not_proven(db, client, exchange, said)
    listed = upstream.account_of(db, said.person, said.provider, now)
    outcome = decide(
        said,
        client,
        listed,
        server=server_of(said.resources, form.resources, site, exchange.requester.origin),
        asked=form.scope,
        known=site.scopes,
        now=now,
    )
    if isinstance(outcome, TokenRefusal):
        return _refuse(db, client, exchange, said, outcome)
    assert isinstance(listed, ListedAccount)
    # Nothing is used up by a request that is wrong. No client has such an id.
    if not clients.use_up(db, _by(said), said.jti_hash, said.expires_at):
        return _refuse(
            db, client, exchange, said, TokenRefusal(error="invalid_grant", reason="assertion used again")
        )
    upstream.remember(db, said.person, said.provider, listed, now)
    terms = GrantTerms(
        kind=PrincipalKind.USER,
        subject=listed.user.id,
        how=HOW,
        server=outcome.server,
        origin=exchange.requester.origin,
        scope=outcome.scope,
        approved_by=_by(said),
        auth_time=said.auth_time,
        ends_at=now + exchange.policy.tokens.access_ms,
        refreshes=False,
    )
    issue = _again(db, client, exchange, terms) or begin(db, client, exchange, terms)
    record(db, client, exchange, EVENT, reason=_about(said), grant_id=issue.grant_id)
    return issue


def _again(db: Db, client: Client, exchange: GrantRequest, terms: GrantTerms) -> Issue | None:
    """Go on with the row of the login that there is already, unless it was revoked or has run out."""
    now, ends_at = exchange.now, terms.ends_at
    row = db.fetch_one(
        "SELECT * FROM grants WHERE client_id = ? AND how = ? AND subject = ? AND server = ? AND scope = ?"
        " AND approved_by = ? AND revoked_at IS NULL AND expires_at > ? AND epoch = ? ORDER BY created_at, id LIMIT 1",
        client.id,
        HOW,
        terms.subject,
        terms.server,
        terms.scope,
        terms.approved_by,
        now,
        epoch(db),
    )
    if row is None:
        return None
    values = {
        "expires_at": ends_at,
        "idle_until": ends_at,
        "auth_time": terms.auth_time,
        "last_used_at": now,
        "last_ip": exchange.requester.ip,
    }
    if not sealed_rows.update(db, sealed_rows.GRANTS, row["id"], values, when={"revoked_at": None}, row=row):
        return None
    db.changed("grant", row["id"])
    return go_on(db, client, exchange, row, ends_at=ends_at, auth_time=terms.auth_time)


def _by(said: AssertedPerson) -> str:
    return f"idp:{said.provider.name}"


def _about(said: AssertedPerson) -> str:
    return f"{said.provider.name} {clean(said.person.subject, 100)}"


def _not_proven(db: Db, client: Client, exchange: GrantRequest, why: Unproven) -> OAuthRefusal:
    record(db, client, exchange, EVENT, refused=why.reason)
    waits = why.error == "temporarily_unavailable"
    return OAuthRefusal(
        error=why.error,
        description=f"assertion: {why.reason}",
        retry_after_seconds=RETRY_SECONDS if waits else None,
    )


def _refuse(
    db: Db, client: Client, exchange: GrantRequest, said: AssertedPerson, why: TokenRefusal
) -> OAuthRefusal:
    record(db, client, exchange, EVENT, refused=f"{_about(said)}: {why.reason}")
    return OAuthRefusal(error=why.error, description=_TEXT[why.error])
