"""Who waits for a passphrase to be hashed: a few at once, a few behind them, and people who were here before go first.

Hashing is slow on purpose, and strangers can ask for it. Whoever finds the queue full is told to come back, before a try of
theirs is counted; a crowd of strangers at the sign-in page keeps nobody waiting who comes from a browser of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import trio

from auth.context.identity_parts import HashingBusy

# Argon2id takes 26 ms and 19 MiB each: two at once keep the machine responsive while somebody guesses.
HASHES_AT_ONCE: Final = 2
# Of strangers, and as many of those who go first: a quarter of a second each, and nobody waits longer for nothing.
WAITING: Final = 20


class HashQueue:
    """One per process. Implements `auth.context.identity_parts.HashPlaces`."""

    def __init__(self, *, at_once: int = HASHES_AT_ONCE, waiting: int = WAITING) -> None:
        self._free = at_once
        self._most = at_once + waiting
        self._held = {True: 0, False: 0}
        self._waiting: dict[bool, deque[_Place]] = {True: deque(), False: deque()}

    @contextmanager
    def __call__(self, *, first: bool) -> Generator[_Place]:
        """A place in the queue, given back at the end of the block. Raises `HashingBusy` if there is none."""
        if self._held[first] >= self._most:
            raise HashingBusy
        self._held[first] += 1
        place = _Place(self, first)
        try:
            yield place
        finally:
            self._held[first] -= 1
            self._leave(place)

    async def wait(self, place: _Place) -> None:
        if self._free:
            self._free -= 1
            place.turned.set()
        else:
            self._waiting[place.first].append(place)
        await place.turned.wait()

    def _leave(self, place: _Place) -> None:
        if not place.turned.is_set():  # it was cancelled, or needed no hash after all
            if place in self._waiting[place.first]:
                self._waiting[place.first].remove(place)
            return
        queue = self._waiting[True] or self._waiting[False]
        if queue:
            queue.popleft().turned.set()
        else:
            self._free += 1


class _Place:
    """Implements `auth.context.identity_parts.HashPlace`."""

    def __init__(self, queue: HashQueue, first: bool) -> None:
        self._queue = queue
        self.first = first
        self.turned = trio.Event()

    async def turn(self) -> None:
        if not self.turned.is_set():
            await self._queue.wait(self)
