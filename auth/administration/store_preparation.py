"""What the store must hold before the first request: an owner, the built-in client, a signing key, a refresh key and epoch.

Run at every start; it adds what is missing and changes nothing that is there, but for what a built-in client may do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from auth.audit import audit_trail
from auth.clients import client_registry as clients
from auth.clients.client_registry import CLI_CLIENT_ID, ClientRegistration
from auth.grants.token_request import REFRESH_EPOCH
from auth.keys import refresh_token_keys as refresh_keys
from auth.keys import sealed_secrets
from auth.keys import signing_keys as keys
from auth.keys.signing_keys import SEAL_PURPOSE, SealedKey
from auth.values import scopes, sealed_rows
from auth.values.database import Db
from auth.values.entropy import SEED_BYTES, Entropy
from auth.values.identity_model import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN, Millis
from auth.values.limits_and_lifetimes import TokenPolicy

BUILT_IN: Final = {
    CLI_CLIENT_ID: ClientRegistration(
        name="Ostiary in a terminal",
        grant_types=(DEVICE_CODE, AUTHORIZATION_CODE, REFRESH_TOKEN),
        # Without a port: on this machine a program takes whichever is free (RFC 8252 §7.3).
        redirect_uris=("http://127.0.0.1/callback",),
    ),
}
SETUP: Final = "local:setup"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """What the job needs and must not make itself: keys, and randomness."""

    key: SealedKey
    refresh: refresh_keys.SpareRefreshKey
    older_refresh: refresh_keys.SpareRefreshKey  # the key of a database of an older version
    seed: bytes = field(repr=False)


def prepare(
    subkey: Callable[[str], bytes], entropy: Callable[[int], bytes], tokens: TokenPolicy, now: Millis
) -> Preparation:
    return Preparation(
        key=keys.generate(subkey(SEAL_PURPOSE), nonce=entropy(sealed_secrets.NONCE_BYTES), now=now),
        refresh=refresh_keys.prepare(subkey, entropy, tokens),
        older_refresh=refresh_keys.prepare(
            subkey, entropy, tokens, secret=subkey(refresh_keys.DERIVED_PURPOSE)
        ),
        seed=entropy(SEED_BYTES),
    )


def found(db: Db, preparation: Preparation, now: Millis) -> str:
    """A job. The owner's user id."""
    entropy = Entropy(preparation.seed)
    owner_id, epoch = entropy.identifier("usr"), entropy.identifier("epo")
    owner = db.fetch_one("SELECT id FROM users WHERE role = 'owner'")
    if owner is None:
        row = {
            "id": owner_id,
            "name": "owner",
            "role": "owner",
            "state": "unclaimed",
            "passphrase_hash": None,
            "scope": scopes.EVERYTHING,
            "tools": "",
            "created_at": now,
            "expires_at": None,
        }
        sealed_rows.insert(db, sealed_rows.USERS, row)
        audit_trail.record(db, now, "user.added", actor=SETUP, reason=f"{owner_id} owner, unclaimed")
    for client_id, registration in BUILT_IN.items():
        if clients.insert(db, client_id, registration, kind="builtin", hashed=None, now=now):
            audit_trail.record(db, now, "client.added", actor=SETUP, client_id=client_id, reason="built in")
        elif _grown(db, client_id, registration):
            audit_trail.record(db, now, "client.changed", actor=SETUP, client_id=client_id, reason="built in")
    # A restore retires those of the copy. One that should sign and cannot is for the self-test to find.
    if db.fetch_one("SELECT kid FROM signing_keys WHERE sealed_private <> '' OR retires_at IS NULL") is None:
        keys.insert(db, preparation.key)
        audit_trail.record(db, now, "key.added", actor=SETUP, reason=preparation.key.kid)
    _add_refresh_key(db, preparation, now)
    if db.fetch_one("SELECT value FROM meta WHERE key = ?", REFRESH_EPOCH) is None:
        db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", REFRESH_EPOCH, epoch)
    return owner_id if owner is None else owner["id"]


def _grown(db: Db, client_id: str, registration: ClientRegistration) -> bool:
    """A database of an older version has this client as it was then."""
    row = db.fetch_one("SELECT * FROM clients WHERE id = ? AND kind = 'builtin'", client_id)
    wanted = {
        "grant_types": " ".join(registration.grant_types),
        "redirect_uris": " ".join(registration.redirect_uris),
    }
    if row is None or all(row[name] == value for name, value in wanted.items()):
        return False
    return sealed_rows.update(db, sealed_rows.CLIENTS, client_id, wanted, row=row)


def _add_refresh_key(db: Db, preparation: Preparation, now: Millis) -> None:
    """If none writes: at the first start, and after a restore, which destroys those of the copy."""
    if db.fetch_one("SELECT version FROM refresh_keys WHERE accepted_until IS NULL LIMIT 1") is not None:
        return
    none_yet = db.fetch_one("SELECT version FROM refresh_keys LIMIT 1") is None
    living = (
        "SELECT g.id FROM grants g JOIN meta m ON m.key = ? AND m.value = g.epoch"
        " WHERE g.revoked_at IS NULL AND g.expires_at > ? LIMIT 1"
    )
    if none_yet and db.fetch_one(living, REFRESH_EPOCH, now):
        # Logins of an older version go on: their tokens are of this key, and the next ones of a new one.
        refresh_keys.replace(db, preparation.older_refresh, by=SETUP, now=now)
    refresh_keys.replace(db, preparation.refresh, by=SETUP, now=now)
