"""The engines that the store's suite runs on, and the rows that it writes to see whether they are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from server.cluster.postgres.postgres import open_postgres_store
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StoreDb
from server.store.sqlite import open_store
from server.store.threaded_store import StoreLimits, ThreadedStore
from server.store.transactions import JOB_SECONDS
from tests.inline_postgres import open_inline_postgres_store

NOW: Final = 1_800_000_000_000

# What libpq needs for the database of a test, made for whoever asks first.
Database: TypeAlias = Callable[[], Mapping[str, str]]
AnyStore: TypeAlias = "ThreadedStore | InlineStore"


class Open(Protocol):
    def __call__(self, *, job_seconds: float = JOB_SECONDS) -> AbstractAsyncContextManager[AnyStore]: ...


SQLITE_ENGINES: Final = ("threads", "inline-file", "inline-memory")
POSTGRES_ENGINES: Final = ("postgres", "inline-postgres")
ENGINES: Final = (*SQLITE_ENGINES, *POSTGRES_ENGINES)


def opener(engine: str, directory: Path, database: Database | None = None) -> Open:
    """Opens a store of this engine. All but the one in memory find the same database at each opening."""
    path, backups = directory / "ostiary.db", directory / "backups"

    def opened(*, job_seconds: float = JOB_SECONDS) -> AbstractAsyncContextManager[AnyStore]:
        limits = StoreLimits(job_seconds=job_seconds)
        clock: Any = lambda: NOW  # noqa: E731
        if engine == "threads":
            return open_store(path, clock=clock, backups=backups, limits=limits)
        if engine == "inline-file":
            return open_inline_store(path, clock=clock, backups=backups, job_seconds=job_seconds)
        if engine == "inline-memory":
            return open_inline_store(clock=clock, job_seconds=job_seconds)
        assert database is not None
        if engine == "postgres":
            return open_postgres_store(database(), clock=clock, limits=limits)
        return open_inline_postgres_store(database(), clock=clock, limits=limits)

    return opened


def put(db: StoreDb, key: str, value: str = "x") -> str:
    db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", key, value)
    return key


def keys(db: StoreDb) -> list[str]:
    return [row["key"] for row in db.fetch_all("SELECT key FROM meta ORDER BY key")]
