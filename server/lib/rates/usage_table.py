"""How much everybody has used of a rate: one number for each, in memory, and never more of them than there is room for.

Whoever has used nothing for a while is nobody: their number says the same as none. When the table is full of others, those who come new
share one number, so that a flood from many addresses slows strangers down together and nobody who was there before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic_ns
from typing import Final, Protocol

from server.lib.rates.rates import Rate, decide

# Some 20 MB when it is full, which it is only under attack.
KEYS: Final = 100_000
# Looked at for each that comes new: more than come, so that the table shrinks again. And before one is told that there is no room.
_SWEPT: Final = 2
_SEARCHED: Final = 32
STRANGERS: Final = ""


class UsedRates(Protocol):
    """What is asked of the place where uses are counted: this process's memory (`RateTable`), or one that several share, of which each
    has a copy that it can ask at once."""

    @property
    def rate(self) -> Rate: ...

    def use(self, key: str, /) -> int:
        """Count one: 0, or for how many nanoseconds it has to wait, and then it was not counted."""
        ...

    def give_back(self, key: str, /) -> None:
        """One that was counted and should not have been."""
        ...


class RateTable:
    """Implements `UsedRates`."""

    def __init__(self, rate: Rate, *, clock: Callable[[], int] = monotonic_ns, keys: int = KEYS) -> None:
        self.rate: Final = rate
        self._clock = clock
        self._keys = keys
        self._used: OrderedDict[str, int] = OrderedDict()  # those first who were not looked at for longest

    def __len__(self) -> int:
        return len(self._used)

    def use(self, key: str) -> int:
        now = self._clock()
        used_until = self._used.get(key)
        if used_until is None:
            key = self._place_for(key, now)
            used_until = self._used.get(key, now)
        self._used[key], wait = decide(used_until, now, self.rate)
        return wait

    def give_back(self, key: str) -> None:
        # Whoever shares a number may take what another has used, which only lets somebody in.
        key = key if key in self._used else STRANGERS
        if key in self._used:
            self._used[key] -= self.rate.step

    def _place_for(self, key: str, now: int) -> str:
        """Under which key somebody new is counted."""
        self._sweep(_SWEPT, now)
        if len(self._used) >= self._keys:
            self._sweep(_SEARCHED, now)
        return key if len(self._used) < self._keys else STRANGERS

    def _sweep(self, at_most: int, now: int) -> None:
        """Forget whoever has used nothing for a while, among the next few."""
        used = self._used
        for _ in range(min(at_most, len(used))):
            key, used_until = used.popitem(last=False)
            if now < used_until:
                used[key] = used_until
