"""Redeeming a device code (RFC 8628 §3.4-3.5): single use, in one order of answers, checked again at the last moment.

Asking for a code and approving it are in auth/authorization/device_authorization.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.authorization.device_authorization import device_code_hash
from auth.grants import redeemed_codes
from auth.grants.new_grants import GrantTerms
from auth.grants.redeemed_codes import CodeKind, Redemption
from auth.grants.token_request import Account, GrantRequest, Issue, TokenRefusal, account
from auth.values import scopes, sealed_rows
from auth.values.database import Db, from_row
from auth.values.identity_model import REFRESH_TOKEN, Client, Millis, PrincipalKind
from auth.values.issuer_and_resources import ForeignResource
from auth.values.limits_and_lifetimes import DevicePolicy
from auth.values.oauth_errors import OAuthRefusal


class DeviceCodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that the decision looks at."""

    id: str
    client_id: str
    state: str
    server: str
    interval_seconds: int
    last_poll_at: Millis | None
    expires_at: Millis
    granted_scope: str | None
    grant_id: str | None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that decides nothing yet. `interval_seconds` is what to remember; the poll counts from now."""

    error: str
    interval_seconds: int


KIND: Final = CodeKind(
    table=sealed_rows.DEVICE_CODES,
    hash_column="device_code_hash",
    redeemable="approved",
    name="device code",
    event="device.redeemed",
    texts={
        "invalid_grant": "this device code is not valid",
        "invalid_target": "the code was asked for another resource",
        "expired_token": "the code has expired, ask for a new one",
        "access_denied": "the login was refused",
        "authorization_pending": "nobody has approved the code yet",
        "slow_down": "poll less often",
    },
)


def decide(
    code: DeviceCodeRow | None,
    client: Client,
    asked: str | ForeignResource | None,
    user: Account | None,
    *,
    served: bool,
    now: Millis,
    policy: DevicePolicy,
) -> Redemption | Wait | TokenRefusal:
    """Decide, without side effects, in this order: a wrong request consumes nothing, and an approved code beats `slow_down`.

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
        scope = scopes.narrow(scopes.narrow(code.granted_scope or "", client.scope), user.scope)
        if not scope:
            return TokenRefusal(error="access_denied", reason="no scope left")
        if not served:
            return TokenRefusal(error="access_denied", reason="server no longer configured")
        return Redemption(scope=scope)
    if code.last_poll_at is not None:  # the first poll is never early
        earliest = code.last_poll_at + code.interval_seconds * 1_000 - policy.poll_tolerance_ms
        if now < earliest:
            longer = code.interval_seconds + policy.interval_step_seconds
            return Wait(error="slow_down", interval_seconds=min(longer, policy.interval_cap_seconds))
    return Wait(error="authorization_pending", interval_seconds=code.interval_seconds)


def redeem(db: Db, client: Client, exchange: GrantRequest) -> Issue | OAuthRefusal:
    """Redeem a code, as a job, for a client that is authenticated, enabled, and registered for this grant type."""
    form, now = exchange.form, exchange.now
    if form.device_code is None:
        return OAuthRefusal(error="invalid_request", description="device_code is missing")
    row = redeemed_codes.find(db, KIND, device_code_hash(form.device_code))
    subject = None if row is None else row["subject"]
    outcome = decide(
        None if row is None else from_row(DeviceCodeRow, row),
        client,
        redeemed_codes.asked_server(row, exchange),
        None if subject is None else account(db, subject),
        served=redeemed_codes.is_served(row, exchange),
        now=now,
        policy=exchange.policy.device,
    )
    if isinstance(outcome, TokenRefusal):
        return redeemed_codes.refuse(db, KIND, client, exchange, row, outcome)
    assert row is not None
    if isinstance(outcome, Wait):
        db.execute(
            "UPDATE device_codes SET interval_seconds = ?, last_poll_at = ? WHERE id = ? AND state = 'pending'",
            outcome.interval_seconds,
            now,
            row["id"],
        )
        return OAuthRefusal(error=outcome.error, description=KIND.texts[outcome.error])
    terms = GrantTerms(
        kind=PrincipalKind.USER,
        subject=row["subject"],
        how="device",
        client_name=row["client_name"],
        hostname=row["hostname"],
        server=row["server"],
        origin=row["origin"],
        scope=outcome.scope,
        approved_by=row["decided_by"],
        auth_time=row["decided_at"],
        ends_at=now + exchange.policy.tokens.device_login_ms,
        refreshes=REFRESH_TOKEN in client.grant_types,
    )
    return redeemed_codes.issue(db, KIND, client, exchange, row, terms)
