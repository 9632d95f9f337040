"""How many calls an agent has at once: whoever comes when all places are taken waits, and not for ever. Callers take turns: one who brings a
hundred calls at once gets no more places than another who brings two.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from server.backends.base import BackendError

TURN_SECONDS: Final = 10.0
# As many as an owner's tasks may be; who calls beyond that is told to come back.
MOST_WAITING: Final = 10_000
BUSY: Final = "the agent is busy: as many calls as it may run at once are running"


class Turns:
    def __init__(self, at_once: int) -> None:
        self._free = at_once
        # Those who wait, by caller, the one whose turn is next first; nobody's queue is empty.
        self._waiting: dict[str, deque[trio.Event]] = {}
        self._count = 0

    @asynccontextmanager
    async def taken(self, subject: str, *, unhurried: bool) -> AsyncGenerator[Turn]:
        """A place, for as long as the block. `unhurried`: it waits for its turn as long as it takes. Raises `BackendError`."""
        turn = Turn(self, subject)
        await turn.take(math.inf if unhurried else TURN_SECONDS)
        try:
            yield turn
        finally:
            turn.leave()

    async def acquire(self, subject: str, seconds: float) -> None:
        """Raises `BackendError`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._free and not self._waiting:
            self._free -= 1
            return
        if self._count >= MOST_WAITING:
            raise BackendError(BUSY)
        granted = trio.Event()
        self._waiting.setdefault(subject, deque()).append(granted)
        self._count += 1
        try:
            with trio.move_on_after(seconds):
                await granted.wait()
        except BaseException:  # cancelled: if it was given a place meanwhile, that is somebody else's
            if granted.is_set():
                self.release()
            else:
                self._drop(subject, granted)
            raise
        if not granted.is_set():
            self._drop(subject, granted)
            raise BackendError(BUSY)

    def release(self) -> None:
        """To the caller who is next, who then comes last."""
        if not self._waiting:
            self._free += 1
            return
        subject = next(iter(self._waiting))
        queue = self._waiting.pop(subject)
        queue.popleft().set()
        self._count -= 1
        if queue:
            self._waiting[subject] = queue

    def _drop(self, subject: str, granted: trio.Event) -> None:
        queue = self._waiting[subject]
        queue.remove(granted)
        self._count -= 1
        if not queue:
            del self._waiting[subject]


class Turn:
    """One call's place."""

    def __init__(self, turns: Turns, subject: str) -> None:
        self._turns = turns
        self._subject = subject
        self._taken = False

    async def take(self, seconds: float = math.inf) -> None:
        """It may be taken already."""
        if not self._taken:
            await self._turns.acquire(self._subject, seconds)
            self._taken = True

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._turns.release()
