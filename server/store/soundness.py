"""Is a database file whole? SQLite notices damage only where it happens to read, so a file is looked through before it is served,
and a copy before it is kept. What `PRAGMA quick_check` sees: pages, cells and keys, not whether their content is true.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from server.store.jobs import CannotOpen, StoreDamaged
from server.store.sqlite_connect import connect_reader
from server.store.sqlite_errors import translate

# Up to here the start waits for it: a quarter of a second on a common disk. A larger file is looked through while it is served.
CHECKED_AT_START_BYTES: Final = 256 * 1024 * 1024
_HEAD_BYTES: Final = 20
# The file format's "WAL", for reading and for writing.
_IN_USE: Final = re.compile(rb"SQLite format 3\0..\x02\x02", re.DOTALL)


class DatabaseDamaged(CannotOpen):
    """The database is not served, because it is damaged."""

    lasting = True
    hint = StoreDamaged.hint


def check_whole(connection: sqlite3.Connection) -> None:
    """Raises `StoreDamaged`, or what else keeps the file from being read."""
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise translate(error) from error
    if found != "ok":
        raise StoreDamaged("the database file is damaged")


def is_small(path: Path) -> bool:
    """Whether looking through it holds up nobody."""
    return path.stat().st_size <= CHECKED_AT_START_BYTES


def check_before_serving(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `DatabaseDamaged`."""
    if not is_small(path):
        return
    try:
        check_whole(connection)
    except StoreDamaged as damage:
        raise DatabaseDamaged(f"{path}: {damage}") from damage


def check_file(path: Path) -> None:
    """The same of a file that is in use, on a connection of its own. For a thread. Raises `StoreError`."""
    with closing(connect_reader(path)) as connection:
        check_whole(connection)


def was_copied_by_hand(path: Path) -> bool:
    """A database in use keeps its newest rows in a log beside it, and its file says that there is one; a back-up has none, and says
    so. A file that says so outside of a data directory is a copy that may lack them. False where it cannot be read."""
    log = path.with_name(f"{path.name}-wal")
    if path.with_name("lock").exists():
        return False
    try:
        if log.exists() and log.stat().st_size:  # an empty one is left by whoever looked into the file
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return _IN_USE.fullmatch(head) is not None
