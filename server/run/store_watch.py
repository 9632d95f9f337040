"""What is to be seen of the store from outside: at /readyz, in the metrics and in `ostiary status`. How the store knows it is
store/store_health.py's.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from msgspec.structs import asdict

from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.store import soundness
from server.store.jobs import DiskFull, StoreDamaged, StoreError
from server.store.reserve_file import BALLAST_BYTES, ReserveFile
from server.store.store_probe import ReportingStore, StoreProbe

# What was lent is mostly taken back at once; the rest when there is room again.
BALLAST_SECONDS: Final = 600.0
SLOW_LOOK_SECONDS: Final = 30.0


async def why_not_ready(probe: StoreProbe) -> str:
    """ "" when the store reads and writes. One that is cut off is known to be, and not asked: whoever asks would wait as long as it does."""
    known = probe.report()
    if known.is_unconfirmed:
        return known.problem
    try:
        await probe.read()
    except StoreError as error:
        return str(error)
    return (await probe.look()).problem


async def described(probe: StoreProbe, data_dir: Path) -> dict[str, Any]:
    """For whoever is at the machine."""
    return {**asdict(await probe.look()), "free_bytes": free_bytes(data_dir)}


def count(metrics: Metrics, store: ReportingStore, data_dir: Path) -> None:
    health = store.health
    metrics.counters(
        "store_writes_failed",
        "Writes that the store refused or could not do",
        "reason",
        lambda: health.refused,
    )
    metrics.gauge("store_waiting", "Writes that wait or are under way", lambda: store.report().waiting)
    metrics.gauge(
        "store_oldest_wait_seconds",
        "For how long the oldest of them has been waiting",
        lambda: store.report().oldest_waits_seconds,
    )
    metrics.gauge(
        "store_confirmed_seconds",
        "Since when all that other processes changed was known here; 0 where there are no others",
        lambda: store.report().confirmed_seconds_ago or 0.0,
    )
    metrics.counter("store_commits", "Transactions of the writer", lambda: health.commits)
    metrics.counter("store_commit_seconds", "How long they took, all together", lambda: health.commit_seconds)
    metrics.gauge("store_free_bytes", "Room on the disk of the data directory", lambda: free_bytes(data_dir))


def free_bytes(directory: Path) -> int:
    """What this user may still fill."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def tell_of_damage(store: ReportingStore, log: Logger) -> None:
    """Once, however many requests come upon it; and of what may lead there, at the start."""
    if store.health.warning:
        log.warning("store.not_durable", reason=store.health.warning)

    def tell(damage: StoreDamaged) -> None:
        log.error("store.damaged", reason=str(damage), hint=damage.hint)

    store.health.tell_of_damage = tell


async def keep_telling_of_slowness(store: ReportingStore, log: Logger) -> None:
    """Until cancelled: say once when writes begin to be confirmed late, and when that is over."""
    slow = False
    while True:
        await trio.sleep(SLOW_LOOK_SECONDS)
        words = store.health.slowness
        if words and not slow:
            log.warning("store.slow", reason=words)
        elif slow and not words:
            log.warning("store.quick_again")
        slow = bool(words)


async def keep_ballast(ballast: ReserveFile, log: Logger) -> None:
    """Until cancelled: hold room for the day when there is none, and say once when that is not to be had."""
    whole = True
    while True:
        size = await trio.to_thread.run_sync(ballast.fill, abandon_on_cancel=True)
        if whole and size < BALLAST_BYTES:
            log.warning("store.ballast_short", bytes=size, wanted=BALLAST_BYTES, hint=DiskFull.hint)
        whole = size >= BALLAST_BYTES
        await trio.sleep(BALLAST_SECONDS)


async def look_through_large_file(store: ReportingStore, database: Path, log: Logger) -> None:
    """One that the start did not wait for."""
    if soundness.is_small(database):
        return
    try:
        await trio.to_thread.run_sync(partial(soundness.check_file, database), abandon_on_cancel=True)
    except StoreDamaged as damage:
        store.health.note_damage(damage)
    except StoreError as error:
        log.warning("store.not_checked", reason=str(error))
