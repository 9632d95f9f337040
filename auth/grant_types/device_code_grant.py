"""Redeeming a device code (RFC 8628 §3.4-3.5): single use, in one order of answers, checked again at the last moment.

Asking for a code and approving it are in auth/authorization/device_authorization.py.
"""

from __future__ import annotations

import msgspec

from auth.authorization.device_authorization import device_code_hash
from auth.grants.login_records import revoke
from auth.grants.new_grants import GrantTerms, begin
from auth.grants.token_request import Account, GrantRequest, Issue, TokenRefusal, account, record
from auth.values import scopes, sealed_rows
from auth.values.database import Db, Row
from auth.values.entropy import Entropy
from auth.values.identity_model import REFRESH_TOKEN, Client, Millis, PrincipalKind
from auth.values.issuer_and_resources import ForeignResource
from auth.values.limits_and_lifetimes import DevicePolicy
from auth.values.oauth_errors import OAuthRefusal


class DeviceCodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What of a row the decision looks at."""

    id: str
    client_id: str
    state: str
    server: str
    interval_seconds: int
    last_poll_at: Millis | None
    expires_at: Millis
    granted_scope: str
    grant_id: str | None


class DeviceRedemption(msgspec.Struct, frozen=True, kw_only=True):
    scope: str


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Not yet. `interval_seconds` is what to remember; the poll counts from now."""

    error: str
    interval_seconds: int


_TEXT = {
    "invalid_grant": "this device code is not valid",
    "invalid_target": "the code was asked for another resource",
    "expired_token": "the code has expired, ask for a new one",
    "access_denied": "the login was refused",
    "authorization_pending": "nobody has approved the code yet",
    "slow_down": "poll less often",
}


def decide(
    code: DeviceCodeRow | None,
    client: Client,
    asked: str | ForeignResource | None,
    user: Account | None,
    *,
    served: bool,
    now: Millis,
    policy: DevicePolicy,
) -> DeviceRedemption | Wait | TokenRefusal:
    """Pure. The order matters: nothing is consumed by a request that is wrong, and an approved code beats `slow_down`.

    `asked` is the server that the request's `resource` names; `served` whether the code's server is still configured.
    """
    if code is None:
        return TokenRefusal(error="invalid_grant", reason="unknown code")
    if code.state == "used":
        return TokenRefusal(error="invalid_grant", reason="code used again", revoke=code.grant_id)
    if code.client_id != client.id:
        return TokenRefusal(error="invalid_grant", reason="code of another client")
    if asked is not None and asked != code.server:
        return TokenRefusal(error="invalid_target", reason="another resource")
    if now >= code.expires_at:
        # §3.5: expired_token, not invalid_grant, so that the device stops polling and may ask anew.
        return TokenRefusal(error="expired_token", reason="expired")
    if code.state == "denied":
        return TokenRefusal(error="access_denied", reason="denied")
    if code.state == "approved":
        if user is None or not user.may(now):
            return TokenRefusal(error="access_denied", reason="user not enabled")
        scope = scopes.narrow(scopes.narrow(code.granted_scope, client.scope), user.scope)
        if not scope:
            return TokenRefusal(error="access_denied", reason="no scope left")
        if not served:
            return TokenRefusal(error="access_denied", reason="server no longer configured")
        return DeviceRedemption(scope=scope)
    if code.last_poll_at is not None:  # the first poll is never early
        earliest = code.last_poll_at + code.interval_seconds * 1_000 - policy.poll_tolerance_ms
        if now < earliest:
            longer = code.interval_seconds + policy.interval_step_seconds
            return Wait(error="slow_down", interval_seconds=min(longer, policy.interval_cap_seconds))
    return Wait(error="authorization_pending", interval_seconds=code.interval_seconds)


def redeem(db: Db, client: Client, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """A job. The client is authenticated, enabled, and registered for this grant type."""
    form, now = exchange.form, exchange.now
    if form.device_code is None:
        return OAuthRefusal(error="invalid_request", description="device_code is missing")
    row = db.fetch_one(
        "SELECT * FROM device_codes WHERE device_code_hash = ?", device_code_hash(form.device_code)
    )
    if row is not None and not sealed_rows.fits(db, sealed_rows.DEVICE_CODES, row):
        row = None
    outcome = decide(
        None if row is None else _code(row),
        client,
        exchange.site.choose(form.resources, _origins(row, exchange)),
        None if row is None or row["subject"] is None else account(db, row["subject"]),
        served=row is not None and exchange.site.audience(row["server"]) is not None,
        now=now,
        policy=exchange.policy.device,
    )
    match outcome:
        case DeviceRedemption():
            assert row is not None
            return _issue(db, client, exchange, row, outcome.scope)
        case Wait():
            assert row is not None
            db.execute(
                "UPDATE device_codes SET interval_seconds = ?, last_poll_at = ? WHERE id = ? AND state = 'pending'",
                outcome.interval_seconds,
                now,
                row["id"],
            )
            return OAuthRefusal(error=outcome.error, description=_TEXT[outcome.error])
        case TokenRefusal():
            return _refuse(db, client, exchange, row, outcome)


def _issue(db: Db, client: Client, exchange: GrantRequest, row: Row, scope: str) -> Issue | OAuthRefusal:
    now = exchange.now
    grant_id = Entropy(exchange.seed).identifier("grt")
    won = db.execute(
        f"UPDATE device_codes SET state = 'used', grant_id = ?, {sealed_rows.WIPED} WHERE id = ? AND state = 'approved' AND expires_at > ?",
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
        how="device",
        client_name=row["client_name"],
        hostname=row["hostname"],
        server=row["server"],
        origin=row["origin"],
        scope=scope,
        approved_by=row["decided_by"],
        auth_time=row["decided_at"],
        ends_at=now + exchange.policy.tokens.device_login_ms,
        refreshes=REFRESH_TOKEN in client.grant_types,
    )
    issue = begin(db, client, exchange, grant_id, terms)
    record(db, client, exchange, "device.redeemed", reason=row["id"], grant_id=grant_id)
    return issue


def _refuse(
    db: Db, client: Client, exchange: GrantRequest, row: Row | None, why: TokenRefusal
) -> OAuthRefusal:
    known = "" if row is None else row["id"]
    record(
        db, client, exchange, "device.redeemed", refused=f"{known} {why.reason}".lstrip(), grant_id=why.revoke
    )
    if why.revoke is not None:
        revoke(db, why.revoke, reason="device code used again", by=f"client:{client.id}", now=exchange.now)
    return OAuthRefusal(error=why.error, description=_TEXT[why.error])


def _origins(row: Row | None, exchange: GrantRequest) -> tuple[str, ...]:
    """A login may go on under another loopback name than it began."""
    here = exchange.requester.origin
    return (here,) if row is None else (here, row["origin"])


def _code(row: Row) -> DeviceCodeRow:
    return DeviceCodeRow(
        id=row["id"],
        client_id=row["client_id"],
        state=row["state"],
        server=row["server"],
        interval_seconds=row["interval_seconds"],
        last_poll_at=row["last_poll_at"],
        expires_at=row["expires_at"],
        granted_scope=row["granted_scope"] or "",
        grant_id=row["grant_id"],
    )
