"""How many calls an agent has at once: whoever comes when all places are taken waits in turn, and not for ever."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from server.backends.base import BackendError

TURN_SECONDS: Final = 10.0


class Turns:
    def __init__(self, at_once: int) -> None:
        self._places = trio.Semaphore(at_once)

    @asynccontextmanager
    async def taken(self, *, unhurried: bool) -> AsyncGenerator[Turn]:
        """A place, for as long as the block. `unhurried`: it waits for its turn as long as it takes. Raises `BackendError`."""
        turn = Turn(self._places)
        await turn.take(math.inf if unhurried else TURN_SECONDS)
        try:
            yield turn
        finally:
            turn.leave()


class Turn:
    """One call's place."""

    def __init__(self, places: trio.Semaphore) -> None:
        self._places = places
        self._taken = False

    async def take(self, seconds: float = math.inf) -> None:
        """It may be taken already."""
        if self._taken:
            return
        with trio.move_on_after(seconds) as waiting:
            await self._places.acquire()
            self._taken = True
        if waiting.cancelled_caught:
            raise BackendError("the agent is busy: as many calls as it may run at once are running")

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._places.release()
