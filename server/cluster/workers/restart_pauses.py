"""How long a worker that has ended is waited with before it is started again."""

from __future__ import annotations

from typing import Final

# One that has lived for so long did not die of its start.
STEADY_SECONDS: Final = 60.0
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


class Pauses:
    """Of one worker. What dies soon again and again is waited with twice as long each time."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def after(self, lived_seconds: float) -> float:
        """→ seconds; none after a steady life."""
        if lived_seconds >= STEADY_SECONDS:
            self._next = FIRST_SECONDS
            return 0.0
        pause, self._next = self._next, min(self._next * 2, LONGEST_SECONDS)
        return pause
