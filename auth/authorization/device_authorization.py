"""Device authorization (RFC 8628 §3.1-3.3): asking for a code, finding it again, approving or denying it.

Redeeming one is in grant_types/device_code_grant.py; the page that shows it, and the limits on guessing, are with the pages. Nothing here
says who may approve: the caller has signed somebody in, or knows the uid at the other end of a local socket.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal

import msgspec

from auth.audit import audit_trail
from auth.clients.client_registry import CLI_CLIENT_ID
from auth.grants.token_request import account
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import Limit
from auth.values import scopes, sealed_rows
from auth.values.database import Db, Row, from_row
from auth.values.entropy import Entropy
from auth.values.identity_model import DEVICE_CODE, Client, Millis
from auth.values.issuer_and_resources import ForeignResource, Site
from auth.values.limits_and_lifetimes import MINUTE, DevicePolicy
from auth.values.oauth_errors import OAuthRefusal, try_later
from auth.values.requester import Requester, shown
from server.lib.secret import Secret

ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"  # §6.1: no vowels, so no words; 20^8 is 34.6 bits
CODE_LENGTH: Final = 8
MAC_PURPOSE: Final = "user-code"

CLIENT_NAME_LENGTH: Final = 80
HOSTNAME_LENGTH: Final = 120

# A page shows them all; the policy's cap on live codes is the real bound.
PENDING_SHOWN: Final = 1_000


class CodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A device's request, as it came; the texts are claims."""

    scope: str
    resources: tuple[str, ...]
    client_name: str
    hostname: str
    requester: Requester


class DeviceAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """The answer (§3.2). The secrets leave in the reply; rows hold a hash and a MAC of them."""

    device_code: Secret
    user_code: Secret
    expires_in_seconds: int
    interval_seconds: int


class DeviceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All that an approver should see before saying yes. The code itself is known to whoever typed it, and not to us."""

    id: str
    client_id: str
    registered_name: str  # what the operator of this server calls the client
    client_name: str  # claimed by the requester, may be empty
    hostname: str  # claimed by the requester, may be empty
    verified: bool  # the operator added the client, and it proved to be that one; anybody can use a public id
    ip: str
    user_agent: str
    scope: str
    server: str
    origin: str
    created_at: Millis
    expires_at: Millis


class DeviceApproved(msgspec.Struct, frozen=True, kw_only=True):
    request: DeviceRequest
    scope: str


class DeviceDenied(msgspec.Struct, frozen=True, kw_only=True):
    request: DeviceRequest


class NotPending(msgspec.Struct, frozen=True, kw_only=True):
    """A request of which nothing was decided. `gone` is all that an outsider may learn: unknown, expired, decided already."""

    reason: Literal["gone", "user_not_enabled", "no_scope"]


# ---------------------------------------------------------------- the code that people type


def normalise(user_code: str) -> str | None:
    """Return the eight letters in what somebody typed, whatever the case, dashes and spaces; None if it cannot be a code."""
    letters = "".join(letter for letter in user_code[:64].upper() if letter in ALPHABET)
    return letters if len(letters) == CODE_LENGTH else None


def display(code: str) -> str:
    return f"{code[:4]}-{code[4:]}"


def user_code_mac(key: bytes, code: str) -> str:
    """Return what is stored of a code as `normalise` returns it. `key` is the subkey for `MAC_PURPOSE`."""
    return hmac.new(key, code.encode(), hashlib.sha256).hexdigest()


def device_code_hash(device_code: str) -> str:
    return hashlib.sha256(device_code.encode()).hexdigest()


# ---------------------------------------------------------------- asking for a code


def request_code(
    db: Db,
    client: Client,
    *,
    ask: CodeRequest,
    seed: bytes,
    mac_key: bytes,
    site: Site,
    policy: DevicePolicy,
    now: Millis,
) -> DeviceAuthorization | OAuthRefusal:
    """Give an authenticated client its codes, as a job. A refusal leaves its audit row."""
    server = site.meant(ask.resources, (ask.requester.origin,), client.server)
    scope = site.scopes.asked(ask.scope, client.scope)
    refusal = _unfit(client, server, scope) or _over_a_cap(db, client.id, ask.requester, policy, now)
    if refusal is not None:
        audit_trail.record_client(
            db, now, "device.requested", client.id, ask.requester, refused=refusal.error
        )
        return refusal

    interval = policy.own_interval_seconds if client.id == CLI_CLIENT_ID else policy.interval_seconds
    entropy = Entropy(seed)
    device_code = entropy.token()
    request_id = entropy.identifier("dev")
    user_code = _free_code(db, entropy, mac_key)
    row = {
        "id": request_id,
        "device_code_hash": device_code_hash(device_code),
        "user_code_mac": user_code_mac(mac_key, user_code),
        "client_id": client.id,
        "client_name": shown(ask.client_name, CLIENT_NAME_LENGTH),
        "hostname": shown(ask.hostname, HOSTNAME_LENGTH),
        "server": server,
        "origin": ask.requester.origin,
        "scope": scope,
        "ip": ask.requester.ip,
        "network": ask.requester.network,
        "user_agent": ask.requester.user_agent,
        "state": "pending",
        "interval_seconds": interval,
        "created_at": now,
        "expires_at": now + policy.lifetime_ms,
        **dict.fromkeys(("subject", "granted_scope", "decided_by", "decided_at")),
    }
    sealed_rows.insert(db, sealed_rows.DEVICE_CODES, row)
    audit_trail.record_client(db, now, "device.requested", client.id, ask.requester, reason=request_id)
    return DeviceAuthorization(
        device_code=Secret(device_code),
        user_code=Secret(display(user_code)),
        expires_in_seconds=policy.lifetime_ms // 1_000,
        interval_seconds=interval,
    )


def _unfit(client: Client, server: str | ForeignResource, scope: str) -> OAuthRefusal | None:
    if DEVICE_CODE not in client.grant_types:
        return OAuthRefusal(error="unauthorized_client", description="this client may not use device login")
    if isinstance(server, ForeignResource):
        return OAuthRefusal(error="invalid_target", description="no such resource on this server")
    if not scope:
        return OAuthRefusal(error="invalid_scope", description="none of these scopes exists for this client")
    return None


def _free_code(db: Db, entropy: Entropy, mac_key: bytes) -> str:
    """Draw a code that no live request has. With 1 000 live ones a draw collides once in 25 million times."""
    while True:
        code = entropy.letters(ALPHABET, CODE_LENGTH)
        taken = db.fetch_one(
            "SELECT id FROM device_codes WHERE user_code_mac = ? AND state IN ('pending', 'approved')",
            user_code_mac(mac_key, code),
        )
        if taken is None:
            return code


def _over_a_cap(
    db: Db, client_id: str, who: Requester, policy: DevicePolicy, now: Millis
) -> OAuthRefusal | None:
    network, around = who.network, f"device:around {who.neighbourhood}"
    wide = Limit(
        tries=max(policy.codes_per_neighbourhood, policy.codes_per_minute_per_network),
        window=policy.lifetime_ms,
    )
    live = "state IN ('pending', 'approved') AND expires_at > ?"
    mine, mine_frees = _count(
        db, "expires_at", f"{live} AND network = ? AND client_id = ?", now, network, client_id
    )
    recent, oldest = _count(db, "created_at", "network = ? AND created_at > ?", network, now - MINUTE)
    everybody, frees = _count(db, "expires_at", live, now)
    if mine >= policy.live_codes_per_requester:
        return try_later("too many logins are waiting for approval", mine_frees - now)
    if recent >= policy.codes_per_minute_per_network:
        return try_later("too many logins were started in the last minute", oldest + MINUTE - now)
    if everybody >= policy.live_codes:
        return try_later("too many logins are waiting for approval", frees - now)
    if opens := attempt_limits.closed_until(db, [(around, wide)], now):
        return try_later("too many logins were started in the last minutes", opens - now)
    attempt_limits.count(db, around, now)
    return None


def _count(db: Db, oldest: str, where: str, *values: object) -> tuple[int, Millis]:
    row = db.fetch_one(
        f"SELECT COUNT(*) AS n, MIN({oldest}) AS oldest FROM device_codes WHERE {where}", *values
    )
    assert row is not None  # an aggregate always has its row
    return row["n"], row["oldest"] or 0


# ---------------------------------------------------------------- for approvers

_SELECT = (
    "SELECT d.*, c.name AS registered_name, c.kind AS client_kind, c.auth_method"
    " FROM device_codes d JOIN clients c ON c.id = d.client_id"
)


def pending(db: Db, now: Millis) -> list[DeviceRequest]:
    """List all that wait for a decision, oldest first."""
    rows = db.fetch_all(
        f"{_SELECT} WHERE d.state = 'pending' AND d.expires_at > ? ORDER BY d.created_at LIMIT ?",
        now,
        PENDING_SHOWN,
    )
    return [_request(row) for row in rows]


def waiting(db: Db, now: Millis) -> int:
    """Count those that wait for a decision."""
    row = db.fetch_one(
        "SELECT COUNT(*) AS n FROM device_codes WHERE state = 'pending' AND expires_at > ?", now
    )
    return 0 if row is None else row["n"]


def find(db: Db, user_code_mac: str, now: Millis) -> DeviceRequest | None:
    """Find the request that waits under this code; None for unknown, expired and decided alike."""
    row = db.fetch_one(
        f"{_SELECT} WHERE d.user_code_mac = ? AND d.state = 'pending' AND d.expires_at > ?",
        user_code_mac,
        now,
    )
    return None if row is None else _request(row)


def was_one(db: Db, user_code_mac: str) -> bool:
    """Return whether a request has had this code and is over now."""
    row = db.fetch_one("SELECT id FROM device_codes WHERE user_code_mac = ? LIMIT 1", user_code_mac)
    return row is not None


def how_it_ended(db: Db, user_code_mac: str) -> Literal["approved", "denied", "withdrawn", ""]:
    """Return what was decided of the last request that had this code; "" where nobody did, or there was none."""
    row = db.fetch_one(
        "SELECT state, decided_by FROM device_codes WHERE user_code_mac = ? ORDER BY created_at DESC LIMIT 1",
        user_code_mac,
    )
    if row is None or row["decided_by"] is None:
        return ""
    if row["state"] != "denied":
        return "approved"
    return "withdrawn" if row["decided_by"].startswith("client:") else "denied"


def approve(
    db: Db, request_id: str, *, subject: str, by: str, scope: str | None, now: Millis
) -> DeviceApproved | NotPending:
    """Approve a request, as a job: `subject` (a user id) grants what of it lies under `scope` (None: all) and under their ceiling.

    `by` is who pressed the button: a user id, or `local:<uid>`.
    """
    row = db.fetch_one(f"{_SELECT} WHERE d.id = ?", request_id)
    if row is None:
        return NotPending(reason="gone")
    user = account(db, subject)
    if user is None or not user.may(now):
        _decided(db, row, by, now, event="device.approved", refused="user_not_enabled")
        return NotPending(reason="user_not_enabled")
    granted = scopes.narrow(row["scope"] if scope is None else scopes.narrow(scope, row["scope"]), user.scope)
    if not granted:
        _decided(db, row, by, now, event="device.approved", refused="no_scope")
        return NotPending(reason="no_scope")
    values = {
        "state": "approved",
        "decided_at": now,
        "decided_by": by,
        "subject": subject,
        "granted_scope": granted,
    }
    won = row["expires_at"] > now and sealed_rows.update(
        db, sealed_rows.DEVICE_CODES, request_id, values, when={"state": "pending"}, row=row
    )
    _decided(db, row, by, now, event="device.approved", refused="" if won else "gone")
    return DeviceApproved(request=_request(row), scope=granted) if won else NotPending(reason="gone")


def not_approved(db: Db, request_id: str, *, by: str, reason: str, now: Millis) -> None:
    """Note, as a job, that somebody would have approved it, and the policy does not let them."""
    row = db.fetch_one(f"{_SELECT} WHERE d.id = ?", request_id)
    if row is not None:
        _decided(db, row, by, now, event="device.approved", refused=reason)


def deny(db: Db, request_id: str, *, by: str, now: Millis) -> DeviceDenied | NotPending:
    """Deny a request, as a job, also one whose approval has not been redeemed yet."""
    row = db.fetch_one(f"{_SELECT} WHERE d.id = ?", request_id)
    if row is None:
        return NotPending(reason="gone")
    won = _deny(db, "id = ?", request_id, by=by, now=now)
    _decided(db, row, by, now, event="device.denied", refused="" if won else "gone")
    return DeviceDenied(request=_request(row)) if won else NotPending(reason="gone")


def withdraw(db: Db, client_id: str, device_code: str, *, requester: Requester, now: Millis) -> bool:
    """Withdraw a request, as a job, for the program that shows its device code, also one whose approval has not been redeemed yet.
    Return False if there is no such request of this client, or it is over."""
    code_hash = device_code_hash(device_code)
    where = "device_code_hash = ? AND client_id = ?"
    won = _deny(db, where, code_hash, client_id, by=f"client:{client_id}", now=now)
    row = db.fetch_one("SELECT id FROM device_codes WHERE device_code_hash = ?", code_hash) if won else None
    if row is None:
        return False
    audit_trail.record_client(db, now, "device.withdrawn", client_id, requester, reason=row["id"])
    return True


def _deny(db: Db, where: str, *values: str, by: str, now: Millis) -> bool:
    won = db.execute(
        f"UPDATE device_codes SET state = 'denied', decided_at = ?, decided_by = ?, {sealed_rows.WIPED}"
        f" WHERE {where} AND state IN ('pending', 'approved') AND expires_at > ?",
        now,
        by,
        *values,
        now,
    )
    return bool(won)


def _request(row: Row) -> DeviceRequest:
    # A secret that a program gave itself proves that it is the same program, not which.
    verified = row["client_kind"] == "registered" and row["auth_method"] != "none"
    return from_row(DeviceRequest, row, verified=verified)


def _decided(db: Db, row: Row, by: str, now: Millis, *, event: str, refused: str) -> None:
    audit_trail.record(
        db,
        now,
        event,
        actor=audit_trail.actor(by),
        client_id=row["client_id"],
        ip=row["ip"],
        user_agent=row["user_agent"],
        reason=row["id"],
        refused=f"{row['id']} {refused}" if refused else "",
    )
