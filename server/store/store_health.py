"""What a store knows of itself: how its last write went, what waits, what it had to refuse. For health, metrics and `status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from server.store.jobs import (
    Collided,
    DiskError,
    DiskFull,
    StoreBroken,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnreachable,
)

# Longer, and whoever waits for a write has a reason to ask why.
WAITS_TOO_LONG_SECONDS: Final = 5.0

# A good disk confirms a write in some milliseconds, one that many share in tens.
SLOW_SECONDS: Final = 0.1
# How much the newest commit counts among those before it: a single one that is slow says nothing.
_NEWEST: Final = 1 / 32

# Of a write that waits: where the rows are in a file, and where they are in a database that others use.
STUCK_DISK: Final = "the disk may be stuck"
SLOW_DISK: Final = "the disk is slow (iostat -x 1 shows what it has to do)"
SLOW_SERVER: Final = "the database server, or the network to it, is slow"
STUCK_SERVER: Final = "the database server may be slow, or something else may hold its rows: look at its load, and at pg_stat_activity"

# A closed set: they are labels of a metric.
REASONS: Final[Mapping[type[StoreUnavailable], str]] = MappingProxyType(
    {
        DiskFull: "disk_full",
        StoreReadOnly: "read_only",
        DiskError: "disk_error",
        StoreBusy: "busy",
        Collided: "collided",
        StoreUnreachable: "unreachable",
        StoreFull: "queue_full",
        StoreDamaged: "damaged",
        StoreBroken: "broken",
        StoreClosed: "closed",
    }
)


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the store is at one moment."""

    problem: str = ""  # why it is not well; "" if it is
    hint: str = ""
    warning: str = ""  # what is to be known of it though it is well
    wrote_seconds_ago: float | None = None  # None: not yet, since the start
    waiting: int = 0
    oldest_waits_seconds: float = 0.0
    refused: Mapping[str, int] = {}  # writes, by reason, since the start
    # Since all that other processes changed was known here; None: there are no others, or not yet.
    confirmed_seconds_ago: float | None = None

    @property
    def is_unconfirmed(self) -> bool:
        """Nothing that is remembered counts any more."""
        return self.confirmed_seconds_ago is not None and self.confirmed_seconds_ago >= WAITS_TOO_LONG_SECONDS


class StoreHealth:
    """Written by the store, in the thread of its event loop; the seconds of commits by its writer, which is the only one."""

    __slots__ = (
        "commit_seconds",
        "commits",
        "confirm_seconds",
        "damage",
        "failure",
        "refused",
        "slow",
        "stuck",
        "tell_of_damage",
        "warning",
        "wrote_at",
    )

    def __init__(self, *, stuck: str = STUCK_DISK, slow: str = SLOW_DISK) -> None:
        """`stuck`: what a write may be waiting for; `slow`: why it is confirmed late."""
        self.stuck: Final = stuck
        self.slow: Final = slow
        self.refused: dict[str, int] = dict.fromkeys(REASONS.values(), 0)
        self.failure: StoreUnavailable | None = None  # of the last write, if it failed
        self.damage: StoreDamaged | None = None  # once found, it does not go away by itself
        self.wrote_at: float | None = None  # of the machine's clock, in seconds
        self.warning = ""
        self.commits = 0
        self.commit_seconds = 0.0
        self.confirm_seconds = 0.0  # of late, on average
        self.tell_of_damage: Callable[[StoreDamaged], None] = lambda damage: None

    def note_commit(self, seconds: float, *, confirmed: float) -> None:
        """`confirmed`: how much of them the store took, and not the jobs."""
        self.commits += 1
        self.commit_seconds += seconds
        self.confirm_seconds += (confirmed - self.confirm_seconds) * _NEWEST

    @property
    def slowness(self) -> str:
        """A sentence; "" while writes are confirmed in time."""
        if self.confirm_seconds < SLOW_SECONDS:
            return ""
        return f"a write is confirmed after {self.confirm_seconds * 1000:.0f} ms: {self.slow}"

    def note_refused(self, error: StoreUnavailable) -> None:
        reason = REASONS.get(type(error), "broken")
        self.refused[reason] += 1
        self.failure = error
        if isinstance(error, StoreDamaged):
            self.note_damage(error)

    def note_damage(self, damage: StoreDamaged) -> None:
        if self.damage is None:
            self.damage = damage
            self.tell_of_damage(damage)

    def report(
        self,
        *,
        waiting: int,
        oldest_asked_at: float | None,
        confirmed_seconds_ago: float | None = None,
        doubt: StoreUnavailable | None = None,
    ) -> StoreReport:
        now = time.monotonic()
        waits = 0.0 if oldest_asked_at is None else now - oldest_asked_at
        problem, hint = "", ""
        if (trouble := self.damage or doubt or self.failure) is not None:
            problem, hint = str(trouble), trouble.hint or ""
        elif waits >= WAITS_TOO_LONG_SECONDS:
            problem, hint = f"a write has been waiting for {waits:.0f} s", self.stuck
        elif confirmed_seconds_ago is not None and confirmed_seconds_ago >= WAITS_TOO_LONG_SECONDS:
            problem = f"what other processes changed has not been heard of for {confirmed_seconds_ago:.0f} s"
            hint = "nothing is remembered meanwhile: the database is asked for every request"
        return StoreReport(
            problem=problem,
            hint=hint,
            warning="; ".join(filter(None, (self.warning, self.slowness))),
            wrote_seconds_ago=None if self.wrote_at is None else now - self.wrote_at,
            waiting=waiting,
            oldest_waits_seconds=waits,
            confirmed_seconds_ago=confirmed_seconds_ago,
            refused={reason: count for reason, count in self.refused.items() if count},
        )
