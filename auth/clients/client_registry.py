"""Clients: looking them up, what they must show, and the operator's add, list, disable, remove.

A public client (no secret) is only as trustworthy as the person who approves its login; that is why the confirm page
calls its name a claim. Registration over the network is in auth/endpoints/client_registration.py, metadata documents in stored_client_documents.py, and what an
assertion must be like in auth/client_authentication/client_assertions.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_plus, urlsplit

import msgspec

from auth.audit import audit_trail
from auth.clients import redirect_uris as redirects
from auth.clients.client_identifier_urls import DocumentAddress, read_address
from auth.values import scopes, sealed_rows
from auth.values.database import Db
from auth.values.entropy import Entropy
from auth.values.identity_model import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    JWT_BEARER,
    REFRESH_TOKEN,
    Client,
    Millis,
)
from auth.values.limits_and_lifetimes import MINUTE
from auth.values.requester import clean
from auth.values.scopes import Vocabulary
from server.lib.secret import Secret

GRANT_TYPES: Final = (DEVICE_CODE, REFRESH_TOKEN)  # of a client for which nothing is said
ALL_GRANT_TYPES: Final = (AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN, CLIENT_CREDENTIALS, JWT_BEARER)
SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")
PRIVATE_KEY: Final = "private_key_jwt"
CONFIDENTIAL_METHODS: Final = (*SECRET_METHODS, PRIVATE_KEY)
AUTH_METHODS: Final = ("none", *CONFIDENTIAL_METHODS)
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

CLI_CLIENT_ID: Final = "ostiary-cli"
NAME_LENGTH: Final = 100
ID_LENGTH: Final = 128
LISTED: Final = 200  # on a page: one that registered itself may have some 20 KiB

# `last_used_at` tells an operator which clients are dead; to the hour is enough, and spares a write per login.
USE_NOTED_EVERY_MS: Final = 60 * MINUTE


class BadCredentials(ValueError):
    """Credentials that cannot be read, or that come twice. The text is for the client; `error` is its OAuth code."""

    def __init__(self, text: str, *, error: str = "invalid_request") -> None:
        super().__init__(text)
        self.error = error


class KeyProof(msgspec.Struct, frozen=True, kw_only=True):
    """An assertion that a key of the client has signed. A job has yet to say that the key is still the client's, and that this is
    its first use."""

    client_id: str
    jti_hash: str
    expires_at: Millis
    keys: str  # as `keys_of` gave them


class ClientCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """The introduction of a client (RFC 6749 §2.3): an id, and a secret in one of two places, or an assertion."""

    client_id: str | None
    secret: str | None = None
    basic: bool = False  # the Authorization header was used, so a 401 names the scheme
    assertion: str | None = None
    proof: KeyProof | None = (
        None  # what the assertion is worth; auth/client_authentication/client_assertions.py
    )
    problem: str = ""  # or why it is worth nothing

    def __repr__(self) -> str:  # without what it shows
        return (
            f"ClientCredentials(client_id={self.client_id!r}, basic={self.basic!r}, problem={self.problem!r})"
        )


def read_credentials(
    authorization: str | None, client_id: str | None, secret: str | None
) -> ClientCredentials:
    """Read the Authorization header and the form. Empty secrets are none: public clients send `Basic id:`."""
    secret = secret or None
    scheme, _, encoded = (authorization or "").strip().partition(" ")
    if scheme.lower() != "basic":  # some clients send their Bearer token along to every path of a host
        return ClientCredentials(client_id=client_id, secret=secret)
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
    return ClientCredentials(client_id=basic_id, secret=basic_secret or secret, basic=True)


def read_assertion(
    credentials: ClientCredentials, assertion: str | None, assertion_type: str | None, claimed: str | None
) -> ClientCredentials:
    """Read the credentials with an assertion (RFC 7521 §4.2), which then is the only way used. `claimed`: whom it says it is about."""
    if assertion is None and assertion_type is None:
        return credentials
    if assertion is None or assertion_type is None:
        raise BadCredentials("client_assertion and client_assertion_type belong together")
    if assertion_type != ASSERTION_TYPE:
        raise BadCredentials("client_assertion_type is not known here", error="invalid_client")
    if credentials.basic or credentials.secret is not None:
        raise BadCredentials("one way for the client to prove itself is enough")
    return ClientCredentials(client_id=credentials.client_id or claimed, assertion=assertion)


def proves(client: Client, credentials: ClientCredentials) -> bool:
    """Expect the secret of a client that has one, in either place; of one with keys a proof; of one with neither nothing."""
    if client.auth_method == PRIVATE_KEY:
        proof = credentials.proof
        return proof is not None and (proof.client_id, proof.keys) == (client.id, keys_of(client))
    if credentials.assertion is not None:
        return False
    if client.secret_hash is None:
        return credentials.secret is None
    shown = secret_hash(credentials.secret or "")
    return credentials.secret is not None and hmac.compare_digest(shown, client.secret_hash)


def use_up(db: Db, by: str, jti_hash: str, expires_at: Millis) -> bool:
    """Use an assertion up, as part of a job; return False if it was used before. `by`: whose it is, a client's id or a name that no client can have."""
    return bool(
        db.execute(
            "INSERT INTO client_assertions (client_id, jti_hash, expires_at) VALUES (?, ?, ?)"
            " ON CONFLICT (client_id, jti_hash) DO NOTHING",
            by,
            jti_hash,
            expires_at,
        )
    )


def believed_names(kind: str, client_id: str, name: str, *, by_device: bool, public: bool) -> tuple[str, ...]:
    """Return the names of a client that are no mere claim, the one for people first: what the operator entered, or the domain that
    the client's document proves. Anybody can ask for a device code in the name of a public document, so that proves nothing."""
    if kind in ("registered", "builtin"):
        return name, client_id
    if kind == "document" and not (by_device and public):
        return urlsplit(client_id).hostname or "", client_id
    return ()


def keys_of(client: Client) -> str:
    """Return where its keys are, in one text: another text, other keys."""
    return client.jwks or client.jwks_uri or ""


def secret_hash(secret: str) -> str:
    # No salt and no stretching: a secret is 256 random bits.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def lookup(db: Db, client_id: str) -> Client | None:
    row = db.fetch_one("SELECT * FROM clients WHERE id = ?", client_id)
    return None if row is None else Client.of(sealed_rows.checked(db, sealed_rows.CLIENTS, row))


def note_use(db: Db, client: Client, now: Millis) -> None:
    if client.last_used_at is None or client.last_used_at < now - USE_NOTED_EVERY_MS:
        db.execute("UPDATE clients SET last_used_at = ? WHERE id = ?", now, client.id)


# ---------------------------------------------------------------- for the operator


class NewClient(msgspec.Struct, frozen=True, kw_only=True):
    client: Client
    secret: Secret | None  # shown once; the row holds its hash


class ClientRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """A client as it is to be. `check` says what is wrong with what an operator asks for, in words for the terminal."""

    name: str
    client_id: str | None = None  # None: one is made up
    auth_method: str = "none"
    grant_types: Sequence[str] = GRANT_TYPES
    redirect_uris: Sequence[str] = ()
    scope: str = scopes.EVERYTHING
    client_uri: str = ""
    jwks: str | None = None  # a JWK set, as jose/public_keys.py has judged it
    jwks_uri: str | None = None
    introspects: bool = False
    server: str | None = None  # the one that it is for

    def check(self, known: Vocabulary) -> list[str]:
        problems: list[str] = []
        if not clean(self.name, NAME_LENGTH) or clean(self.name, NAME_LENGTH) != self.name:
            problems.append(f"name: one line of 1 to {NAME_LENGTH} plain characters")
        if self.client_id is not None and not _is_plain_id(self.client_id):
            problems.append("client_id: letters, digits and . _ - only, and not an address")
        problems += [*self._about_proof(), *self._about_grants()]
        problems += [
            f"redirect_uris: {uri[:100]!r} is not https, http on loopback, or an application's own scheme"
            for uri in self.redirect_uris
            if not redirects.is_acceptable(uri)
        ]
        named = scopes.parse(self.scope)
        if not named or any(scope not in known and scope != scopes.EVERYTHING for scope in named):
            problems.append(f"scope: some of {scopes.join(known.names)}")
        return problems

    def _about_proof(self) -> list[str]:
        if self.auth_method not in AUTH_METHODS:
            return [f"auth_method: one of {', '.join(AUTH_METHODS)}"]
        places = (self.jwks is not None) + (self.jwks_uri is not None)
        if places != (self.auth_method == PRIVATE_KEY):
            return [f"jwks: one set of public keys, or its address, goes with {PRIVATE_KEY}"]
        if self.jwks_uri is not None and not is_fetchable(self.jwks_uri):
            return ["jwks_uri: an https address"]
        if self.introspects and self.auth_method == "none":
            return ["introspects: only a client with a secret or a key may ask about tokens"]
        return []

    def _about_grants(self) -> list[str]:
        grants = set(self.grant_types)
        if not grants <= set(ALL_GRANT_TYPES) or not (grants or self.introspects):
            return [f"grant_types: some of {', '.join(ALL_GRANT_TYPES)}"]
        if grants == {REFRESH_TOKEN}:
            return [f"grant_types: {REFRESH_TOKEN} alone begins no login"]
        for unasked in (CLIENT_CREDENTIALS, JWT_BEARER):
            if unasked in grants and self.auth_method == "none":
                return [f"grant_types: {unasked} is for clients with a secret or a key"]
        if AUTHORIZATION_CODE in grants and not self.redirect_uris:
            return [f"redirect_uris: {AUTHORIZATION_CODE} needs one"]
        return []


def is_fetchable(uri: str) -> bool:
    """Return whether an address of keys can be registered. Who fetches it finds out whether it may be connected to."""
    return isinstance(read_address(uri), DocumentAddress)


def _is_plain_id(text: str) -> bool:
    letters = text.replace(".", "").replace("_", "").replace("-", "")
    return text.isascii() and letters.isalnum() and len(text) <= ID_LENGTH


def add(db: Db, registration: ClientRegistration, *, seed: bytes, by: str, now: Millis) -> NewClient | None:
    """Add a client, as a job, by a registration that `check` had nothing against; return None if the id is taken."""
    entropy = Entropy(seed)
    client_id = registration.client_id or entropy.identifier("cli")
    secret = entropy.token() if registration.auth_method in SECRET_METHODS else None
    added = insert(
        db, client_id, registration, kind="registered", hashed=secret and secret_hash(secret), now=now
    )
    _record(db, "client.added", client_id, by, now, refused="" if added else "id is taken")
    client = lookup(db, client_id) if added else None
    return None if client is None else NewClient(client=client, secret=Secret(secret) if secret else None)


def insert(
    db: Db,
    client_id: str,
    registration: ClientRegistration,
    *,
    kind: str,
    hashed: str | None,
    now: Millis,
    registration_hash: str | None = None,
    network: str | None = None,
    metadata: str = "{}",
) -> bool:
    """Insert a client; return False if there is one of this id already, which is left as it is."""
    row = {
        "id": client_id,
        "kind": kind,
        "secret_hash": hashed,
        **columns(registration),
        "state": "enabled",
        "introspects": int(registration.introspects),
        "server": registration.server,
        "registration_hash": registration_hash,
        "network": network,
        "metadata": metadata,
        "created_at": now,
    }
    return bool(sealed_rows.insert(db, sealed_rows.CLIENTS, row, conflict=" ON CONFLICT (id) DO NOTHING"))


def columns(registration: ClientRegistration) -> dict[str, object]:
    """Return the columns of a client that its registration fills, also when it changes."""
    return {
        "name": registration.name,
        "auth_method": registration.auth_method,
        "grant_types": " ".join(registration.grant_types),
        "redirect_uris": " ".join(registration.redirect_uris),
        "scope": scopes.join(scopes.parse(registration.scope)),
        "client_uri": registration.client_uri,
        "jwks": registration.jwks,
        "jwks_uri": registration.jwks_uri,
    }


def listing(db: Db, *, after: tuple[Millis, str] = (-1, ""), at_most: int = LISTED) -> list[Client]:
    """List a page of all there are, the oldest first: those after the one that was made then and has this id."""
    rows = db.fetch_all(
        "SELECT * FROM clients WHERE (created_at, id) > (?, ?) ORDER BY created_at, id LIMIT ?",
        *after,
        at_most,
    )
    return [Client.of(sealed_rows.checked(db, sealed_rows.CLIENTS, row)) for row in rows]


def disable(db: Db, client_id: str, *, by: str, now: Millis) -> bool:
    """Disable a client, as a job: from its commit on, its logins and tokens are refused. False if there is nothing to disable."""
    return _switch(db, client_id, ("enabled", "disabled"), "client.disabled", by, now)


def enable(db: Db, client_id: str, *, by: str, now: Millis) -> bool:
    """Enable a client, as a job. Logins that were not revoked meanwhile work again."""
    return _switch(db, client_id, ("disabled", "enabled"), "client.enabled", by, now)


def rotate_secret(db: Db, client_id: str, *, seed: bytes, by: str, now: Millis) -> Secret | None:
    """Give another secret, as a job; the old one is worth nothing from its commit on. Logins go on. None if it has no secret."""
    secret = Entropy(seed).token()
    db.takes_away()
    client = lookup(db, client_id)
    rotated = (
        client is not None
        and client.secret_hash is not None
        and sealed_rows.update(db, sealed_rows.CLIENTS, client_id, {"secret_hash": secret_hash(secret)})
    )
    if rotated:
        db.changed("client", client_id)
    _record(db, "client.secret_rotated", client_id, by, now, refused="" if rotated else "has no secret")
    return Secret(secret) if rotated else None


def remove(db: Db, client_id: str, *, by: str, now: Millis) -> bool:
    """Remove the client, as a job, and with it every login that it has or had; return False if there is none, or it is built in."""
    client = lookup(db, client_id)
    removable = client is not None and client.kind != "builtin"
    if removable:
        reason = f"{delete(db, client_id)} logins went with it"
        _record(db, "client.removed", client_id, by, now, reason=reason)
    else:
        _record(db, "client.removed", client_id, by, now, refused="no such client to remove")
    return removable


def delete(db: Db, client_id: str) -> int:
    """Delete the row and all that hangs on it, as part of a job; return how many logins that were. All processes forget them then."""
    db.takes_away()
    db.execute("DELETE FROM device_codes WHERE client_id = ?", client_id)
    ended = db.execute("DELETE FROM grants WHERE client_id = ?", client_id)
    db.execute("DELETE FROM clients WHERE id = ?", client_id)
    db.changed("client", client_id)
    return ended


def _switch(db: Db, client_id: str, states: tuple[str, str], event: str, by: str, now: Millis) -> bool:
    before, after = states
    if after == "disabled":
        db.takes_away()
    changed = sealed_rows.update(db, sealed_rows.CLIENTS, client_id, {"state": after}, when={"state": before})
    if changed:
        db.changed("client", client_id)
    _record(db, event, client_id, by, now, refused="" if changed else f"not {before}")
    return changed


def _record(
    db: Db, event: str, client_id: str, by: str, now: Millis, *, reason: str = "", refused: str = ""
) -> None:
    actor = audit_trail.actor(by)
    audit_trail.record(db, now, event, actor=actor, client_id=client_id, reason=reason, refused=refused)
