"""Whether an agent is out of order: since when, and what was said of it last. For its owner, never for a caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from server.agents.base.backend import Trouble

# Statuses that say something of the agent, or of our credentials there, rather than of what it was asked.
NOT_THE_CALLERS: Final = frozenset({401, 403, 404, 405})
WORDS: Final = 500


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


class TroubleWatch:
    """`found` None: it is in order, as far as is known."""

    def __init__(self, clock: Callable[[], int] = wall_clock) -> None:
        self.found: Trouble | None = None
        self.unreached = False  # that is what is wrong, so that reaching it again is the end of it
        self._clock = clock

    def begins(self, words: str, *, unreached: bool = False) -> None:
        """Or goes on: the words are the last ones, the time is that of the first."""
        self.unreached = unreached
        since = self._clock() if self.found is None else self.found.since
        self.found = Trouble(words[:WORDS], since)

    def is_over(self) -> None:
        self.found = None

    def reached(self) -> None:
        """It is there. What it says to those who ask it something is not known by that."""
        if self.unreached:
            self.found = None


def is_trouble(status: int) -> bool:
    return status >= 500 or status in NOT_THE_CALLERS
