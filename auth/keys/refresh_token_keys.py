"""The keys that refresh tokens are proven with: sealed for the store, in memory as a ring, replaced and dropped.

The number in a token's `rt<v>` names its key. The newest key writes; one that was replaced is accepted until the last login
that can have a token of it is over. When a key is replaced is key_rotation.py's; the tokens are in grants/refresh_tokens.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from auth.audit import audit_trail
from auth.keys import sealed_secrets
from auth.values.database import Db, Row, from_row
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import TokenPolicy

SEAL_PURPOSE: Final = "refresh-keys"
SECRET_BYTES: Final = 32
PAGE: Final = 1_000  # rows read at once
ALGORITHM: Final = "HS256"
# A database of an older version has logins that were proven with this subkey, as version 1.
DERIVED_PURPOSE: Final = "refresh-token-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class RefreshKey:
    version: int
    secret: bytes = field(repr=False)
    accepted_until: Millis | None = None  # None: it was not replaced


@dataclass(frozen=True, kw_only=True, slots=True)
class SpareRefreshKey:
    """A key for a job that may need one. It is sealed in there, since only there its version is known."""

    secret: bytes = field(repr=False)
    nonce: bytes = field(repr=False)
    seal_key: bytes = field(repr=False)
    accepts_ms: Millis  # how long the key before this one is accepted still

    def sealed(self, version: int) -> str:
        return sealed_secrets.seal(self.seal_key, self.secret, nonce=self.nonce, bound_to=_bound_to(version))


def prepare(
    subkey: Callable[[str], bytes],
    entropy: Callable[[int], bytes],
    tokens: TokenPolicy,
    *,
    secret: bytes | None = None,
) -> SpareRefreshKey:
    """From the system's generator, unless `secret` is given: not for use inside a job."""
    return SpareRefreshKey(
        secret=entropy(SECRET_BYTES) if secret is None else secret,
        nonce=entropy(sealed_secrets.NONCE_BYTES),
        seal_key=subkey(SEAL_PURPOSE),
        # The longest that a login can last which began a moment ago. Most tokens die sooner, unused; one of theirs that is
        # shown later is then still known for what it is, and ends the login.
        accepts_ms=max(tokens.refresh_idle_ms, tokens.device_login_ms, tokens.code_login_ms),
    )


def unseal(row: Row, seal_key: bytes) -> RefreshKey:
    version = row["version"]
    secret = sealed_secrets.unseal(
        seal_key, row["sealed_secret"], bound_to=_bound_to(version), what=f"refresh key {name_of(row)}"
    )
    return from_row(RefreshKey, row, secret=secret)


def name_of(row: Row) -> str:
    """As tokens begin, and as people see it."""
    return f"rt{row['version']}"


def _bound_to(version: int) -> str:
    return f"{SEAL_PURPOSE}:{version}"


class RefreshRing:
    """Every key that a refresh token may name. Immutable; a change makes a new ring."""

    def __init__(self, keys: Sequence[RefreshKey]) -> None:
        in_order = sorted(keys, key=lambda key: key.version)
        self._keys = {str(key.version): key for key in in_order}  # as it is written in a token
        self._newest = in_order[-1] if in_order else None

    def __repr__(self) -> str:
        return f"RefreshRing({', '.join(f'rt{version}' for version in self._keys)})"

    def get(self, version: str, now: Millis) -> RefreshKey | None:
        key = self._keys.get(version)
        if key is None or (key.accepted_until is not None and key.accepted_until <= now):
            return None
        return key

    def lacks(self, token: str) -> bool:
        """Whether it names a key that is not here, as far as it can be read."""
        return token[2:].partition(".")[0] not in self._keys

    def newest(self) -> RefreshKey:
        """The key that writes, whatever the clock says. Raises LookupError on an empty ring: setup makes the first key."""
        if self._newest is None:
            raise LookupError("no refresh key")
        return self._newest


# ---------------------------------------------------------------- parts of jobs


def rows(db: Db) -> list[Row]:
    found: list[Row] = []
    while True:  # in pages, however many there are
        last = found[-1]["version"] if found else -1
        page = db.fetch_all(
            "SELECT * FROM refresh_keys WHERE version > ? ORDER BY version LIMIT ?", last, PAGE
        )
        found += page
        if len(page) < PAGE:
            return found


def is_over(row: Row, now: Millis) -> bool:
    """Whether no token of it is accepted any more."""
    return not row["sealed_secret"] or (row["accepted_until"] is not None and row["accepted_until"] <= now)


def replace(db: Db, spare: SpareRefreshKey, *, by: str, now: Millis) -> None:
    """A new key writes from now on. In one database no version names two keys: the newest row is never swept."""
    version = 1 + max((row["version"] for row in rows(db)), default=0)
    db.execute(
        "UPDATE refresh_keys SET accepted_until = ? WHERE accepted_until IS NULL", now + spare.accepts_ms
    )
    db.execute(
        "INSERT INTO refresh_keys (version, sealed_secret, created_at, accepted_until) VALUES (?, ?, ?, NULL)",
        version,
        spare.sealed(version),
        now,
    )
    db.changed("key", f"rt{version}")
    audit_trail.record(db, now, "key.added", actor=audit_trail.actor(by), reason=f"rt{version}")


def drop_all(db: Db, *, by: str, now: Millis) -> tuple[str, ...]:
    """Every refresh token dies; `replace` must follow. Which keys were dropped."""
    dropped = [row for row in rows(db) if row["sealed_secret"]]
    for row in dropped:
        db.execute(
            "UPDATE refresh_keys SET accepted_until = ?, sealed_secret = '' WHERE version = ?",
            now,
            row["version"],
        )
        db.changed("key", name_of(row))
        audit_trail.record(db, now, "key.dropped", actor=audit_trail.actor(by), reason=name_of(row))
    return tuple(name_of(row) for row in dropped)


def forget(db: Db, version: int, *, by: str, now: Millis) -> None:
    """Destroy the secret part of a key that is over."""
    forgotten = db.execute(
        "UPDATE refresh_keys SET sealed_secret = '' WHERE version = ? AND sealed_secret <> ''", version
    )
    if forgotten:
        db.changed("key", f"rt{version}")
        audit_trail.record(db, now, "key.retired", actor=audit_trail.actor(by), reason=f"rt{version}")
