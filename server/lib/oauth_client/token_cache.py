"""Access tokens while they are good, by the names of those whom they are for: in memory, bounded, and each requested once, however many wait for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec

from server.lib.http_client.single_flight import SingleFlight
from server.lib.oauth_client.proof_key import Millis
from server.lib.oauth_client.token_requests import Tokens
from server.lib.secret import Secret

MOST: Final = 1_000
# A token whose lifetime is not said is requested anew after this, and any other after a day.
UNSAID: Final[Millis] = 300_000
LONGEST: Final[Millis] = 86_400_000
# After a refusal nobody asks again for a moment, and all who wait are refused at once: callers come in loops.
QUIET: Final[Millis] = 5_000


class NoToken(Exception):
    """The error where there is no token. Its text says why to the owner of the server."""


class _Kept(msgspec.Struct, frozen=True):
    token: Secret
    made_at: Millis
    lives: Millis

    def fresh(self, now: Millis) -> bool:
        """Tell whether it is good. Its last tenth is never used: it has to survive the way, and a clock that is a little off. A clock that was
        set back says nothing."""
        return self.made_at <= now < self.made_at + self.lives - self.lives // 10


class TokenCache:
    """The tokens of one credential."""

    def __init__(self, clock: Callable[[], Millis], *, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._refused: OrderedDict[str, tuple[Millis, str]] = OrderedDict()
        self._flights = SingleFlight[Secret]()

    async def get(self, whose: str, make: Callable[[], Awaitable[Tokens]]) -> Secret:
        """Return the token that is kept, else the one that `make` makes. Raise what `make` raises; a `NoToken` of it is remembered for a moment."""
        kept = self._kept.get(whose)
        if kept is not None and kept.fresh(self._clock()):
            self._kept.move_to_end(whose)
            return kept.token
        return await self._flights(whose, partial(self._make, whose, make))

    async def _make(self, whose: str, make: Callable[[], Awaitable[Tokens]]) -> Secret:
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
        lives = UNSAID if made.expires_in is None else min(int(made.expires_in * 1_000), LONGEST)
        self._kept[whose] = _Kept(made.access_token, self._clock(), lives)
        _keep_newest(self._kept, whose, self._most)
        return made.access_token

    def drop(self, whose: str) -> bool:
        """Forget a token, and tell whether there was one."""
        return self._kept.pop(whose, None) is not None


def _keep_newest(kept: OrderedDict[str, Any], newest: str, most: int) -> None:
    kept.move_to_end(newest)
    while len(kept) > most:
        kept.popitem(last=False)
