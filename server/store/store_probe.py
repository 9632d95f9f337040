"""Asking the store how it is. Where nothing was written for a while, something is: a disk is known to be full only by writing.

It happens only when somebody asks, so that a server that nobody watches leaves its disk alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import trio

from server.store.jobs import Store, StoreDb, StoreError
from server.store.store_health import WAITS_TOO_LONG_SECONDS, StoreHealth, StoreReport

# What was written this recently proves enough.
FRESH_SECONDS: Final = 5.0

CHORE: Final = "probe"


class ReportingStore(Store, Protocol):
    @property
    def health(self) -> StoreHealth: ...

    def report(self) -> StoreReport: ...


class StoreProbe:
    def __init__(self, store: ReportingStore, *, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._wanted = trio.Event()
        self._tried = trio.Event()

    async def run(self) -> None:
        """Until cancelled. A write cannot be given up, so whoever asks only waits for this one, and not for long."""
        while True:
            await self._wanted.wait()
            with suppress(StoreError):  # the store takes note of it
                await self._store.write(self._write)
            self._wanted, tried, self._tried = trio.Event(), self._tried, trio.Event()
            tried.set()

    def report(self) -> StoreReport:
        """What is known of it without a look."""
        return self._store.report()

    def glance(self) -> StoreReport:
        """What is known at once. Where that is trouble, a write is tried meanwhile, so that whoever asks again is told when it is over."""
        report = self._store.report()
        if report.problem:
            self._wanted.set()
        return report

    async def look(self) -> StoreReport:
        """How the store is now, after at most the seconds that a write may wait."""
        report = self._store.report()
        ago = report.wrote_seconds_ago
        if report.problem or ago is None or ago > FRESH_SECONDS:
            self._wanted.set()
            with trio.move_on_after(WAITS_TOO_LONG_SECONDS):
                await self._tried.wait()
            report = self._store.report()
        return report

    async def read(self) -> None:
        """Raises `StoreError` if nothing can be read."""
        await self._store.read(lambda db: db.fetch_one("SELECT 1 FROM meta LIMIT 1"))

    def _write(self, db: StoreDb) -> None:
        db.execute(
            "INSERT INTO chores (name, lease_until, fence, last_run_at) VALUES (?, 0, 0, ?)"
            " ON CONFLICT (name) DO UPDATE SET last_run_at = excluded.last_run_at",
            CHORE, self._clock(),
        )  # fmt: skip
