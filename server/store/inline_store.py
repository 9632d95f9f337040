"""The store without threads: each job runs at once, in its caller. For tests with a virtual clock, and for short commands.

The same contract and the same transactions as `threaded_store.py`; only nothing ever waits, so nothing is ever full.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from server.store.jobs import (
    Change,
    OnAudit,
    OnChanges,
    OnTrust,
    Position,
    StoreBroken,
    StoreClosed,
    StoreDb,
    T,
    apart,
    tell_of_audit,
)
from server.store.migrate import Migration, migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer, opening
from server.store.sqlite_engine import SQLITE
from server.store.store_engine import EngineConnection, StoreEngine
from server.store.transactions import JOB_SECONDS, PendingJob, Transactions


class InlineStore:
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
        self._transactions = Transactions(connection, job_seconds=job_seconds, engine=engine)
        self._clock = clock
        self._listeners: list[OnChanges] = []
        self._audit_listeners: list[OnAudit] = []
        self._closed: StoreClosed | StoreBroken | None = None

    async def write(self, job: Callable[[StoreDb], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        work = PendingJob(job)
        changes, entries = apart(self._transactions.run_batch([work], at=self._clock()))
        if changes:
            self._tell(changes)
        tell_of_audit(self._audit_listeners, entries)
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

    def on_changes(self, listener: OnChanges) -> None:
        self._listeners.append(listener)

    def on_trust(self, listener: OnTrust) -> None:
        """It hears of nobody else, so nothing is ever in doubt."""

    def on_letters(self, listener: Callable[[], None]) -> None:
        """Nobody else writes."""

    def on_audit(self, listener: OnAudit) -> None:
        self._audit_listeners.append(listener)

    def chain_audit(self, key: bytes, heads: Sequence[Position] = ()) -> None:
        self._transactions.chain_audit(key, heads)

    def take_altered(self) -> Sequence[tuple[str, str]]:
        seal = self._transactions.seal
        return () if seal is None else seal.take()

    def audit_head(self) -> Position | None:
        return self._transactions.audit_head

    def chain_ledger(self, key: bytes, heads: Sequence[Position] = ()) -> None:
        self._transactions.chain_ledger(key, heads)

    def ledger_head(self) -> Position | None:
        return self._transactions.ledger_head

    def close(self) -> None:
        self._closed = self._closed or StoreClosed("the store is closed")
        self._transactions.close()

    def _tell(self, changes: Sequence[Change]) -> None:
        fault: Exception | None = None
        for listener in self._listeners:
            try:
                listener(changes)
            except (
                Exception
            ) as error:  # the others are still told: each may be what keeps a revoked login out
                fault = fault or error
        if fault is not None:
            self._closed = StoreBroken("the store had to stop: a listener for changes failed")
            raise self._closed from fault

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
