"""server/run/clock_watch.py: a clock that is set is told of, one that drifts or a machine that slept is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from server.run.clock_watch import EVERY_SECONDS, keep_watching, running_seconds


class Over(Exception):
    pass


@dataclass
class Times:
    """Half a minute passes at each look, and the wall clock is set by what stands in `set_by`."""

    set_by: list[float]
    ran: float = 1_000.0
    wall: float = 1_800_000_000.0
    told: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    async def sleep(self, seconds: float) -> None:
        assert seconds == EVERY_SECONDS
        if not self.set_by:
            raise Over
        self.ran += seconds
        self.wall += seconds + self.set_by.pop(0)

    def warning(self, event: str, *, seconds: int) -> None:
        self.told.append((event, seconds))


@pytest.mark.parametrize(
    ("set_by", "told"),
    [
        ([0.0] * 5, []),
        ([0.5] * 500, []),  # a quarter of an hour's drift, bit by bit
        ([60.0, -60.0], []),
        ([3_600.0, 0.0, 0.0], [3_600]),
        ([0.0, -86_400.0, 0.0, 61.0], [-86_400, 61]),
    ],
)
async def test_a_clock_that_is_set_is_told_of_once(set_by: list[float], told: list[int]) -> None:
    times = Times(set_by=set_by)
    with pytest.raises(Over):
        await keep_watching(
            cast("Any", times), wall=lambda: times.wall, running=lambda: times.ran, sleep=times.sleep
        )
    assert times.told == [("clock.jumped", seconds) for seconds in told]


def test_the_clock_that_is_compared_with_never_goes_back() -> None:
    readings = [running_seconds() for _ in range(100)]
    assert readings == sorted(readings)
