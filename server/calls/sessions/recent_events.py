"""What happened at this node a moment ago, for sessions of which it learns only now that they watch it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import trio

# More updates than are expected in that time; beyond it the oldest are forgotten.
MOST: Final = 4096


class Lately:
    """Of each thing when it happened last. A number stands for its name: two that share one are told of for nothing, now and then."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = OrderedDict[int, float]()

    def note(self, name: str) -> None:
        now, number = trio.current_time(), hash(name)
        self._at[number] = now
        self._at.move_to_end(number)
        while len(self._at) > MOST or next(iter(self._at.values())) < now - self._seconds:
            self._at.popitem(last=False)

    def __contains__(self, name: str) -> bool:
        at = self._at.get(hash(name))
        return at is not None and at >= trio.current_time() - self._seconds
