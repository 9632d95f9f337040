"""What a token is worth (RFC 7662), for resource servers that cannot or need not read it themselves.

Only clients that the operator has marked may ask, and they prove who they are. Whatever is not good now is answered with
`{"active": false}` and nothing else: why is nobody's business. An answer decides nothing, so it leaves no audit row; who was
refused does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from auth import audit, core, forms, replies, scopes
from auth.clients.registry import lookup
from auth.db import Db
from auth.errors import Refusal
from auth.grants import chain
from auth.grants.exchange import account, epoch
from auth.grants.refresh import Refuse, decide
from auth.keys.signatures import unpack
from auth.model import REFRESH_TOKEN, Client, Grant, Millis
from auth.policy import TokenPolicy
from auth.posted import Endpoint
from auth.site import Site
from auth.tokens import verify
from auth.tokens.live import read_live
from auth.tokens.verify import BadToken, Claims

if TYPE_CHECKING:
    from auth.forms import Form
    from auth.identity import Identity
    from auth.posted import Job
    from auth.requester import Requester
    from auth.wire import Reply


class Worth(msgspec.Struct, frozen=True):
    """The members besides `active`; None for a token that is worth nothing."""

    members: dict[str, Any] | None


NOTHING: Final = Worth(None)


async def _prepare(identity: Identity, form: Form, who: Requester, now: Millis) -> Job:
    asked = forms.introspect_form(form)
    await identity.reload_keys()
    link = chain.parse(identity.keys.refresh, asked.token, now)
    claims: Claims | None = None
    if link is None:
        try:
            claims = verify.read(asked.token, identity.site.issuer, identity.keys, now)
        except BadToken:
            claims = None

    def job(db: Db) -> Worth | Refusal:
        client = core.authenticate(db, asked.credentials, endpoint="introspection", requester=who, now=now)
        if isinstance(client, Refusal):
            return client
        if not client.introspects or client.public:
            return _not_for(db, client, who, now)
        if link is not None:
            return refresh_token_worth(db, link, site=identity.site, policy=identity.policy.tokens, now=now)
        if claims is not None:
            return access_token_worth(db, claims, asked.token, site=identity.site, now=now)
        return NOTHING

    return job


def _finish(identity: Identity, worth: Worth, who: Requester) -> Reply:
    del identity, who
    return replies.answer({"active": False} if worth.members is None else {"active": True, **worth.members})


ENDPOINT: Final = Endpoint(_prepare, _finish)


def access_token_worth(db: Db, claims: Claims, token: str, *, site: Site, now: Millis) -> Worth:
    """Part of a job: of a token whose signature and form are right, what its login is good for now."""
    live = read_live(db, claims.grant_id)
    sound = (
        live is not None
        and live.usable
        and now < live.ends_at
        and now < claims.expires_at * 1_000
        and (live.subject, live.client_id) == (claims.subject, claims.client_id)
        and claims.audience == site.audience(live.server)
    )
    if live is None or not sound:
        return NOTHING
    payload = json.loads(unpack(token.split(".")[1]))  # `verify.read` has checked it
    scope = scopes.narrow(payload["scope"], scopes.join(sorted(live.ceiling)))
    if not scope:
        return NOTHING
    return Worth(
        {
            "token_type": "Bearer" if claims.jkt is None else "DPoP",
            "token_use": "access_token",
            "scope": scope,
            "client_id": claims.client_id,
            "sub": claims.subject,
            "aud": claims.audience,
            "iss": site.issuer,
            "exp": claims.expires_at,
            "iat": payload["iat"],
            **_confirmation(claims.jkt),
        }
    )


def refresh_token_worth(db: Db, link: chain.Link, *, site: Site, policy: TokenPolicy, now: Millis) -> Worth:
    """Part of a job: of a token that we wrote, whether /token would take it now."""
    row = db.fetch_one("SELECT * FROM grants WHERE id = ?", link.grant_id)
    grant = None if row is None else Grant.of(row)
    client = None if grant is None else lookup(db, grant.client_id)
    if grant is None or client is None or not client.enabled or REFRESH_TOKEN not in client.grant_types:
        return NOTHING
    outcome = decide(
        grant,
        link.counter,
        client,
        None,
        "",
        account(db, grant.subject),
        served=site.audience(grant.server) is not None,
        current_epoch=epoch(db),
        now=now,
        policy=policy,
        jkt=grant.jkt,
    )
    if isinstance(outcome, Refuse):
        return NOTHING
    return Worth(
        {
            "token_use": "refresh_token",  # and no `token_type`: nothing but this server takes it
            "scope": outcome.scope,
            "client_id": grant.client_id,
            "sub": grant.subject,
            "aud": site.issuer,
            "iss": site.issuer,
            "exp": min(grant.idle_until, grant.expires_at) // 1_000,
            "iat": grant.rotated_at // 1_000,
            **_confirmation(grant.jkt),
        }
    )


def _confirmation(jkt: str | None) -> dict[str, Any]:
    """RFC 9449 §6.2: whoever shows it must prove this key, which is for the one who asks to see to."""
    return {} if jkt is None else {"cnf": {"jkt": jkt}}


def _not_for(db: Db, client: Client, who: Requester, now: Millis) -> Refusal:
    audit.record(
        db,
        at=now,
        event="token.introspected",
        actor=f"client:{client.id}",
        client_id=client.id,
        ip=who.ip,
        user_agent=who.user_agent,
        outcome="refused",
        reason="may not ask",
    )
    return Refusal(error="unauthorized_client", description="this client may not ask about tokens")
