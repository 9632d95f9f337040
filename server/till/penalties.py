"""Whoever shows payments that are not good waits before the next one is looked at: longer each time, by caller and by address.

In memory, and bounded: each look costs a facilitator a simulation on a chain, and nobody is to pay for somebody else's tries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from auth.values.network import counted_as

# The first one is free: payments expire, and clocks differ.
FREE: Final = 1
LONGEST_MS: Final = 300_000
FORGOTTEN_MS: Final = 3_600_000
MOST: Final = 10_000


class Penalties:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, int]] = (
            OrderedDict()
        )  # how many, and when the last one was

    def wait_seconds(self, caller: str, address: str) -> int:
        """0: come in."""
        now = self._clock()
        wait = max((self._wait(name, now) for name in _names(caller, address)), default=0)
        return -(-wait // 1000)

    def failed(self, caller: str, address: str) -> None:
        now = self._clock()
        for name in _names(caller, address):
            count, last = self._failures.pop(name, (0, 0))
            self._failures[name] = (count + 1 if now - last < FORGOTTEN_MS else 1, now)
        while len(self._failures) > MOST:
            self._failures.popitem(last=False)

    def passed(self, caller: str, address: str) -> None:
        for name in _names(caller, address):
            self._failures.pop(name, None)

    def _wait(self, name: str, now: int) -> int:
        count, last = self._failures.get(name, (0, 0))
        if count <= FREE:
            return 0
        return max(0, last + min(1000 << min(count - FREE - 1, 20), LONGEST_MS) - now)


def _names(caller: str, address: str) -> list[str]:
    at = f"at {counted_as(address)}" if address else ""
    return [name for name in (f"caller {caller}" if caller else "", at) if name]
