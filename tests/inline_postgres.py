"""The store on PostgreSQL without threads of its own, for tests of jobs that run on both engines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from server.cluster.postgres.postgres_connection import POSTGRES, PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_schema import bring_up
from server.store.inline_store import InlineStore
from server.store.migrate import Migration, packaged_migrations
from server.store.threaded_store import DEFAULT_LIMITS, StoreLimits


@asynccontextmanager
async def open_inline_postgres_store(
    parameters: Mapping[str, str],
    *,
    clock: Callable[[], int],
    migrations: Sequence[Migration] | None = None,
    limits: StoreLimits = DEFAULT_LIMITS,
) -> AsyncGenerator[InlineStore]:
    """Open a store on PostgreSQL without threads, as `server/store/inline_store.py` has it on SQLite."""
    access = PostgresAccess(parameters=parameters, job_seconds=limits.job_seconds)
    connection = PostgresConnection(access, writes=True)
    try:
        bring_up(connection, packaged_migrations() if migrations is None else migrations, now=clock())
        store = InlineStore(connection, clock=clock, job_seconds=limits.job_seconds, engine=POSTGRES)
        try:
            yield store
        finally:
            store.close()
    finally:
        connection.close()
