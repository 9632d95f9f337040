"""Noticing that the wall clock was set while we run: lifetimes of codes and logins, and the windows of limits, are told by it.

They have to be: they outlive the process and are shared with others. So a clock that jumps ends logins early or late, and whoever
looks at the log should know why. Slow corrections, as time services make them, are none of this.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from server.lib.log.logger import Logger

EVERY_SECONDS: Final = 30.0
JUMP_SECONDS: Final = 60.0  # more than any two honest clocks differ, and what tokens are granted of leeway

# It goes on while the machine sleeps, where there is such a clock: waking up is no jump.
_UNSET: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def running_seconds() -> float:
    """Of a clock that nobody can set."""
    return time.clock_gettime(_UNSET)


async def keep_watching(
    log: Logger,
    *,
    wall: Callable[[], float] = time.time,
    running: Callable[[], float] = running_seconds,
    sleep: Callable[[float], Awaitable[None]] = trio.sleep,
) -> None:
    """Until it is cancelled."""
    before = wall() - running()
    while True:
        await sleep(EVERY_SECONDS)
        now = wall() - running()
        if abs(now - before) > JUMP_SECONDS:
            log.warning("clock.jumped", seconds=round(now - before))
        before = now
