"""Waits of those who show payments that are not good, longer each time: of a caller who is known by what that caller showed, of strangers by
address. So nobody waits for what somebody else showed from the same house.

In memory, and bounded: each look costs a facilitator a simulation on a chain.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from auth.values.ip_networks import counted_as

# A stranger's first one is free: payments expire, and clocks differ.
FREE: Final = 1
# As many as somebody needs who tries out every way in which a payment can be wrong, more than once.
FREE_OF_A_CALLER: Final = 100
LONGEST_MS: Final = 300_000
FORGOTTEN_MS: Final = 3_600_000
MOST: Final = 10_000


class PaymentBackoff:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, int]] = (
            OrderedDict()
        )  # how many, and when the last one was

    def wait_seconds(self, caller: str, address: str) -> int:
        """Return how long the next one has to wait; 0: come in."""
        name = _name(caller, address)
        count, last = self._failures.get(name, (0, 0))
        beyond = count - (FREE_OF_A_CALLER if caller else FREE)
        now = self._clock()
        if beyond <= 0 or now < last:  # the clock was set back: nobody waits until it comes to where it was
            return 0
        wait = last + min(1000 << min(beyond - 1, 20), LONGEST_MS) - now
        return max(0, -(-wait // 1000))

    def failed(self, caller: str, address: str) -> None:
        now, name = self._clock(), _name(caller, address)
        count, last = self._failures.pop(name, (0, 0))
        self._failures[name] = (count + 1 if now - last < FORGOTTEN_MS else 1, now)
        while len(self._failures) > MOST:
            self._failures.popitem(last=False)

    def passed(self, caller: str, address: str) -> None:
        self._failures.pop(_name(caller, address), None)


def _name(caller: str, address: str) -> str:
    """`caller` is empty for a stranger."""
    return f"caller {caller}" if caller else f"at {counted_as(address)}" if address else ""
