"""Redeeming an authorization code (RFC 6749 §4.1.3, RFC 7636 §4.6): single use, and nothing is used up by a request that is wrong.

Asking for a code and agreeing to it are in auth/authorization/authorization_request.py and auth/pages/consent_decisions.py.
"""

from __future__ import annotations

import msgspec

from auth.authorization import pkce
from auth.authorization.authorization_codes import code_hash
from auth.clients import redirect_uris
from auth.grants.login_records import revoke
from auth.grants.new_grants import GrantTerms, begin
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import Account, GrantRequest, Issue, TokenRefusal, account, record
from auth.values import scopes, sealed_rows
from auth.values.database import Db, Row
from auth.values.entropy import Entropy
from auth.values.identity_model import REFRESH_TOKEN, Client, Millis, PrincipalKind
from auth.values.issuer_and_resources import ForeignResource
from auth.values.oauth_errors import OAuthRefusal


class CodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What of a row the decision looks at."""

    client_id: str
    state: str
    server: str
    redirect_uri: str
    challenge: str
    scope: str
    expires_at: Millis
    grant_id: str | None
    dpop_jkt: str | None = None


class CodeRedemption(msgspec.Struct, frozen=True, kw_only=True):
    scope: str


_TEXT = {
    "invalid_request": "code_verifier is missing",
    "invalid_grant": "this code is not valid (any more), sign in again",
    "invalid_target": "the code was asked for another resource",
}


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
) -> CodeRedemption | TokenRefusal:
    """Pure. `asked` is the server that the request's `resource` names; `served` whether the code's is still configured; `jkt`
    the key that the client has proven."""
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
    return CodeRedemption(scope=scope)


def redeem_code(db: Db, client: Client, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """A job. The client is authenticated, enabled, and registered for this grant type."""
    form = exchange.form
    if form.code is None:
        return OAuthRefusal(error="invalid_request", description="code is missing")
    row = db.fetch_one("SELECT * FROM authorization_codes WHERE code_hash = ?", code_hash(form.code))
    if row is not None and not sealed_rows.fits(db, sealed_rows.CODES, row):
        row = None
    here = exchange.requester.origin
    outcome = decide(
        None if row is None else _code(row),
        form,
        client,
        # A login may go on under another loopback name than it began.
        exchange.site.choose(form.resources, (here,) if row is None else (here, row["origin"])),
        None if row is None else account(db, row["subject"]),
        served=row is not None and exchange.site.audience(row["server"]) is not None,
        now=exchange.now,
        jkt=exchange.jkt,
    )
    if row is None or isinstance(outcome, TokenRefusal):
        assert isinstance(outcome, TokenRefusal)
        return _refuse(db, client, exchange, row, outcome)
    return _issue(db, client, exchange, row, outcome.scope)


def _issue(db: Db, client: Client, exchange: GrantRequest, row: Row, scope: str) -> Issue | OAuthRefusal:
    now = exchange.now
    grant_id = Entropy(exchange.seed).identifier("grt")
    won = db.execute(
        f"UPDATE authorization_codes SET state = 'used', grant_id = ?, {sealed_rows.WIPED}"
        " WHERE id = ? AND state = 'live' AND expires_at > ?",
        grant_id,
        row["id"],
        now,
    )
    if won != 1:  # somebody else was faster, and holds the login
        return _refuse(
            db,
            client,
            exchange,
            row,
            TokenRefusal(error="invalid_grant", reason="code used at the same moment"),
        )
    terms = GrantTerms(
        kind=PrincipalKind.USER,
        subject=row["subject"],
        how="code",
        redirect_host=redirect_uris.host_of(row["redirect_uri"]),
        server=row["server"],
        origin=row["origin"],
        scope=scope,
        approved_by=row["subject"],
        auth_time=row["auth_time"],
        ends_at=now + exchange.policy.tokens.code_login_ms,
        refreshes=REFRESH_TOKEN in client.grant_types,
    )
    issue = begin(db, client, exchange, grant_id, terms)
    record(db, client, exchange, "code.redeemed", reason=row["id"], grant_id=grant_id)
    return issue


def _refuse(
    db: Db, client: Client, exchange: GrantRequest, row: Row | None, why: TokenRefusal
) -> OAuthRefusal:
    known = "" if row is None else row["id"]
    record(
        db, client, exchange, "code.redeemed", refused=f"{known} {why.reason}".lstrip(), grant_id=why.revoke
    )
    if why.revoke is not None:
        revoke(
            db, why.revoke, reason="authorization code used again", by=f"client:{client.id}", now=exchange.now
        )
    return OAuthRefusal(error=why.error, description=_TEXT[why.error])


def _code(row: Row) -> CodeRow:
    return CodeRow(
        client_id=row["client_id"],
        state=row["state"],
        server=row["server"],
        redirect_uri=row["redirect_uri"],
        challenge=row["challenge"],
        scope=row["scope"],
        expires_at=row["expires_at"],
        grant_id=row["grant_id"],
        dpop_jkt=row["dpop_jkt"],
    )
