"""The store on PostgreSQL, with threads of its own (`server/store/threaded_store.py`): one that writes, and some that read, each with its connection.

Loaded only where the settings name such a database: psycopg takes a third of a second and 13 MB.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager

import trio

from server.cluster.postgres.postgres_connection import POSTGRES, PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_listening import ListeningConnection
from server.cluster.postgres.postgres_schema import bring_up
from server.cluster.postgres.postgres_session import NOT_DURABLE
from server.store.change_feed import ChangeFeed
from server.store.change_rows import newest_change
from server.store.migrate import Migration, packaged_migrations
from server.store.remote_changes import RemoteChanges
from server.store.threaded_store import DEFAULT_LIMITS, StoreLimits, ThreadedStore, serving
from server.store.transactions import PendingJob, Transactions


@asynccontextmanager
async def open_postgres_store(
    parameters: Mapping[str, str],
    *,
    clock: Callable[[], int],
    migrations: Sequence[Migration] | None = None,
    limits: StoreLimits = DEFAULT_LIMITS,
) -> AsyncGenerator[ThreadedStore]:
    """Connect, and bring the database to this version's schema; `parameters` are libpq's. Raises `CannotOpen`.

    Others may use it at the same time (`postgres_transaction.py`); what they changed is heard of (`server/store/change_feed.py`). If the store breaks
    meanwhile, the body is cancelled and `StoreBroken` raised.
    """
    access = PostgresAccess(parameters=parameters, job_seconds=limits.job_seconds)
    writer, readers, feed = await trio.to_thread.run_sync(_open, access, clock, migrations, limits)
    async with serving(writer, readers, clock=clock, limits=limits, others=RemoteChanges(feed)) as store:
        if not access.outage.is_durable:
            store.health.warning = NOT_DURABLE
        yield store


def _open(
    access: PostgresAccess,
    clock: Callable[[], int],
    migrations: Sequence[Migration] | None,
    limits: StoreLimits,
) -> tuple[Transactions, list[Transactions], ChangeFeed]:
    with ExitStack() as undo:
        connections = [PostgresConnection(access, writes=True)]
        undo.callback(connections[0].close)
        known = packaged_migrations() if migrations is None else migrations
        bring_up(connections[0], known, now=clock())
        for _ in range(limits.readers):
            connections.append(PostgresConnection(access, writes=False))
            undo.callback(connections[-1].close)
        listening = ListeningConnection(access)
        connections.append(listening)
        undo.callback(listening.close)
        for connection in connections[1:]:  # what a newer version has changed, none of them reads
            connection.note_schema(len(known))
        writer, *readers, last = (
            Transactions(connection, job_seconds=limits.job_seconds, engine=POSTGRES)
            for connection in connections
        )
        # Nothing is cached yet: whatever comes after this is told.
        newest = PendingJob(newest_change)
        last.run_read(newest)
        feed = ChangeFeed(last, listening, after=newest.result())
        undo.pop_all()
    return writer, readers, feed
