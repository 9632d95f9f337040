"""Browsers that are sent to somebody else's authorization server and expected back (RFC 6749 §4.1): a trip counts once, in the browser that left,
for as long as people look for their phone.

The verifier (RFC 7636), and all else that the way back needs, is sealed in the store, under a digest of `state`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from auth.jose.base64url import pack
from auth.keys.sealed_secrets import open_struct, seal_struct
from auth.values.database import Db, JobStore
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE
from server.lib.secret import Secret

LIFETIME: Final[Millis] = 10 * MINUTE
SECRET_BYTES: Final = 32


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a trip that the way back needs."""

    verifier: Secret
    redirect_uri: str


T = TypeVar("T", bound=Trip)


class TripKind(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The trips of one table, which are told apart by the columns `of` besides their state."""

    shape: type[T]
    table: str
    of: tuple[str, ...]
    purpose: str  # of the subkey that seals them
    bound: str = ""  # what the digest stands behind, to which a sealed trip is bound

    def seal(
        self, trip: T, state: str, subkey: Callable[[str], bytes], entropy: Callable[[int], bytes]
    ) -> str:
        """Return `trip` as its row keeps it."""
        return seal_struct(subkey(self.purpose), trip, entropy, bound_to=self.bound + hash_of(state))

    def begin(self, db: Db, *of: str, state: str, cookie: str, sealed: str, now: Millis) -> None:
        """Remember a trip of the browser with this cookie, as a job."""
        columns = (*self.of, "state_hash", "browser_hash", "sealed", "expires_at")
        db.execute(
            f"INSERT INTO {self.table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            *(*of, hash_of(state), hash_of(cookie), sealed, now + LIFETIME),
        )

    async def come_back(
        self,
        store: JobStore,
        subkey: Callable[[str], bytes],
        *of: str,
        state: str,
        cookie: str,
        now: Millis,
    ) -> T | None:
        """Use a trip up, and return it; None where this browser has nothing of the kind under way."""
        sealed = await store.write(partial(self._take, of=of, state=state, cookie=cookie, now=now))
        if sealed is None:
            return None
        return open_struct(subkey(self.purpose), sealed, self.shape, bound_to=self.bound + hash_of(state))

    def _take(self, db: Db, *, of: tuple[str, ...], state: str, cookie: str, now: Millis) -> str | None:
        fits = "".join(f" AND {column} = ?" for column in self.of)
        won = db.execute(
            f"UPDATE {self.table} SET used_at = ? WHERE state_hash = ? AND browser_hash = ?{fits}"
            " AND used_at IS NULL AND expires_at > ?",
            *(now, hash_of(state), hash_of(cookie), *of, now),
        )
        row = self.row(db, state) if won == 1 else None
        return None if row is None else row[0]

    def row(self, db: Db, state: str) -> tuple[str, Millis] | None:
        """Return how a trip was sealed, and when it began, as part of a job."""
        row = db.fetch_one(
            f"SELECT sealed, expires_at FROM {self.table} WHERE state_hash = ?", hash_of(state)
        )
        return None if row is None else (row["sealed"], row["expires_at"] - LIFETIME)


def made_up(entropy: Callable[[int], bytes]) -> str:
    """Return a text that nobody can guess: a state, a verifier, a nonce."""
    return pack(entropy(SECRET_BYTES))


def hash_of(text: str) -> str:
    """Return the digest under which a state or a cookie is known."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
