"""Redeeming what an identity provider says of a person (RFC 7523 §2.1, draft-ietf-oauth-identity-assertion-authz-grant §4.4): single
use, for whom the provider's list names, within what the provider, the client and the user may all have.

Nobody is asked here, so the client is one that has proven who it is. There is no refresh token (§4.4.3): the client brings another
assertion, and so the provider is asked again. One login has one row for as long as it goes on in this way. Reading assertions
and checking signatures are in auth/upstream/assertion.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from auth import scopes
from auth.clients import registry as clients
from auth.db import Db
from auth.entropy import Entropy
from auth.errors import Refusal
from auth.grants.begin import Terms, begin
from auth.grants.exchange import Exchange, Issue, epoch, record
from auth.model import Client, PrincipalKind
from auth.requester import clean
from auth.scopes import Vocabulary
from auth.site import Foreign, Site
from auth.upstream import sign_in as upstream
from auth.upstream.assertion import Asserted, Unproven
from auth.upstream.sign_in import Listed, NotLetIn

HOW: Final = "assertion"
EVENT: Final = "assertion.redeemed"
KINDS: Final = frozenset({"registered", "document"})  # of clients: not what registered itself a moment ago
RETRY_SECONDS: Final = 10


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    scope: str


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    error: str
    reason: str


_TEXT: Final = {
    "unauthorized_client": "this client may not use this grant type",
    "invalid_grant": "the assertion lets nobody in here",
    "invalid_target": "the assertion is for another resource, or does not name the one that is asked for",
    "invalid_scope": "none of these scopes is left of what the assertion, the client and the user may have",
}


def server_of(said: Sequence[str], asked: Sequence[str], site: Site, origin: str) -> str | Foreign:
    """The one server that a token is to be for. An assertion that names none is for the default one, and no other."""
    named = {site.server_of(resource, (origin,)) for resource in said} if said else {site.default}
    wanted = site.choose(asked, (origin,))
    if None in named or isinstance(wanted, Foreign):
        return Foreign()
    if wanted is None and len(named) == 1:
        return named.pop() or Foreign()
    return wanted if wanted is not None and wanted in named else Foreign()


def decide(
    said: Asserted,
    client: Client,
    listed: Listed | NotLetIn,
    *,
    server: str | Foreign,
    asked: str,
    known: Vocabulary,
    now: int,
) -> Grant | Refuse:
    """Pure. `asked` is the request's own `scope`, which can only narrow."""
    if client.kind not in KINDS or client.public:
        # That the client is registered for this grant type was checked; a row that somebody else wrote is not enough.
        return Refuse(error="unauthorized_client", reason="registered by itself, or without credentials")
    if said.client_id != client.id:
        return Refuse(error="invalid_grant", reason="made for another client")
    if isinstance(server, Foreign) or client.server not in (None, server):
        return Refuse(error="invalid_target", reason="another resource")
    if isinstance(listed, NotLetIn):
        return Refuse(error="invalid_grant", reason=listed.why)
    if not listed.user.may(now):
        return Refuse(error="invalid_grant", reason="user not enabled")
    scope = granted_scope(said.scope, asked, client.scope, listed.user.scope, known)
    if not scope:
        return Refuse(error="invalid_scope", reason="no scope left")
    return Grant(server=server, scope=scope)


def granted_scope(said: str | None, asked: str, client: str, user: str, known: Vocabulary) -> str:
    """What moves money only where the provider says so by name and the client's ceiling does, since nobody is asked here."""
    wanted = known.asked(asked if scopes.parse(asked) else said or "", client)
    vouched = {name for name in scopes.parse(said or "") if name in known}
    if said is not None:
        wanted = scopes.narrow(wanted, scopes.join(sorted(vouched)))
    found = set(scopes.parse(scopes.narrow(wanted, user)))
    named = vouched & set(scopes.parse(client))
    # In one order, so that the same scopes are the same row.
    return scopes.join(
        name for name in known.names if name in found and (not known.financial(name) or name in named)
    )


def redeem_assertion(db: Db, client: Client, exchange: Exchange) -> Issue | Refusal:
    """A job. The client is authenticated, enabled, and registered for this grant type."""
    said, form, site, now = exchange.asserted, exchange.form, exchange.site, exchange.now
    if form.assertion is None or said is None:
        return Refusal(error="invalid_request", description="assertion is missing")
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
    if isinstance(outcome, Refuse):
        return _refuse(db, client, exchange, said, outcome)
    assert isinstance(listed, Listed)
    # Nothing is used up by a request that is wrong. No client has such an id.
    if not clients.use_up(db, _by(said), said.jti_hash, said.expires_at):
        return _refuse(
            db, client, exchange, said, Refuse(error="invalid_grant", reason="assertion used again")
        )
    upstream.remember(db, said.person, said.provider, listed, now)
    issue = _again(db, client, exchange, said, listed.user.id, outcome) or _first(
        db, client, exchange, said, listed.user.id, outcome
    )
    record(db, client, exchange, EVENT, reason=_about(said), grant_id=issue.grant_id)
    return issue


def _again(
    db: Db, client: Client, exchange: Exchange, said: Asserted, user_id: str, granted: Grant
) -> Issue | None:
    """On the row of the login that there is already, unless it was revoked or has run out."""
    now, ends_at = exchange.now, exchange.now + exchange.policy.tokens.access_ms
    row = db.fetch_one(
        "SELECT id FROM grants WHERE client_id = ? AND how = ? AND subject = ? AND server = ? AND scope = ?"
        " AND approved_by = ? AND revoked_at IS NULL AND expires_at > ? AND epoch = ? ORDER BY created_at, id LIMIT 1",
        client.id,
        HOW,
        user_id,
        granted.server,
        granted.scope,
        _by(said),
        now,
        epoch(db),
    )
    if row is None:
        return None
    moved = db.execute(
        "UPDATE grants SET expires_at = ?, idle_until = ?, auth_time = ?, last_used_at = ?, last_ip = ?"
        " WHERE id = ? AND revoked_at IS NULL",
        ends_at,
        ends_at,
        said.auth_time,
        now,
        exchange.requester.ip,
        row["id"],
    )
    if not moved:
        return None
    db.changed("grant", row["id"])
    clients.note_use(db, client, now)
    return Issue(
        grant_id=row["id"],
        subject=user_id,
        client_id=client.id,
        server=granted.server,
        scope=granted.scope,
        auth_time=said.auth_time,
        issued_at=now,
        ends_at=ends_at,
        counter=None,
    )


def _first(db: Db, client: Client, exchange: Exchange, said: Asserted, user_id: str, granted: Grant) -> Issue:
    terms = Terms(
        kind=PrincipalKind.USER,
        subject=user_id,
        how=HOW,
        server=granted.server,
        origin=exchange.requester.origin,
        scope=granted.scope,
        approved_by=_by(said),
        auth_time=said.auth_time,
        ends_at=exchange.now + exchange.policy.tokens.access_ms,
        refreshes=False,
    )
    return begin(db, client, exchange, Entropy(exchange.seed).identifier("grt"), terms)


def _by(said: Asserted) -> str:
    return f"idp:{said.provider.name}"


def _about(said: Asserted) -> str:
    return f"{said.provider.name} {clean(said.person.subject, 100)}"


def _not_proven(db: Db, client: Client, exchange: Exchange, why: Unproven) -> Refusal:
    record(db, client, exchange, EVENT, refused=why.reason)
    waits = why.error == "temporarily_unavailable"
    return Refusal(
        error=why.error,
        description=f"assertion: {why.reason}",
        retry_after_seconds=RETRY_SECONDS if waits else None,
    )


def _refuse(db: Db, client: Client, exchange: Exchange, said: Asserted, why: Refuse) -> Refusal:
    record(db, client, exchange, EVENT, refused=f"{_about(said)}: {why.reason}")
    return Refusal(error=why.error, description=_TEXT[why.error])
