"""The store on SQLite, in a file, with threads of its own (`threaded_store.py`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import trio

from server.store.migrate import Migration, migrate, packaged_migrations
from server.store.reserve_file import ReserveFile
from server.store.soundness import check_before_serving
from server.store.sqlite_connect import connect_reader, connect_writer, opening
from server.store.threaded_store import DEFAULT_LIMITS, StoreLimits, ThreadedStore, serving
from server.store.transactions import Transactions


@asynccontextmanager
async def open_store(
    path: Path,
    *,
    clock: Callable[[], int],
    backups: Path,
    migrations: Sequence[Migration] | None = None,
    limits: StoreLimits = DEFAULT_LIMITS,
    ballast: ReserveFile | None = None,
) -> AsyncGenerator[ThreadedStore]:
    """Open and migrate the database at `path`; on leaving, finish what was accepted and end the threads.

    `clock` tells milliseconds since 1970 and is called in the writer's thread. The caller holds the data directory's lock
    (`data_directory.py`); `ballast` is what it may lend on a full disk. Raises `CannotOpen`. If the store breaks meanwhile, the body is cancelled and `StoreBroken` raised.
    """
    writer, readers = await trio.to_thread.run_sync(_open, path, clock, backups, migrations, limits, ballast)
    async with serving(writer, readers, clock=clock, limits=limits) as store:
        yield store


def _open(
    path: Path,
    clock: Callable[[], int],
    backups: Path,
    migrations: Sequence[Migration] | None,
    limits: StoreLimits,
    ballast: ReserveFile | None,
) -> tuple[Transactions, list[Transactions]]:
    with ExitStack() as undo:
        writer = connect_writer(path)
        undo.callback(writer.close)
        with opening(path):
            check_before_serving(writer, path)
            migrate(
                writer,
                packaged_migrations() if migrations is None else migrations,
                now=clock(),
                backups=backups,
            )
        readers = [connect_reader(path) for _ in range(limits.readers)]
        undo.pop_all()
    return (
        Transactions(writer, job_seconds=limits.job_seconds, ballast=ballast),
        [Transactions(reader, job_seconds=limits.job_seconds) for reader in readers],
    )
