"""What is kept of a call, as values: one call, the sum of an hour, and how durations are told apart.

Neither arguments nor answers are in it. Of a failure its reason is, which may be the agent's own words (`reason_of` in
`server/calls/failure_reasons.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from auth.values.identity_model import Millis, Principal

HOUR: Final = 3_600_000

# What did not come to what its caller wanted, and was no choice of theirs.
FAILURES: Final = frozenset({"error", "invalid", "failed", "refused", "timeout", "crashed"})

# Milliseconds up to which a call falls into a bucket; the last one is of those beyond. They are columns of `call_hours`.
BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000)
BUCKETS: Final = len(BOUNDS) + 1

# Hour, server, tool, caller, outcome.
HourKey: TypeAlias = tuple[Millis, str, str, str, str]
# Server, tool.
ToolKey: TypeAlias = tuple[str, str]


class CallRecord(msgspec.Struct, gc=False):
    """Made with every call, so it is only filled in here; `answered` when that is known."""

    at: Millis
    server: str
    tool: str
    outcome: str
    reason: str
    seconds: float
    who: Principal
    call_id: str
    revision: str
    is_task: bool
    price: str | None
    asked: int  # 0: not known
    answered: int = 0
    passed_over: int = 0


class HourSum(msgspec.Struct, gc=False):
    """Of all calls with one key."""

    who: Principal | None  # the last one; None: everybody beyond so many
    count: int
    ms: float
    buckets: list[int]

    def add(self, seconds: float) -> None:
        ms = seconds * 1_000
        self.count += 1
        self.ms += ms
        self.buckets[bisect_left(BOUNDS, ms)] += 1

    def merge(self, other: HourSum) -> None:
        self.count += other.count
        self.ms += other.ms
        self.buckets = [mine + theirs for mine, theirs in zip(self.buckets, other.buckets, strict=True)]


def quantile(buckets: Sequence[int], share: float) -> float:
    """So many milliseconds took the call below which `share` of all are: between the bounds of its bucket in proportion, so right
    to that bucket. 0 where there were none; of what is beyond all bounds, the last bound."""
    wanted = share * sum(buckets)
    seen, low = 0, 0.0
    for bound, count in zip(BOUNDS, buckets, strict=False):
        if count and seen + count >= wanted:
            return low + (bound - low) * max(wanted - seen, 0) / count
        seen, low = seen + count, float(bound)
    return low if sum(buckets) else 0.0
