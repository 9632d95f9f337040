"""Programs that register themselves (RFC 7591), and what they may do with that later (RFC 7592).

Nobody vouches for them: a person who is asked to let one in is told so. Their words about themselves are judged in
auth/clients/registration_request.py; those that nobody ever lets in are swept away (server/store/reaping.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from auth.audit import audit_trail
from auth.clients import client_registry as clients
from auth.clients import registration_request
from auth.clients.client_registry import ID_LENGTH, SECRET_METHODS, secret_hash
from auth.clients.registration_request import BadMetadata, ClientMetadata
from auth.context.identity_parts import Parts
from auth.endpoints import json_replies, posted_forms
from auth.throttling import attempt_limits
from auth.throttling.attempt_limits import Limit
from auth.tokens.presented_credentials import bearer
from auth.values import sealed_rows
from auth.values.database import Db, Row
from auth.values.endpoint_paths import REGISTER
from auth.values.entropy import SEED_BYTES, Entropy
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import Client, Millis
from auth.values.limits_and_lifetimes import RegistrationPolicy
from auth.values.oauth_errors import OAuthRefusal, try_later
from auth.values.requester import Requester
from server.lib.secret import Secret

METHODS: Final = ("POST", "OPTIONS")
MANAGE_METHODS: Final = ("GET", "PUT", "DELETE", "OPTIONS")

# Refusals that are written down. A body that makes no sense is told so and leaves nothing behind.
_AUDITED: Final = frozenset({"invalid_token", "temporarily_unavailable"})

MADE_ROOM: Final = 20  # for each that comes
_UNDER_WAY: Final = ("device_codes", "authorization_codes", "pushed_requests")

# What an unknown client's token is compared with, so that the answer takes as long as for a known one.
_NOBODY: Final = hashlib.sha256(b"nobody's").hexdigest()


class RegisteredClient(msgspec.Struct, frozen=True, kw_only=True):
    """A registered client, as its owner is told."""

    client: Client
    metadata: str
    access_token: Secret  # of the registration, not of a login
    secret: Secret | None = None  # only where it was made just now
    created: bool = False


class ClientRemoved(msgspec.Struct, frozen=True):
    pass


Outcome = RegisteredClient | ClientRemoved | OAuthRefusal


# ---------------------------------------------------------------- the endpoints


async def create(parts: Parts, request: WireRequest) -> WireReply:
    """Answer `POST /register`."""
    if request.method == "OPTIONS":
        return json_replies.preflight(METHODS)
    if request.method != "POST":
        return json_replies.wrong_method(METHODS)
    policy = parts.policy.registration
    if policy.mode == "off":
        return _off()

    def ask(who: Requester, now: Millis) -> Callable[[Db], Outcome]:
        said, seed = _read(parts, request), parts.entropy(SEED_BYTES)
        shown = bearer(request.headers.get("authorization"))
        tries = _tries(parts, who)

        def job(db: Db) -> Outcome:
            refused = _not_admitted(db, shown, policy, who, now) if policy.mode == "token" else None
            if refused is not None:
                return refused
            if isinstance(said, OAuthRefusal):
                return said
            return enrol(db, said, policy=policy, tries=tries, who=who, seed=seed, now=now)

        return job

    return await _answer(parts, request, ask)


async def manage(parts: Parts, request: WireRequest) -> WireReply:
    """Answer `/register/{client_id}`, for the token that came with the registration."""
    if request.method == "OPTIONS":
        return json_replies.preflight(MANAGE_METHODS)
    if request.method not in MANAGE_METHODS:
        return json_replies.wrong_method(MANAGE_METHODS)
    client_id = request.path.removeprefix(REGISTER + "/")

    def ask(who: Requester, now: Millis) -> Callable[[Db], Outcome]:
        said = _read(parts, request) if request.method == "PUT" else None
        shown, seed = bearer(request.headers.get("authorization")) or "", parts.entropy(SEED_BYTES)

        def job(db: Db) -> Outcome:
            row = _owned(db, client_id, shown)
            if row is None:
                return _refused(db, "client.managed", "wrong registration access token", who, now)
            if request.method == "DELETE":
                return _withdraw(db, row["id"], who, now)
            if said is None:
                return RegisteredClient(
                    client=Client.of(row), metadata=row["metadata"], access_token=Secret(shown)
                )
            if isinstance(said, OAuthRefusal):
                return said
            return change(
                db,
                row,
                said,
                policy=parts.policy.registration,
                tries=_tries(parts, who),
                access_token=Secret(shown),
                who=who,
                seed=seed,
                now=now,
            )

        return job

    return await _answer(parts, request, ask)


async def _answer(
    parts: Parts, request: WireRequest, ask: Callable[[Requester, Millis], Callable[[Db], Outcome]]
) -> WireReply:
    """Answer within the limits of every posted form (posted_forms.py): refusals leave audit rows, of which nobody may leave many."""
    who, now = Requester.of(request), parts.clock()
    wait = posted_forms.wait_to_ask(parts, who, now)
    if wait:
        return json_replies.refuse(posted_forms.too_often(wait))
    outcome = await parts.store.write(ask(who, now))
    match outcome:
        case OAuthRefusal():
            if outcome.error in _AUDITED:
                posted_forms.note_refusal(parts, who, now)
            refused = json_replies.refuse(outcome)
            if outcome.error != "invalid_token":
                return refused
            challenge = 'Bearer realm="registration", error="invalid_token"'
            return replace(refused, headers=(*refused.headers, ("WWW-Authenticate", challenge)))
        case ClientRemoved():
            return replace(json_replies.empty(), status=204)
        case RegisteredClient():
            told = json_replies.answer(describe(outcome, parts.site.public(who.origin)))
            return replace(told, status=201) if outcome.created else told


def _tries(parts: Parts, who: Requester) -> int:
    """Return how many registrations and changes of one network may be in a window."""
    policy = parts.policy.registration
    return policy.per_network_at_home if posted_forms.is_at_home(parts, who) else policy.per_network


def _read(parts: Parts, request: WireRequest) -> ClientMetadata | OAuthRefusal:
    try:
        return registration_request.read(request.json, parts.site.scopes, fetches=parts.fetch is not None)
    except BadMetadata as problem:
        return OAuthRefusal(error=problem.error, description=str(problem))


def _off() -> WireReply:
    refusal = OAuthRefusal(
        error="access_denied",
        description="programs cannot register themselves here; ask the operator of this server for a client id",
    )
    return replace(json_replies.refuse(refusal), status=403)


def describe(registered: RegisteredClient, base: str) -> dict[str, Any]:
    """Describe a client (RFC 7591 §3.2.1, RFC 7592 §3). Without a secret no member speaks of one: null would count as one."""
    client, kept = registered.client, json.loads(registered.metadata)
    told: dict[str, Any] = {
        "client_id": client.id,
        "client_id_issued_at": client.created_at // 1_000,
        "client_name": client.name,
        "redirect_uris": list(client.redirect_uris),
        "grant_types": list(client.grant_types),
        "token_endpoint_auth_method": client.auth_method,
        **kept,
        "registration_client_uri": f"{base}{REGISTER}/{client.id}",
        "registration_access_token": registered.access_token.reveal(),
    }
    if registered.secret is not None:
        told |= {"client_secret": registered.secret.reveal(), "client_secret_expires_at": 0}
    if client.client_uri:
        told["client_uri"] = client.client_uri
    if client.jwks is not None:
        told["jwks"] = json.loads(client.jwks)
    if client.jwks_uri is not None:
        told["jwks_uri"] = client.jwks_uri
    return told


# ---------------------------------------------------------------- jobs


def enrol(
    db: Db,
    metadata: ClientMetadata,
    *,
    policy: RegistrationPolicy,
    tries: int,
    who: Requester,
    seed: bytes,
    now: Millis,
) -> RegisteredClient | OAuthRefusal:
    """Register a client, as a job. The store counts how many one network makes, so that this holds across restarts."""
    refused = _one_too_many(db, "client.registered", policy, tries, who, now)
    if refused is not None:
        return refused
    _make_room(db, policy.unused, now)
    entropy, registration = Entropy(seed), metadata.registration
    client_id, token, secret = (
        entropy.identifier("cli"),
        entropy.token(),
        _secret_for(registration.auth_method, entropy),
    )
    clients.insert(
        db,
        client_id,
        registration,
        kind="dynamic",
        hashed=secret and secret_hash(secret),
        registration_hash=secret_hash(token),
        network=who.network,
        metadata=metadata.kept(),
        now=now,
    )
    audit_trail.record_client(db, now, "client.registered", client_id, who)
    return _told(db, client_id, token=Secret(token), secret=secret, created=True)


def _make_room(db: Db, most: int, now: Millis) -> None:
    """Make room, in a job that adds one: the oldest go that nobody ever let in, and that nobody may be letting in now."""
    there = db.fetch_one("SELECT COUNT(*) AS n FROM clients WHERE kind = 'dynamic' AND authorized_at IS NULL")
    beyond = 0 if there is None else there["n"] + 1 - most
    if beyond <= 0:
        return
    rows = db.fetch_all(
        "SELECT id FROM clients WHERE kind = 'dynamic' AND authorized_at IS NULL AND state = 'enabled'"
        + "".join(
            f" AND NOT EXISTS (SELECT 1 FROM {table} u WHERE u.client_id = clients.id AND u.expires_at > ?)"
            for table in _UNDER_WAY
        )
        + " ORDER BY created_at, id LIMIT ?",
        *(now for _ in _UNDER_WAY),
        min(beyond, MADE_ROOM),
    )
    for row in rows:
        clients.delete(db, row["id"])


def _one_too_many(
    db: Db, event: str, policy: RegistrationPolicy, tries: int, who: Requester, now: Millis
) -> OAuthRefusal | None:
    """Count it, as part of a job. A change leaves as much behind as a registration, and is counted like one."""
    window = policy.per_network_ms
    buckets = (
        (f"register:{who.network}", Limit(tries=tries, window=window)),
        (
            f"register:around {who.neighbourhood}",
            Limit(tries=max(tries, policy.per_neighbourhood), window=window),
        ),
        ("register:all", Limit(tries=policy.everybody, window=window)),
    )
    closed = attempt_limits.closed_until(db, buckets, now)
    if closed:
        refused = "too many from this network, or from all together"
        audit_trail.record(db, now, event, who=who, refused=refused)
        return try_later("too many registrations", closed - now)
    for bucket, _ in buckets:
        attempt_limits.count(db, bucket, now)
    return None


def change(
    db: Db,
    row: Row,
    metadata: ClientMetadata,
    *,
    policy: RegistrationPolicy,
    tries: int,
    access_token: Secret,
    who: Requester,
    seed: bytes,
    now: Millis,
) -> RegisteredClient | OAuthRefusal:
    """Put what is said now, as a job, in the place of everything that was said (RFC 7592 §2.2)."""
    client, registration = Client.of(row), metadata.registration
    held, shown = client.secret_hash, metadata.client_secret
    problem = ""
    if metadata.client_id != client.id:
        problem = "client_id: the one that is being changed"
    elif shown is not None and not hmac.compare_digest(secret_hash(shown), held or _NOBODY):
        problem = "client_secret: not the present one; this server makes them"
    if problem:
        return OAuthRefusal(error="invalid_client_metadata", description=problem)
    refused = _one_too_many(db, "client.changed", policy, tries, who, now)
    if refused is not None:
        return refused
    keeps = held is not None and registration.auth_method in SECRET_METHODS
    secret = None if keeps else _secret_for(registration.auth_method, Entropy(seed))
    values = {
        **clients.columns(registration),
        "secret_hash": held if keeps else secret and secret_hash(secret),
        "metadata": metadata.kept(),
    }
    sealed_rows.update(db, sealed_rows.CLIENTS, client.id, values, row=row)
    db.changed("client", client.id)
    audit_trail.record_client(db, now, "client.changed", client.id, who)
    return _told(db, client.id, token=access_token, secret=secret)


def _withdraw(db: Db, client_id: str, who: Requester, now: Millis) -> ClientRemoved:
    ended = clients.delete(db, client_id)
    reason = f"by itself; {ended} logins went with it"
    audit_trail.record_client(db, now, "client.removed", client_id, who, reason=reason)
    return ClientRemoved()


def _told(
    db: Db, client_id: str, *, token: Secret, secret: str | None, created: bool = False
) -> RegisteredClient:
    row = db.fetch_one("SELECT * FROM clients WHERE id = ?", client_id)
    assert row is not None  # this transaction wrote it
    return RegisteredClient(
        client=Client.of(row),
        metadata=row["metadata"],
        access_token=token,
        secret=None if secret is None else Secret(secret),
        created=created,
    )


def _secret_for(auth_method: str, entropy: Entropy) -> str | None:
    return entropy.token() if auth_method in SECRET_METHODS else None


def _owned(db: Db, client_id: str, token: str) -> Row | None:
    """Find the client whose registration this token is for. One that the operator has disabled is out of its owner's hands."""
    plain = len(client_id) <= ID_LENGTH and client_id.isascii() and client_id.isprintable()
    row = db.fetch_one(
        "SELECT * FROM clients WHERE id = ? AND kind = 'dynamic' AND state = 'enabled'",
        client_id if plain else "",
    )
    held = (row["registration_hash"] if row is not None else None) or _NOBODY
    fits = row is None or sealed_rows.fits(db, sealed_rows.CLIENTS, row)
    return row if fits and hmac.compare_digest(secret_hash(token), held) else None


def _not_admitted(
    db: Db, shown: str | None, policy: RegistrationPolicy, who: Requester, now: Millis
) -> OAuthRefusal | None:
    right = hmac.compare_digest(secret_hash(shown or ""), policy.token_hash or _NOBODY)
    if shown and right:
        return None
    return _refused(db, "client.registered", "wrong initial access token", who, now)


def _refused(db: Db, event: str, reason: str, who: Requester, now: Millis) -> OAuthRefusal:
    audit_trail.record(db, now, event, who=who, refused=reason)
    return OAuthRefusal(error="invalid_token", description="a Bearer token for this registration is needed")
