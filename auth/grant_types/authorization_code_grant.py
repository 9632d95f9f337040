"""Redeeming an authorization code (RFC 6749 §4.1.3, RFC 7636 §4.6): single use, and nothing is used up by a request that is wrong.

Asking for a code and agreeing to it are in auth/authorization/authorization_request.py and auth/pages/consent_decisions.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.authorization import pkce
from auth.authorization.authorization_codes import code_hash
from auth.clients import redirect_uris
from auth.grants import redeemed_codes
from auth.grants.new_grants import GrantTerms
from auth.grants.redeemed_codes import CodeKind, Redemption
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import Account, GrantRequest, Issue, TokenRefusal, account
from auth.values import scopes, sealed_rows
from auth.values.database import Db, from_row
from auth.values.identity_model import REFRESH_TOKEN, Client, Millis, PrincipalKind
from auth.values.issuer_and_resources import ForeignResource
from auth.values.oauth_errors import OAuthRefusal


class CodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that the decision looks at."""

    client_id: str
    state: str
    server: str
    redirect_uri: str
    challenge: str
    scope: str
    expires_at: Millis
    grant_id: str | None
    dpop_jkt: str | None = None


KIND: Final = CodeKind(
    table=sealed_rows.CODES,
    hash_column="code_hash",
    redeemable="live",
    name="authorization code",
    event="code.redeemed",
    texts={
        "invalid_request": "code_verifier is missing",
        "invalid_grant": "this code is not valid (any more), sign in again",
        "invalid_target": "the code was asked for another resource",
    },
)


def decide(
    code: CodeRow | None,
    form: TokenForm,
    client: Client,
    asked: str | ForeignResource | None,
    user: Account | None,
    *,
    served: bool,
    now: Millis,
    jkt: str | None = None,
) -> Redemption | TokenRefusal:
    """Decide, without side effects.

    `asked` is the server that the request's `resource` names; `served` whether the code's is still configured; `jkt` the key that the
    client has proven.
    """
    if code is None:
        return TokenRefusal(error="invalid_grant", reason="unknown code")
    if code.state == "used":
        return TokenRefusal(error="invalid_grant", reason="code used again", revoke=code.grant_id)
    if code.client_id != client.id:
        return TokenRefusal(error="invalid_grant", reason="code of another client")
    if now >= code.expires_at:
        return TokenRefusal(error="invalid_grant", reason="expired")
    # OAuth 2.1 §10.2 drops the parameter: the verifier, which every code needs, says more. Sent, it has to be right.
    if form.redirect_uri is not None and form.redirect_uri != code.redirect_uri:
        return TokenRefusal(error="invalid_grant", reason="another redirect address")
    if form.code_verifier is None:
        return TokenRefusal(error="invalid_request", reason="no verifier")
    if not pkce.fits(form.code_verifier, code.challenge):
        return TokenRefusal(error="invalid_grant", reason="wrong verifier")
    if code.dpop_jkt is not None and code.dpop_jkt != jkt:  # RFC 9449 §10
        return TokenRefusal(
            error="invalid_grant", reason="no proof of its key" if jkt is None else "another key"
        )
    if asked is not None and asked != code.server:
        return TokenRefusal(error="invalid_target", reason="another resource")
    if user is None or not user.may(now):
        return TokenRefusal(error="invalid_grant", reason="user not enabled")
    if not served:
        return TokenRefusal(error="invalid_grant", reason="server no longer configured")
    scope = scopes.narrow(scopes.narrow(code.scope, client.scope), user.scope)
    if not scope:
        return TokenRefusal(error="invalid_grant", reason="no scope left")
    return Redemption(scope=scope)


def redeem_code(db: Db, client: Client, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """Redeem a code, as a job, for a client that is authenticated, enabled, and registered for this grant type."""
    form, now = exchange.form, exchange.now
    if form.code is None:
        return OAuthRefusal(error="invalid_request", description="code is missing")
    row = redeemed_codes.find(db, KIND, code_hash(form.code))
    outcome = decide(
        None if row is None else from_row(CodeRow, row),
        form,
        client,
        redeemed_codes.asked_server(row, exchange),
        None if row is None else account(db, row["subject"]),
        served=redeemed_codes.is_served(row, exchange),
        now=now,
        jkt=exchange.jkt,
    )
    if row is None or isinstance(outcome, TokenRefusal):
        assert isinstance(outcome, TokenRefusal)
        return redeemed_codes.refuse(db, KIND, client, exchange, row, outcome)
    terms = GrantTerms(
        kind=PrincipalKind.USER,
        subject=row["subject"],
        how="code",
        redirect_host=redirect_uris.host_of(row["redirect_uri"]),
        server=row["server"],
        origin=row["origin"],
        scope=outcome.scope,
        approved_by=row["subject"],
        auth_time=row["auth_time"],
        ends_at=now + exchange.policy.tokens.code_login_ms,
        refreshes=REFRESH_TOKEN in client.grant_types,
    )
    return redeemed_codes.issue(db, KIND, client, exchange, row, terms)
