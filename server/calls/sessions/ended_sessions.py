"""The sessions that their clients ended: their ids are not taken up again (session_ids.py), also after a restart.

Kept until the id has expired anyway, and never more than so many. One that is forgotten before that could be taken up again by the
caller it was made for: what is lost is the 404, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final

from auth.values.identity_model import Millis
from server.store.jobs import Store, StoreDb

# Of one server, twice as many as it has sessions. Each costs some 200 bytes here and 100 in the database.
MAX_ENDED: Final = 8192


class EndedSessions:
    """The ended sessions of all servers. Without a `store` they are known as long as the process lasts."""

    def __init__(self, store: Store | None = None, *, most: int = MAX_ENDED) -> None:
        self._store = store
        self._most = most
        self._expiry: dict[str, Millis] = {}
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, ended: Callable[[str], None]) -> None:
        """Listen: `ended` is given the digest (`topic_of`) of each session that is ended from now on, here or at another node."""
        self._listeners.append(ended)

    def __contains__(self, session_id: str) -> bool:
        return topic_of(session_id) in self._expiry

    def __len__(self) -> int:
        return len(self._expiry)

    async def load(self) -> None:
        """Load what was ended before this process began. Raises `StoreError`."""
        if self._store is not None:
            self._expiry = dict(await self._store.read(partial(_newest, most=self._most)))

    async def add(self, session_id: str, expires_at: Millis) -> None:
        """Remember the end of a session. Raises `StoreUnavailable`."""
        id_hash = topic_of(session_id)
        if self._store is not None:
            await self._store.write(partial(_record, id_hash=id_hash, expires_at=expires_at, most=self._most))
        self.know(id_hash, expires_at)

    def know(self, id_hash: str, expires_at: Millis) -> None:
        """Remember an end that the store has already."""
        self._expiry[id_hash] = expires_at
        for ended in self._listeners:
            ended(id_hash)
        if len(self._expiry) > self._most:
            del self._expiry[min(self._expiry, key=self._expiry.__getitem__)]


def topic_of(session_id: str) -> str:
    """Return the digest by which a session is known where its id is not to be seen."""
    return hashlib.sha256(session_id.encode()).hexdigest()


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _newest(db: StoreDb, *, most: int) -> list[tuple[str, Millis]]:
    rows = db.fetch_all(
        "SELECT id_hash, expires_at FROM ended_sessions ORDER BY expires_at DESC LIMIT ?", most
    )
    return [(row["id_hash"], row["expires_at"]) for row in rows]


def _record(db: StoreDb, *, id_hash: str, expires_at: Millis, most: int) -> None:
    sql = "INSERT INTO ended_sessions (id_hash, expires_at) VALUES (?, ?) ON CONFLICT (id_hash) DO NOTHING"
    db.execute(sql, id_hash, expires_at)
    # The one that would have gone first goes now.
    db.execute(
        "DELETE FROM ended_sessions WHERE id_hash = (SELECT id_hash FROM ended_sessions ORDER BY expires_at LIMIT 1)"
        " AND (SELECT count(*) FROM ended_sessions) > ?",
        most,
    )
