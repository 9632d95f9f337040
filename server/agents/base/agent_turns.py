"""A place among the calls that an agent has at once, for as long as a block: whoever comes when all are taken waits in turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from server.lib.rates.fair_turns import NoTurn, Turns
from server.mcp.call_failures import Busy


class SharedPlaces:
    def __init__(self, at_once: int) -> None:
        self._turns = Turns(at_once)

    @asynccontextmanager
    async def taken(self, sharer: str, *, unhurried: bool) -> AsyncGenerator[SharedPlace]:
        """Take a place for as long as a block. `sharer`: who has a part of the places with it. `unhurried`: it waits for its
        turn as long as it takes. Raises `Busy`."""
        try:
            await self._turns.take(sharer, unhurried=unhurried)
        except NoTurn as error:
            raise Busy(str(error)) from error
        place = SharedPlace(self._turns, sharer)
        try:
            yield place
        finally:
            place.leave()


class SharedPlace:
    """The place of one call, which it may give up for a while."""

    def __init__(self, turns: Turns, sharer: str, *, taken: bool = True) -> None:
        self._turns = turns
        self._sharer = sharer
        self._taken = taken

    async def take(self) -> None:
        """Take the place again, unless it is taken already."""
        if not self._taken:
            await self._turns.take(self._sharer, again=True)
            self._taken = True

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._turns.give_back(self._sharer)
