"""Rates: so many in a while, and so many of them at once. Pure decisions: a number and the time in, a number and a wait out.

The generic cell rate algorithm (ITU-T I.371): each use takes one `step` of time, and what was used reaches up to a moment, which is all
that is kept of somebody. Whole nanoseconds, so that nothing is lost to rounding. Who is counted where is usage_table.py's.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from server.lib.shortened import short_name

SECOND: Final = 1_000_000_000
# What somebody does in ten seconds they may do at once: a model that calls several tools in one go is no flood.
BURST_SECONDS: Final = 10
LEAST_BURST: Final = 10

RATE: Final = r"^$|^[1-9][0-9]{0,6}/(s|min|h|day)(, [1-9][0-9]{0,6} at once)?$"
RATE_WORDS: Final = '"60/min", "60/min, 20 at once", with s, min, h or day, or "" for no limit'

QUOTA: Final = r"^$|^[1-9][0-9]{0,8}/day$"
QUOTA_WORDS: Final = '"1000/day", or "" for no quota'

_WHILE: Final = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
_RATE: Final = re.compile(r"([1-9][0-9]{0,6})/(s|min|h|day)(?:, ([1-9][0-9]{0,6}) at once)?")


class Rate(msgspec.Struct, frozen=True):
    text: str  # as people write it, without the burst
    step: int  # nanoseconds that one use takes
    room: int  # nanoseconds that may be used up ahead of time


def rate(count: int, seconds: int, burst: int | None = None, *, text: str = "") -> Rate:
    """Rounded down, so that it is never more."""
    if burst is None:
        burst = min(count, max(LEAST_BURST, -(-count * BURST_SECONDS // seconds)))
    step = -(-seconds * SECOND // count)
    return Rate(text or f"{count} in {seconds} s", step, burst * step)


def parse_rate(text: str) -> Rate | None:
    """None for "", which is no limit. Raises `ValueError`."""
    if not text:
        return None
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{short_name(text)!r} is no rate; write {RATE_WORDS}")
    count, unit, burst = match.groups()
    return rate(int(count), _WHILE[unit], None if burst is None else int(burst), text=f"{count}/{unit}")


def parse_quota(text: str) -> int:
    """Calls on a day (server/store/limits/daily_quotas.py); 0 for "", which is none."""
    return int(text.partition("/")[0]) if text else 0


def decide(used_until: int, now: int, rate: Rate) -> tuple[int, int]:
    """One more use at `now`. → (up to where is used from now on, how long to wait); 0: it may go on, and was counted.

    In any time at most as many go on as the rate allows in it, and the burst. A clock that is set back keeps nobody waiting for longer
    than if everything had just been used up."""
    ahead = min(max(used_until - now, 0), rate.room)
    wait = ahead + rate.step - rate.room
    if wait > 0:
        return now + ahead, wait
    return now + ahead + rate.step, 0


def whole_seconds(wait: int) -> int:
    """For `Retry-After`: after so long it may go on."""
    return -(-wait // SECOND)
