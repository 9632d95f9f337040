"""Refreshing (RFC 6749 §6): one row per grant, a counter, and a window in which the same token gives the same successor.

Clients race: several processes share one stored token and use it at the same moment. A strict one-time rule logs people out;
"the previous stays valid until the next is used" would let a thief and a victim leapfrog unseen. The window's end is what
tells them apart.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.clients import client_registry as clients
from auth.grants import refresh_tokens
from auth.grants.login_records import revoke
from auth.grants.token_request import (
    NO_EPOCH,
    NOBODY,
    REFRESH_EPOCH,
    Account,
    GrantRequest,
    Issue,
    TokenRefusal,
    record,
)
from auth.values import scopes, sealed_rows
from auth.values.database import Db, Row
from auth.values.identity_model import Client, Grant, Millis, PrincipalKind
from auth.values.issuer_and_resources import ForeignResource
from auth.values.limits_and_lifetimes import TokenPolicy
from auth.values.oauth_errors import OAuthRefusal

_GRANT: Final = (
    f"SELECT grants.*, {sealed_rows.USERS.of('users', 'user_')},"
    " (SELECT value FROM meta WHERE key = ?) AS current_epoch"
    " FROM grants LEFT JOIN users ON users.id = grants.subject WHERE grants.id = ?"
)

# On an engine with parallel writers a rotation may lose to another once; the second look then finds a replay or the end.
ATTEMPTS: Final = 3


class Contended(Exception):
    """A grant changed under every attempt to rotate it. Nothing was written; the client may ask again."""


class Rotate(msgspec.Struct, frozen=True, kw_only=True):
    scope: str  # of the access token; the grant keeps its own


class RepeatedRefresh(msgspec.Struct, frozen=True, kw_only=True):
    """The token before the current one, soon after its use: the same successor again, and a fresh access token."""

    scope: str


_TEXT = {
    "invalid_grant": "this refresh token is not valid (any more), sign in again",
    "invalid_target": "the login is for another resource",
    "invalid_scope": "more than this login was granted",
}


def decide(
    grant: Grant | None,
    counter: int,
    client: Client,
    asked: str | ForeignResource | None,
    scope: str,
    user: Account | None,
    *,
    served: bool,
    current_epoch: str,
    now: Millis,
    policy: TokenPolicy,
    jkt: str | None = None,
) -> Rotate | RepeatedRefresh | TokenRefusal:
    """Pure. `counter` is that of a token whose MAC was right; `asked` and `served` as for device codes. `jkt`: the key proven."""
    if grant is None:
        return TokenRefusal(error="invalid_grant", reason="unknown grant")
    if grant.client_id != client.id:
        return TokenRefusal(error="invalid_grant", reason="grant of another client")
    if grant.jkt is not None and grant.jkt != jkt:
        # Before anything that could end the login: without its key the token is nothing that somebody could use twice.
        return TokenRefusal(
            error="invalid_grant", reason="no proof of its key" if jkt is None else "another key"
        )
    if grant.revoked_at is not None:
        return TokenRefusal(error="invalid_grant", reason="grant is revoked")
    if grant.epoch != current_epoch:
        return TokenRefusal(error="invalid_grant", reason="grant of an earlier epoch")
    if now >= grant.expires_at or now >= grant.idle_until:
        return TokenRefusal(error="invalid_grant", reason="login is over")
    if counter > grant.counter:
        # Only a store that went back in time, or a stolen key, makes these. Ending the login would punish the restored.
        return TokenRefusal(error="invalid_grant", reason="counter from the future", event="refresh.future")
    repeated = counter == grant.counter - 1 and now <= grant.rotated_at + policy.replay_window_ms
    if counter < grant.counter and not repeated:
        return TokenRefusal(
            error="invalid_grant", reason="used before", event="refresh.reuse", revoke=grant.id
        )
    if user is None or not user.may(now):
        return TokenRefusal(error="invalid_grant", reason="user not enabled")
    if not served:
        return TokenRefusal(error="invalid_grant", reason="server no longer configured")
    if asked is not None and asked != grant.server:
        return TokenRefusal(error="invalid_target", reason="another resource")
    wanted = scopes.parse(scope)
    if not all(scopes.covers(scopes.parse(grant.scope), one) for one in wanted):
        return TokenRefusal(error="invalid_scope", reason="wider scope")
    given = scopes.narrow(scopes.narrow(scopes.join(wanted) or grant.scope, client.scope), user.scope)
    if not given and grant.principal_kind != PrincipalKind.PAYER:  # who paid has none to begin with
        return TokenRefusal(error="invalid_grant", reason="no scope left")
    return RepeatedRefresh(scope=given) if repeated else Rotate(scope=given)


def look_ahead(db: Db, token: str | None) -> None:
    """What `refresh` asks first, once it is known whose client asks."""
    grant_id = None if token is None else refresh_tokens.names(token)
    if grant_id is not None:
        db.foresee(_GRANT, REFRESH_EPOCH, grant_id)


def refresh(db: Db, client: Client, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """A job. The client is authenticated, enabled, and registered for this grant type."""
    if exchange.form.refresh_token is None:
        return OAuthRefusal(error="invalid_request", description="refresh_token is missing")
    link = refresh_tokens.parse(exchange.refresh_keys, exchange.form.refresh_token, exchange.now)
    if link is None:
        return _refuse(
            db, client, exchange, None, TokenRefusal(error="invalid_grant", reason="not one of ours")
        )
    for _ in range(ATTEMPTS):
        grant, outcome = _decide(db, client, exchange, link)
        if grant is None or isinstance(outcome, TokenRefusal):
            assert isinstance(outcome, TokenRefusal)
            return _refuse(db, client, exchange, grant, outcome)
        if isinstance(outcome, RepeatedRefresh):
            record(db, client, exchange, "refresh.replayed", grant_id=grant.id)
            return _issue(grant, outcome.scope, grant.counter, exchange.now)
        if _rotate(db, grant, exchange):
            clients.note_use(db, client, exchange.now)
            record(db, client, exchange, "refresh.rotated", grant_id=grant.id)
            return _issue(grant, outcome.scope, grant.counter + 1, exchange.now)
        # Another transaction rotated or revoked it since we looked: look again.
    raise Contended(link.grant_id)


def _decide(
    db: Db, client: Client, exchange: GrantRequest, link: refresh_tokens.ChainLink
) -> tuple[Grant | None, Rotate | RepeatedRefresh | TokenRefusal]:
    # What it depends on comes with the grant: each statement costs the store's thread as much as the decision.
    row = db.fetch_one(_GRANT, REFRESH_EPOCH, link.grant_id)
    if row is not None:
        row = sealed_rows.checked(
            db, sealed_rows.GRANTS, sealed_rows.checked(db, sealed_rows.USERS, row, "user_")
        )
    grant = None if row is None else Grant.of(row)
    site, origins = exchange.site, (exchange.requester.origin, *(() if grant is None else (grant.origin,)))
    outcome = decide(
        grant,
        link.counter,
        client,
        site.choose(exchange.form.resources, origins),
        exchange.form.scope,
        None if row is None else _account(row),
        served=grant is not None and site.audience(grant.server) is not None,
        current_epoch="" if row is None else _epoch(row),
        now=exchange.now,
        policy=exchange.policy.tokens,
        jkt=exchange.jkt,
    )
    return grant, outcome


def _account(row: Row) -> Account | None:
    if row["principal_kind"] == PrincipalKind.PAYER:
        return NOBODY
    if row["user_state"] is None:
        return None
    return Account(state=row["user_state"], scope=row["user_scope"], expires_at=row["user_expires_at"])


def _epoch(row: Row) -> str:
    if row["current_epoch"] is None:
        raise LookupError(NO_EPOCH)
    return row["current_epoch"]


def _rotate(db: Db, grant: Grant, exchange: GrantRequest) -> bool:
    now = exchange.now
    return bool(
        db.execute(
            "UPDATE grants SET counter = counter + 1, rotated_at = ?, last_used_at = ?, last_ip = ?, idle_until = ?"
            " WHERE id = ? AND counter = ? AND revoked_at IS NULL",
            now,
            now,
            exchange.requester.ip,
            min(now + exchange.policy.tokens.refresh_idle_ms, grant.expires_at),
            grant.id,
            grant.counter,
        )
    )


def _issue(grant: Grant, scope: str, counter: int, now: Millis) -> Issue:
    return Issue(
        grant_id=grant.id,
        subject=grant.subject,
        client_id=grant.client_id,
        server=grant.server,
        scope=scope,
        auth_time=grant.auth_time,
        issued_at=now,
        ends_at=grant.expires_at,
        counter=counter,
    )


def _refuse(
    db: Db, client: Client, exchange: GrantRequest, grant: Grant | None, why: TokenRefusal
) -> OAuthRefusal:
    record(
        db,
        client,
        exchange,
        why.event or "refresh.refused",
        grant_id=None if grant is None else grant.id,
        refused=why.reason,
    )
    if why.revoke is not None:
        revoke(db, why.revoke, reason="refresh token used again", by=f"client:{client.id}", now=exchange.now)
    return OAuthRefusal(error=why.error, description=_TEXT[why.error])
