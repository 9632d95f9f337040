"""The worth of a token (RFC 7662), for resource servers that cannot or need not read it themselves.

Only clients that the operator has marked may ask, and they prove who they are. Whatever is not good now is answered with
`{"active": false}` and nothing else: why is nobody's business. An answer decides nothing, so only refusals leave audit rows.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from auth.audit import audit_trail
from auth.clients.client_registry import lookup
from auth.context.identity_parts import Parts
from auth.endpoints import json_replies
from auth.endpoints.posted_forms import FormEndpoint, Job, by_client, known_token
from auth.grant_types.refresh_token_grant import decide
from auth.grants.refresh_tokens import ChainLink
from auth.grants.request_parameters import CheckedForm
from auth.grants.token_request import NOBODY, TokenRefusal, account, epoch
from auth.jose import jws
from auth.tokens.access_token_verifier import Claims
from auth.tokens.live_logins import read_live
from auth.values import scopes, sealed_rows
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import REFRESH_TOKEN, Client, Grant, Millis, PrincipalKind
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import TokenPolicy
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester


class TokenWorth(msgspec.Struct, frozen=True):
    """The members besides `active`; None for a token that is worth nothing."""

    members: dict[str, Any] | None


NOTHING: Final = TokenWorth(None)


async def _prepare(parts: Parts, form: CheckedForm, who: Requester, now: Millis) -> Job:
    token = form.need("token")
    found = await known_token(parts, token, now)

    def ask(db: Db, client: Client) -> TokenWorth | OAuthRefusal:
        if not client.introspects or client.public:
            return _not_for(db, client, who, now)
        match found:
            case ChainLink():
                return refresh_token_worth(db, found, site=parts.site, policy=parts.policy.tokens, now=now)
            case Claims():
                return access_token_worth(db, found, token, site=parts.site, now=now)
            case None:
                return NOTHING

    return by_client(form, "introspection", who, now, ask)


def _finish(parts: Parts, worth: TokenWorth, who: Requester) -> WireReply:
    del parts, who
    return json_replies.answer(
        {"active": False} if worth.members is None else {"active": True, **worth.members}
    )


ENDPOINT: Final = FormEndpoint(_prepare, _finish)


def access_token_worth(db: Db, claims: Claims, token: str, *, site: Site, now: Millis) -> TokenWorth:
    """Say, as part of a job, what the login of a token is good for now, whose signature and form are right."""
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
    payload = jws.members(token.split(".")[1])  # `access_token_verifier.read` has checked it
    scope = scopes.narrow(payload["scope"], scopes.join(sorted(live.ceiling)))
    if not scope and live.kind != PrincipalKind.PAYER:  # who paid has none to begin with
        return NOTHING
    return TokenWorth(
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


def refresh_token_worth(
    db: Db, link: ChainLink, *, site: Site, policy: TokenPolicy, now: Millis
) -> TokenWorth:
    """Say, as part of a job, whether /token would take a token that we wrote."""
    row = db.fetch_one("SELECT * FROM grants WHERE id = ?", link.grant_id)
    grant = None if row is None else Grant.of(sealed_rows.checked(db, sealed_rows.GRANTS, row))
    client = None if grant is None else lookup(db, grant.client_id)
    if grant is None or client is None or not client.enabled or REFRESH_TOKEN not in client.grant_types:
        return NOTHING
    outcome = decide(
        grant,
        link.counter,
        client,
        None,
        "",
        NOBODY if grant.principal_kind is PrincipalKind.PAYER else account(db, grant.subject),
        served=site.audience(grant.server) is not None,
        current_epoch=epoch(db),
        now=now,
        policy=policy,
        jkt=grant.jkt,
    )
    if isinstance(outcome, TokenRefusal):
        return NOTHING
    return TokenWorth(
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
    """Name the key that whoever shows the token must prove (RFC 9449 §6.2), which is for the one who asks to see to."""
    return {} if jkt is None else {"cnf": {"jkt": jkt}}


def _not_for(db: Db, client: Client, who: Requester, now: Millis) -> OAuthRefusal:
    audit_trail.record_client(db, now, "token.introspected", client.id, who, refused="may not ask")
    return OAuthRefusal(error="unauthorized_client", description="this client may not ask about tokens")
