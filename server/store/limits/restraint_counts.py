"""Who was held back, and by which limit: counted for metrics, and the last few remembered for the owner."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import time
from typing import Final, Literal, TypeAlias, get_args

import msgspec

LimitKind: TypeAlias = Literal["address", "caller", "at once", "tool", "quota", "busy"]
_REMEMBERED: Final = 100
LATELY_SECONDS: Final = 3600


class HeldBack(msgspec.Struct):
    """Somebody who was told to wait."""

    who: str
    limit: LimitKind
    times: int
    last_at: float


class Restraint:
    """Of one process."""

    def __init__(self, *, clock: Callable[[], float] = time) -> None:
        self.counts: Final[dict[str, int]] = dict.fromkeys(get_args(LimitKind), 0)
        self._clock = clock
        self._last: OrderedDict[tuple[str, str], HeldBack] = OrderedDict()

    def note(self, who: str, limit: LimitKind) -> None:
        self.counts[limit] += 1
        key = (who, limit)
        found = self._last.pop(key, None) or HeldBack(who, limit, 0, 0.0)
        found.times += 1
        found.last_at = self._clock()
        self._last[key] = found
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    def lately(self) -> list[HeldBack]:
        """Those of the last hour, whoever was held back most first."""
        since = self._clock() - LATELY_SECONDS
        return sorted(
            (each for each in self._last.values() if each.last_at >= since), key=lambda each: -each.times
        )

    def told(self) -> list[Mapping[str, object]]:
        return [msgspec.structs.asdict(each) for each in self.lately()]
