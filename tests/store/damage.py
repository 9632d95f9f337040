"""Databases on a disk that fails: pages that hold something else than was written, and no room for more of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from server.store.threaded_store import ThreadedStore


def spoil(database: Path, table: str) -> None:
    """Overwrite the root page of a table, as a failing disk does. Its log must be folded in already."""
    with closing(sqlite3.connect(database)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)


def fill_disk(store: ThreadedStore) -> None:
    """Whatever needs a page more is refused, as by a disk that is full."""
    _limit_pages(store, 1)  # less than there are: SQLite takes as many as there are


def free_disk(store: ThreadedStore) -> None:
    _limit_pages(store, 1_000_000)


def refuse_writes(store: ThreadedStore) -> None:
    """As a file system does that was mounted read-only."""
    _connection_of(store).execute("PRAGMA query_only = ON")


def accept_writes(store: ThreadedStore) -> None:
    _connection_of(store).execute("PRAGMA query_only = OFF")


def _limit_pages(store: ThreadedStore, pages: int) -> None:
    _connection_of(store).execute(f"PRAGMA max_page_count = {pages}")


def _connection_of(store: ThreadedStore) -> sqlite3.Connection:
    connection = store._transactions._connection  # pyright: ignore[reportPrivateUsage]
    assert isinstance(connection, sqlite3.Connection)
    return connection
