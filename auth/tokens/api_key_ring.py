"""API keys in memory, asked at every use; a row that changed is read again when its key is shown.

All keys are held, so that somebody who tries made-up ones is answered without a look into the store. A change is applied by its id: who
shows another key waits for nothing. What is to be written about their use is gathered here too, and written by whoever calls `take`: no
call waits for a write.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from auth.audit import audit_trail
from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKey
from auth.tokens.live_logins import StoredChange
from auth.values.database import ChangedWhileRead, Db, JobStore, NotStored
from auth.values.identity_model import Millis

# A read can only be overtaken by a change of its own row. Five in a row is somebody who changes one key in a loop.
ATTEMPTS: Final = 5
# Changed rows that nobody has asked for yet; beyond this all keys are read, once somebody shows one that is not known.
MAX_UNREAD: Final = 1_000
# Keys that ended since all were read, on top of those that the store may have at once.
MAX_HELD: Final = api_keys.MAX_KEYS + api_keys.REVOKED_KNOWN + 1_000
# How many refusals wait to be written (each minute, see the server), and how many are remembered, so that each is written
# once an hour at most. Whoever tries keys from many addresses fills no table.
MAX_REFUSALS: Final = 8
MAX_REMEMBERED: Final = 2_048
REMEMBERED_MS: Final = 3_600_000
# Of keys that are not known here, and may have been made elsewhere a moment ago: so many are looked for at once, and one more each second;
# of any other nobody knows. Of one key each request looks, while no other has found whether it is one, up to so many at once. Whoever makes
# keys up, in the right form, has the store read no more often.
LOOKS: Final = 8
LOOK_MS: Final = 1_000
SAME_LOOKS: Final = 16
# Rows per read or write: about a millisecond of the store's time.
PIECE: Final = 200


class KeyNotLookedFor(NotStored):
    """An answer that is not known: another process may have made this key, and was not asked."""

    def __init__(self) -> None:
        super().__init__("more keys were shown that are not known here than are looked for")


class _RingRead(msgspec.Struct, eq=False):
    """A read under way, and what changed meanwhile."""

    changed: set[tuple[str, str]] = msgspec.field(default_factory=set[tuple[str, str]])
    lost: bool = False  # changes may have been missed

    def overtook(self, key: ApiKey | None) -> bool:
        """Tell whether the key that was read may be older than a change."""
        if self.lost or key is None:
            return self.lost
        return not self.changed.isdisjoint((("api_key", key.id), ("user", key.user_id)))


class ApiKeyRing:
    """The keys that one process knows."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._by_id: dict[str, ApiKey] = {}
        self._by_digest: dict[bytes, ApiKey] = {}
        self._of_user: dict[str, set[str]] = {}
        self._revoked: dict[str, None] = {}  # of those in `_by_id`, the oldest first
        self._doubted: set[str] = set()  # ids of known keys that changed since they were read
        self._unread: dict[str, None] = {}  # ids of others that changed
        self._complete = False  # a key that is neither known nor unread is none
        self._trusted = True  # what others change is heard of
        self._reads: set[_RingRead] = set()
        self._catching_up = False  # somebody does; others have their own key read meanwhile
        self.shared = False  # there are others, who make keys as well
        self._looked_for: dict[bytes, None] = {}  # lately, and in vain
        self._looking_for: dict[bytes, int] = {}  # and by how many requests
        self._looks_until: Millis = 0  # when all looks are free again

    # ── what changes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def apply_changes(self, changes: Iterable[StoredChange]) -> None:
        """Doubt the rows that these concern. Called after a commit, before those who wrote it go on."""
        concerned = [(each.kind, each.entity_id) for each in changes if each.kind in ("api_key", "user")]
        for read in self._reads:
            read.changed.update(concerned)
        self._doubt(concerned)

    def trust(self, trusted: bool) -> None:
        """With False, remember nothing until True: each request has its own key read."""
        self._trusted = trusted
        if not trusted:
            for read in self._reads:
                read.lost = True
            self._forget()

    def _doubt(self, concerned: Iterable[tuple[str, str]]) -> None:
        for kind, entity_id in concerned:
            if kind == "user":
                self._doubted.update(self._of_user.get(entity_id, ()))
            elif entity_id in self._by_id:
                self._doubted.add(entity_id)
            elif self._complete:
                self._unread[entity_id] = None
        if len(self._unread) > MAX_UNREAD:
            self._unread.clear()
            self._complete = False

    # ── what is known ────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, digest: bytes) -> ApiKey | None:
        """Return the key with this SHA-256, if its row is known to be as it was read."""
        key = self._by_digest.get(digest)
        return None if key is None or key.id in self._doubted else key

    def must_ask(self, digest: bytes) -> bool:
        """Tell whether a key that `find` does not return may be one all the same: then `fetch`."""
        return (
            not self._complete
            or bool(self._unread)
            or digest in self._by_digest
            or (self.shared and digest not in self._looked_for)
        )

    async def fetch(self, digest: bytes, now: Millis) -> ApiKey | None:
        """Return the key with this SHA-256 as the store has it; None if there is none. Raises `ChangedWhileRead`, `KeyNotLookedFor`,
        and what the store raises: then nobody knows."""
        if self._trusted and not self._catching_up and digest not in self._by_digest:
            await self.catch_up()
            found = self.find(digest)
            if found is not None:
                return found
            if self._complete and digest not in self._by_digest:
                return await self._look_elsewhere(digest, now) if self.must_ask(digest) else None
        return await self._read_shown(digest)

    async def _read_shown(self, digest: bytes) -> ApiKey | None:
        key = await self._read(partial(api_keys.shown, key_hash=digest.hex()))
        if key is None and digest in self._by_digest:
            self._drop(self._by_digest[digest].id)
        return key

    async def current(self, key_id: str) -> ApiKey | None:
        """Return the key with this id as it is now; None if there is none. Raises as `fetch` does."""
        known = self._by_id.get(key_id)
        if known is not None and key_id not in self._doubted:
            return known
        key = await self._read(partial(api_keys.find, key_id=key_id))
        if key is None:
            self._drop(key_id)
        return key

    async def catch_up(self) -> None:
        """Read what may be new: all keys the first time and after a gap, else the rows that changed and nobody has asked for."""
        if self._catching_up or not self._trusted:
            return
        self._catching_up = True
        try:
            await (self._read_unread() if self._complete else self._read_all())
        finally:
            self._catching_up = False

    async def _read_all(self) -> None:
        with self._reading() as read:
            found = await self._store.read(api_keys.every)
            if read.lost:
                return
            self._forget()
            self._complete = True
            for key in reversed(found):  # those that were revoked last, at the end
                self._put(key)
            self._doubt(read.changed)

    async def _read_unread(self) -> None:
        unread = list(self._unread)
        for start in range(0, len(unread), PIECE):
            ids = unread[start : start + PIECE]
            with self._reading() as read:
                found = await self._store.read(partial(api_keys.some, ids=ids))
                if read.lost:
                    return
                for key_id in ids:
                    self._unread.pop(key_id, None)
                for key in found:
                    self._put(key)
                self._doubt(read.changed)

    def __len__(self) -> int:
        return len(self._by_id)

    async def _read(self, job: Callable[[Db], ApiKey | None]) -> ApiKey | None:
        """One key, and no other."""
        for _ in range(ATTEMPTS):
            with self._reading() as read:
                key = await self._store.read(job)
                if read.overtook(key):
                    continue
                if key is not None and self._trusted:
                    self._put(key)
                return key
        raise ChangedWhileRead

    @contextmanager
    def _reading(self) -> Generator[_RingRead]:
        read = _RingRead()
        self._reads.add(read)
        try:
            yield read
        finally:
            self._reads.discard(read)

    def _put(self, key: ApiKey) -> None:
        self._by_id[key.id] = self._by_digest[bytes.fromhex(key.key_hash)] = key
        self._of_user.setdefault(key.user_id, set()).add(key.id)
        self._doubted.discard(key.id)
        self._unread.pop(key.id, None)
        if key.revoked_at is not None:
            self._revoked[key.id] = None
            if len(self._revoked) > api_keys.REVOKED_KNOWN:
                self._drop(next(iter(self._revoked)))
        if len(self._by_id) > MAX_HELD:  # rows are swept without a word
            self._complete = False

    def _drop(self, key_id: str) -> None:
        key = self._by_id.pop(key_id, None)
        self._doubted.discard(key_id)
        self._revoked.pop(key_id, None)
        if key is None:
            return
        del self._by_digest[bytes.fromhex(key.key_hash)]
        others = self._of_user[key.user_id]
        others.discard(key_id)
        if not others:
            del self._of_user[key.user_id]

    def _forget(self) -> None:
        for each in (self._by_id, self._by_digest, self._of_user, self._revoked, self._doubted, self._unread):
            each.clear()
        self._looked_for.clear()
        self._complete = False

    # ── keys of others ───────────────────────────────────────────────────────────────────────────────────────────────

    def _busy(self, now: Millis) -> Millis:
        """For how long looks are taken."""
        busy = max(0, self._looks_until - now)
        return 0 if busy > LOOKS * LOOK_MS else busy  # the clock was put back

    async def _look_elsewhere(self, digest: bytes, now: Millis) -> ApiKey | None:
        """Look for a key that another process may have made, of which nobody has told yet. Raises `KeyNotLookedFor`."""
        looking = self._looking_for.get(digest, 0)
        if looking >= SAME_LOOKS:
            raise KeyNotLookedFor
        if not looking:
            busy = self._busy(now)
            if busy + LOOK_MS > LOOKS * LOOK_MS:
                raise KeyNotLookedFor
            self._looks_until = now + busy + LOOK_MS
        self._looking_for[digest] = looking + 1
        try:
            key = await self._read_shown(digest)
        finally:
            self._looking_for[digest] -= 1
            if not self._looking_for[digest]:
                del self._looking_for[digest]
        if key is None:  # a read that failed says nothing
            while len(self._looked_for) >= MAX_REMEMBERED:
                del self._looked_for[next(iter(self._looked_for))]
            self._looked_for[digest] = None
        return key


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
        self._undecided, self._why = 0, ""
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

    def undecided(self, why: str) -> None:
        """Count a request that was asked to come again, because nobody could say who made it."""
        self._undecided, self._why = self._undecided + 1, why

    def take_undecided(self) -> tuple[int, str]:
        """Return how many there were since it was asked last, and why the last one was."""
        told = self._undecided, self._why
        self._undecided, self._why = 0, ""
        return told

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
        key_id, reason = refusal.key_id or None, refusal.reason
        audit_trail.record(
            db, refusal.at, "api_key.used", refused=reason, grant_id=key_id, ip=refusal.address
        )
