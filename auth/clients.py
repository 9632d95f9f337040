"""Clients: looking them up, what they must show, and the operator's add, list, disable.

A public client (no secret) is only as trustworthy as the person who approves its login; that is why the confirm page
calls its name a claim. Registration over the network and metadata documents are not here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_plus

from auth import audit, redirects, scopes
from auth.db import Db
from auth.entropy import Entropy
from auth.model import DEVICE_CODE, REFRESH_TOKEN, Client, Millis, Secret
from auth.policy import MINUTE
from auth.requester import clean
from auth.scopes import Vocabulary

GRANT_TYPES: Final = (DEVICE_CODE, REFRESH_TOKEN)
AUTH_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")

CLI_CLIENT_ID: Final = "ostiary-cli"
NAME_LENGTH: Final = 100
ID_LENGTH: Final = 128

# `last_used_at` tells an operator which clients are dead; to the hour is enough, and spares a write per login.
USE_NOTED_EVERY_MS: Final = 60 * MINUTE


class BadCredentials(ValueError):
    """Credentials that cannot be read, or that come twice. The text is for the client; `error` is its OAuth code."""

    def __init__(self, text: str, *, error: str = "invalid_request") -> None:
        super().__init__(text)
        self.error = error


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """How a client introduced itself (RFC 6749 §2.3): an id, and a secret in one of two places."""

    client_id: str | None
    secret: str | None = field(default=None, repr=False)
    basic: bool = False  # the Authorization header was used, so a 401 names the scheme


def read_credentials(authorization: str | None, client_id: str | None, secret: str | None) -> Credentials:
    """From the Authorization header and the form. Empty secrets are none: public clients send `Basic id:`."""
    secret = secret or None
    scheme, _, encoded = (authorization or "").strip().partition(" ")
    if scheme.lower() != "basic":  # some clients send their Bearer token along to every path of a host
        return Credentials(client_id=client_id, secret=secret)
    try:
        plain = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise BadCredentials("unreadable Basic credentials", error="invalid_client") from None
    name, _, password = plain.partition(":")
    basic_id, basic_secret = unquote_plus(name), unquote_plus(password) or None
    if not (basic_id + (basic_secret or "")).isascii() or not basic_id.isprintable():  # appendix A.1-2
        raise BadCredentials("unreadable Basic credentials", error="invalid_client")
    if client_id is not None and client_id != basic_id:
        raise BadCredentials("client_id differs between the Authorization header and the form")
    if basic_secret and secret:
        raise BadCredentials("one client secret is enough")  # §2.3: not more than one method per request
    return Credentials(client_id=basic_id, secret=basic_secret or secret, basic=True)


def proves(client: Client, credentials: Credentials) -> bool:
    """A client with a secret shows it, in either place; one without shows none."""
    if client.secret_hash is None:
        return credentials.secret is None
    shown = secret_hash(credentials.secret or "")
    return credentials.secret is not None and hmac.compare_digest(shown, client.secret_hash)


def secret_hash(secret: str) -> str:
    # No salt and no stretching: a secret is 256 random bits.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def lookup(db: Db, client_id: str) -> Client | None:
    row = db.fetch_one("SELECT * FROM clients WHERE id = ?", client_id)
    return None if row is None else Client.of(row)


def note_use(db: Db, client: Client, now: Millis) -> None:
    if client.last_used_at is None or client.last_used_at < now - USE_NOTED_EVERY_MS:
        db.execute("UPDATE clients SET last_used_at = ? WHERE id = ?", now, client.id)


# ---------------------------------------------------------------- for the operator


@dataclass(frozen=True, kw_only=True, slots=True)
class NewClient:
    client: Client
    secret: Secret | None  # shown once; the row holds its hash


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What an operator asks for. `check` says what is wrong with it, in words for the terminal."""

    name: str
    client_id: str | None = None  # None: one is made up
    auth_method: str = "none"
    grant_types: Sequence[str] = GRANT_TYPES
    redirect_uris: Sequence[str] = ()
    scope: str = scopes.EVERYTHING

    def check(self, known: Vocabulary) -> list[str]:
        problems: list[str] = []
        if not clean(self.name, NAME_LENGTH) or clean(self.name, NAME_LENGTH) != self.name:
            problems.append(f"name: one line of 1 to {NAME_LENGTH} plain characters")
        if self.client_id is not None and not _is_plain_id(self.client_id):
            problems.append("client_id: letters, digits and . _ - only, and not an address")
        if self.auth_method not in AUTH_METHODS:
            problems.append(f"auth_method: one of {', '.join(AUTH_METHODS)}")
        if not self.grant_types or not set(self.grant_types) <= set(GRANT_TYPES):
            problems.append(f"grant_types: some of {', '.join(GRANT_TYPES)}")
        problems += [
            f"redirect_uris: {uri[:100]!r} is not https, http on loopback, or an application's own scheme"
            for uri in self.redirect_uris
            if not redirects.is_acceptable(uri)
        ]
        named = scopes.parse(self.scope)
        if not named or any(scope not in known and scope != scopes.EVERYTHING for scope in named):
            problems.append(f"scope: some of {scopes.join(known.names)}")
        return problems


def _is_plain_id(text: str) -> bool:
    letters = text.replace(".", "").replace("_", "").replace("-", "")
    return text.isascii() and letters.isalnum() and len(text) <= ID_LENGTH


def add(db: Db, registration: Registration, *, seed: bytes, by: str, now: Millis) -> NewClient | None:
    """A job, for a registration that `check` had nothing against. None if the id is taken."""
    entropy = Entropy(seed)
    client_id = registration.client_id or entropy.identifier("cli")
    secret = None if registration.auth_method == "none" else entropy.token()
    added = insert(
        db, client_id, registration, kind="registered", hashed=secret and secret_hash(secret), now=now
    )
    _record(db, "client.added", client_id, by, now, outcome_ok=added, reason="" if added else "id is taken")
    client = lookup(db, client_id) if added else None
    return None if client is None else NewClient(client=client, secret=Secret(secret) if secret else None)


def insert(
    db: Db, client_id: str, registration: Registration, *, kind: str, hashed: str | None, now: Millis
) -> bool:
    """False if there is a client of this id already; it is left as it is."""
    return bool(
        db.execute(
            "INSERT INTO clients (id, kind, name, secret_hash, auth_method, grant_types, redirect_uris, scope, state,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'enabled', ?) ON CONFLICT (id) DO NOTHING",
            client_id,
            kind,
            registration.name,
            hashed,
            registration.auth_method,
            " ".join(registration.grant_types),
            " ".join(registration.redirect_uris),
            scopes.join(scopes.parse(registration.scope)),
            now,
        )
    )


def listing(db: Db) -> list[Client]:
    return [Client.of(row) for row in db.fetch_all("SELECT * FROM clients ORDER BY created_at, id")]


def disable(db: Db, client_id: str, *, by: str, now: Millis) -> bool:
    """A job. From its commit on, the client's logins and tokens are refused. False if there is nothing to disable."""
    return _switch(db, client_id, ("enabled", "disabled"), "client.disabled", by, now)


def enable(db: Db, client_id: str, *, by: str, now: Millis) -> bool:
    """A job. Logins that were not revoked meanwhile work again."""
    return _switch(db, client_id, ("disabled", "enabled"), "client.enabled", by, now)


def _switch(db: Db, client_id: str, states: tuple[str, str], event: str, by: str, now: Millis) -> bool:
    before, after = states
    changed = db.execute("UPDATE clients SET state = ? WHERE id = ? AND state = ?", after, client_id, before)
    if changed:
        db.changed("client", client_id)
    _record(
        db, event, client_id, by, now, outcome_ok=bool(changed), reason="" if changed else f"not {before}"
    )
    return bool(changed)


def _record(
    db: Db, event: str, client_id: str, by: str, now: Millis, *, outcome_ok: bool, reason: str
) -> None:
    audit.record(
        db,
        at=now,
        event=event,
        actor=audit.actor(by),
        client_id=client_id,
        outcome="ok" if outcome_ok else "refused",
        reason=reason,
    )
