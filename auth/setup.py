"""What the store must hold before the first request: an owner, the built-in client, a signing key, a refresh epoch.

Run at every start; it adds what is missing and changes nothing that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from auth import audit, clients, keys, scopes
from auth.clients import CLI_CLIENT_ID, Registration
from auth.db import Db
from auth.entropy import SEED_BYTES, Entropy
from auth.grants.exchange import REFRESH_EPOCH
from auth.keys import NONCE_BYTES, SEAL_PURPOSE, SealedKey
from auth.model import DEVICE_CODE, REFRESH_TOKEN, Millis

BUILT_IN: Final = {
    CLI_CLIENT_ID: Registration(name="Ostiary in a terminal", grant_types=(DEVICE_CODE, REFRESH_TOKEN)),
}
SETUP: Final = "local:setup"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """What the job needs and must not make itself: a key pair, and randomness."""

    key: SealedKey
    seed: bytes = field(repr=False)


def prepare(subkey: Callable[[str], bytes], entropy: Callable[[int], bytes], now: Millis) -> Preparation:
    return Preparation(
        key=keys.generate(subkey(SEAL_PURPOSE), nonce=entropy(NONCE_BYTES), now=now),
        seed=entropy(SEED_BYTES),
    )


def found(db: Db, preparation: Preparation, now: Millis) -> str:
    """A job. The owner's user id."""
    entropy = Entropy(preparation.seed)
    owner_id, epoch = entropy.identifier("usr"), entropy.identifier("epo")
    owner = db.fetch_one("SELECT id FROM users WHERE role = 'owner'")
    if owner is None:
        db.execute(
            "INSERT INTO users (id, name, role, state, scope, created_at) VALUES (?, 'owner', 'owner', 'unclaimed', ?, ?)",
            owner_id,
            scopes.EVERYTHING,
            now,
        )
        audit.record(db, at=now, event="user.added", actor=SETUP, reason=f"{owner_id} owner, unclaimed")
    for client_id, registration in BUILT_IN.items():
        if clients.insert(db, client_id, registration, kind="builtin", hashed=None, now=now):
            audit.record(
                db, at=now, event="client.added", actor=SETUP, client_id=client_id, reason="built in"
            )
    if db.fetch_one("SELECT kid FROM signing_keys") is None:
        keys.insert(db, preparation.key)
        audit.record(db, at=now, event="key.added", actor=SETUP, reason=preparation.key.kid)
    if db.fetch_one("SELECT value FROM meta WHERE key = ?", REFRESH_EPOCH) is None:
        db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", REFRESH_EPOCH, epoch)
    return owner_id if owner is None else owner["id"]
