"""Which API keys there are, in memory: asked at every use, read from the store again when one of them, or its user, changed.

All of them are held, so that somebody who tries made-up keys is answered without a look into the store. What is to be written
about their use is gathered here too, and written by whoever calls `take`: no call waits for a write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from auth import audit
from auth.tokens.api_keys import ApiKey
from auth.tokens.live import StoredChange
from auth.values.db import Db
from auth.values.model import Millis

# A read can only be overtaken by a change. Five in a row is somebody who changes keys in a loop.
ATTEMPTS: Final = 5
# How many refusals wait to be written (each minute, see the server), and how many are remembered, so that each is written
# once an hour at most. Whoever tries keys from many addresses fills no table.
MAX_REFUSALS: Final = 8
MAX_REMEMBERED: Final = 2_048
REMEMBERED_MS: Final = 3_600_000
# Of keys that are not known here, and may have been made elsewhere a moment ago: so many are looked for at once, and one more each second.
# Whoever makes keys up, in the right form, has the store read no more often.
LOOKS: Final = 8
LOOK_MS: Final = 1_000
# Uses per write: about a millisecond of the store's time.
PIECE: Final = 200


class ApiKeyRing:
    """One per process. `read` is `api_keys.every`, in the store."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[ApiKey]]]) -> None:
        self._read = read
        self._by_digest: Mapping[bytes, ApiKey] = {}
        self._by_id: Mapping[str, ApiKey] = {}
        self._users: frozenset[str] = frozenset()
        self._changes, self._seen, self._reading = 1, 0, 0
        self._trusted = True
        self.shared = False  # there are others, who make keys as well
        self._looked_for: dict[bytes, None] = {}  # lately, and in vain if they are still not known
        self._looks_until: Millis = 0  # when all looks are free again
        self.stale = True  # then nothing that is remembered counts: `reload` first

    def apply_changes(self, changes: Iterable[StoredChange]) -> None:
        """A user's changes count only if a key is theirs; while a read is under way, nobody knows yet whose it will bring."""
        for change in changes:
            if change.kind == "api_key" or (
                change.kind == "user" and (self._reading or change.entity_id in self._users)
            ):
                self._changes += 1
                self.stale = True
                return

    def trust(self, trusted: bool) -> None:
        """With False: what was read serves whoever asked for it, and then `settle` is called."""
        self._trusted = trusted
        if not trusted:
            self._changes += 1
            self.stale = True

    def settle(self) -> None:
        if not self._trusted:
            self.stale = True

    async def reload(self) -> bool:
        """False if changes overtook every read: then it stays stale."""
        for _ in range(ATTEMPTS):
            if not self.stale:
                return True
            changes = self._changes
            self._reading += 1
            try:
                found = await self._read()
            finally:
                self._reading -= 1
            if changes >= self._seen:
                self._by_digest = {bytes.fromhex(key.key_hash): key for key in found}
                self._by_id = {key.id: key for key in found}
                self._users = frozenset(key.user_id for key in found)
                self._seen = changes
                self.stale = changes < self._changes
        return not self.stale

    def find(self, digest: bytes) -> ApiKey | None:
        """By the SHA-256 of a key."""
        return self._by_digest.get(digest)

    def may_be_new(self, digest: bytes, now: Millis) -> bool:
        """Of a key that is not known here: whether to `reload`, once, because another process may have made it."""
        busy = max(0, self._looks_until - now)
        if busy > LOOKS * LOOK_MS:  # the clock was put back
            busy = 0
        if not self.shared or digest in self._looked_for or busy + LOOK_MS > LOOKS * LOOK_MS:
            return False
        self._looks_until = now + busy + LOOK_MS
        while len(self._looked_for) >= MAX_REMEMBERED:
            del self._looked_for[next(iter(self._looked_for))]
        self._looked_for[digest] = None
        self._changes += 1
        self.stale = True
        return True

    def get(self, key_id: str) -> ApiKey | None:
        return self._by_id.get(key_id)

    def __len__(self) -> int:
        return len(self._by_digest)


class KeyUse(msgspec.Struct, frozen=True):
    key_id: str
    at: Millis
    address: str


class KeyRefusal(msgspec.Struct, frozen=True):
    key_id: str  # empty: no key of ours
    reason: str
    at: Millis
    address: str


class UseNotes(msgspec.Struct, frozen=True):
    """What one write notes."""

    uses: tuple[KeyUse, ...]
    refusals: tuple[KeyRefusal, ...]


class KeyUsage:
    """Bounded: by the number of keys, and by `MAX_REFUSALS`; what goes beyond that is not told."""

    def __init__(self) -> None:
        self._uses: dict[str, KeyUse] = {}
        self._refusals: list[KeyRefusal] = []
        self._remembered: dict[tuple[str, str, str], Millis] = {}

    def used(self, key_id: str, now: Millis, address: str) -> None:
        self._uses[key_id] = KeyUse(key_id, now, address)

    def refused(self, key_id: str, reason: str, now: Millis, address: str) -> None:
        """The first of its kind in an hour."""
        # A key of ours is told apart by itself, whoever shows it; anything else by where it comes from.
        which = (key_id, reason, "" if key_id else address)
        known = self._remembered.get(which)
        if (known is not None and now < known + REMEMBERED_MS) or len(self._refusals) >= MAX_REFUSALS:
            return
        self._remembered.pop(which, None)
        while len(self._remembered) >= MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[which] = now
        self._refusals.append(KeyRefusal(key_id, reason, now, address))

    def take(self) -> UseNotes | None:
        """What there is to write, a piece of it; it is forgotten here."""
        if not self._uses and not self._refusals:
            return None
        uses = tuple(self._uses.pop(key_id) for key_id in list(self._uses)[:PIECE])
        refusals, self._refusals = tuple(self._refusals), []
        return UseNotes(uses, refusals)


def note(db: Db, notes: UseNotes) -> None:
    """A job. Nothing that anybody caches is changed by it."""
    for use in notes.uses:
        db.execute(
            "UPDATE api_keys SET last_used_at = ?, last_used_ip = ?"
            " WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)",
            use.at,
            use.address,
            use.key_id,
            use.at,
        )
    for refusal in notes.refusals:
        audit.record(
            db,
            at=refusal.at,
            event="api_key.used",
            outcome="refused",
            reason=refusal.reason,
            grant_id=refusal.key_id or None,
            ip=refusal.address,
        )
