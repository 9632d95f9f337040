"""Tokens for upstreams while they are good, by whom they are for: in memory, bounded, and each asked for once however many wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec

from auth.values.identity_model import Millis
from server.lib.http_client.single_flight import SingleFlight
from server.lib.secret import Secret

MOST: Final = 1_000
# After a refusal nobody asks again for a moment, and all who wait are refused at once: callers come in loops.
QUIET: Final[Millis] = 5_000


class NoToken(Exception):
    """There is none, and the text says why to the owner of the server."""


class ReadyToken(msgspec.Struct, frozen=True, kw_only=True):
    token: Secret
    made_at: Millis
    expires_at: Millis

    def fresh(self, now: Millis) -> bool:
        """Never used up to its last tenth: it has to survive the way, and a clock that is a little off. A clock that was set back
        says nothing."""
        return self.made_at <= now < self.expires_at - (self.expires_at - self.made_at) // 10


class TokenCache:
    def __init__(self, clock: Callable[[], Millis], *, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._kept: OrderedDict[str, ReadyToken] = OrderedDict()
        self._refused: OrderedDict[str, tuple[Millis, str]] = OrderedDict()
        self._flights = SingleFlight[ReadyToken]()

    async def get(self, whose: str, make: Callable[[], Awaitable[ReadyToken]]) -> ReadyToken:
        """The one that is kept, else the one that `make` makes. Raises what `make` raises; a `NoToken` of it
        is remembered for a moment."""
        kept = self._kept.get(whose)
        if kept is not None and kept.fresh(self._clock()):
            self._kept.move_to_end(whose)
            return kept
        return await self._flights(whose, partial(self._make, whose, make))

    async def _make(self, whose: str, make: Callable[[], Awaitable[ReadyToken]]) -> ReadyToken:
        refused = self._refused.get(whose)
        if refused is not None and refused[0] <= self._clock() < refused[0] + QUIET:
            raise NoToken(refused[1])
        try:
            made = await make()
        except NoToken as refusal:
            self._refused[whose] = (self._clock(), str(refusal))
            _keep_newest(self._refused, whose, self._most)
            raise
        self._refused.pop(whose, None)
        self._kept[whose] = made
        _keep_newest(self._kept, whose, self._most)
        return made

    def drop(self, whose: str) -> ReadyToken | None:
        return self._kept.pop(whose, None)


def _keep_newest(kept: OrderedDict[str, Any], newest: str, most: int) -> None:
    kept.move_to_end(newest)
    while len(kept) > most:
        kept.popitem(last=False)
