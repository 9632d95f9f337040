"""The store without threads: each job runs at once, in its caller. For tests with a virtual clock, and for short commands.

Transactions and contract are those of `threaded_store.py`; nothing ever waits, so nothing is ever full.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from server.store.jobs import OnTrust, StoreBroken, StoreClosed, StoreDb, T, apart
from server.store.migrate import Migration, migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer, opening
from server.store.sqlite_engine import SQLITE
from server.store.store_engine import EngineConnection, StoreEngine
from server.store.transactions import JOB_SECONDS, PendingJob, StoreParts, Transactions


class InlineStore(StoreParts):
    """A `Store` on one connection. Made by `open_inline_store`."""

    def __init__(
        self,
        connection: EngineConnection,
        *,
        clock: Callable[[], int],
        job_seconds: float = JOB_SECONDS,
        engine: StoreEngine = SQLITE,
    ) -> None:
        self._connection = connection
        self._engine = engine
        super().__init__(Transactions(connection, job_seconds=job_seconds, engine=engine))
        self._clock = clock
        self._closed: StoreClosed | StoreBroken | None = None

    async def write(self, job: Callable[[StoreDb], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        work = PendingJob(job)
        changes, entries = apart(self._transactions.run_batch([work], at=self._clock()))
        if (fault := self._tell_of_changes(changes)) is not None:
            self._closed = StoreBroken("the store had to stop: a listener for changes failed")
            raise self._closed from fault
        self._tell_of_audit(entries)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return work.result()

    async def read(self, job: Callable[[StoreDb], T]) -> T:
        await trio.lowlevel.checkpoint()
        self._check_open()
        work = PendingJob(job)
        if self._engine.only_reading is None:
            self._transactions.run_read(work)
            return work.result()
        before, after = self._engine.only_reading
        self._connection.execute(before)
        try:
            self._transactions.run_read(work)
        finally:
            self._connection.execute(after)
        return work.result()

    def on_trust(self, listener: OnTrust) -> None:
        """Do nothing: there is nobody else to hear of, so nothing is ever in doubt."""

    def on_letters(self, listener: Callable[[], None]) -> None:
        """Do nothing: nobody else writes."""

    def close(self) -> None:
        self._closed = self._closed or StoreClosed("the store is closed")
        self._transactions.close()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise type(self._closed)(str(self._closed))


@asynccontextmanager
async def open_inline_store(
    path: Path | None = None,
    *,
    clock: Callable[[], int],
    backups: Path | None = None,
    migrations: Sequence[Migration] | None = None,
    job_seconds: float = JOB_SECONDS,
) -> AsyncGenerator[InlineStore]:
    """Open and migrate the database at `path`, or one in memory. Raises `CannotOpen`."""
    connection = connect_writer(path)
    try:
        with opening(path):
            known = packaged_migrations() if migrations is None else migrations
            migrate(connection, known, now=clock(), backups=backups)
        store = InlineStore(connection, clock=clock, job_seconds=job_seconds)
        try:
            yield store
        finally:
            store.close()
    finally:
        connection.close()
