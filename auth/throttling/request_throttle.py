"""How often one requester may post, per minute: a pure count over fixed windows, bounded in size.

In memory and per process: it protects the store's queue, and nothing depends on it being remembered. What must hold across
restarts and nodes (codes under way, guesses) is counted in the store.
"""

from __future__ import annotations

from typing import Final

from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import MINUTE

# A minute's worth of distinct requesters; beyond that the oldest count is forgotten, which only lets somebody in.
KEYS: Final = 20_000


class Throttle:
    def __init__(self, *, keys: int = KEYS) -> None:
        self._counts: dict[str, tuple[Millis, int]] = {}
        self._keys = keys

    def wait_seconds(self, key: str, limit: int, now: Millis) -> int:
        """Count one request under `key`: 0 if it may go on, else after how many seconds it may try again."""
        since, count = self._counted(key, now)
        if count >= limit:
            return max(1, -(-(since + MINUTE - now) // 1_000))
        self._note(key, since, count + 1)
        return 0

    def closed_seconds(self, key: str, limit: int, now: Millis) -> int:
        """The same without counting."""
        since, count = self._counted(key, now)
        return max(1, -(-(since + MINUTE - now) // 1_000)) if count >= limit else 0

    def count(self, key: str, now: Millis) -> None:
        since, count = self._counted(key, now)
        self._note(key, since, count + 1)

    def _note(self, key: str, since: Millis, count: int) -> None:
        if key not in self._counts and len(self._counts) >= self._keys:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = (since, count)

    def _counted(self, key: str, now: Millis) -> tuple[Millis, int]:
        since, count = self._counts.get(key, (now, 0))
        return (since, count) if since <= now < since + MINUTE else (now, 0)
