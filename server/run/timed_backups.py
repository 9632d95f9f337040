"""Backing up by itself, where the settings say so (`backup_hours`). What a back-up is, is store/backup.py's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from server.lib.log.logger import Logger
from server.store.jobs import StoreError
from server.store.rotation import back_up_into, last_made

_HOUR_MILLIS: Final = 3_600_000
# After one that failed: a disk with no room may have some soon.
RETRY_SECONDS: Final = 600.0
# What is due is told by the wall clock, which may be set, or have gone on while the machine slept.
LOOK_SECONDS: Final = 3600.0


class BackupPlan(msgspec.Struct, frozen=True, kw_only=True):
    database: Path
    directory: Path
    every_hours: int
    keep: int


class BackupOutcome(msgspec.Struct):
    """How it went last, for whoever asks for the server's status."""

    every_hours: int = 0  # 0: it does not happen
    made_at: int | None = None  # the newest copy, of whichever run of the server
    failed_at: int | None = None  # the last attempt, if it failed
    reason: str = ""
    hint: str = ""


async def keep_backing_up(
    plan: BackupPlan,
    *,
    clock: Callable[[], int],
    log: Logger,
    outcome: BackupOutcome,
    sleep: Callable[[float], Awaitable[None]] = trio.sleep,
) -> None:
    """Until cancelled. Restarts do not count: the last copy's name says when the next one is due."""
    outcome.every_hours = plan.every_hours
    while True:
        now = clock()
        outcome.made_at = made = last_made(plan.directory, now=now)
        due_in = 0 if made is None else made + plan.every_hours * _HOUR_MILLIS - now
        if due_in > 0:
            await sleep(min(due_in / 1000, LOOK_SECONDS))
            continue
        copy = partial(back_up_into, plan.database, plan.directory, keep=plan.keep, now=now)
        try:
            path = await trio.to_thread.run_sync(copy, abandon_on_cancel=True)
        except (StoreError, OSError) as error:
            hint = error.hint if isinstance(error, StoreError) else None
            outcome.failed_at, outcome.reason, outcome.hint = now, str(error), hint or ""
            log.error("backup.failed", reason=str(error), hint=hint)
            await sleep(RETRY_SECONDS)
        else:
            outcome.failed_at, outcome.reason, outcome.hint = None, "", ""
            log.info("backup.made", file=path.name, kept=plan.keep)
