"""Opening SQLite the one way we use it: WAL, synced at every commit, foreign keys on, the file for its owner's eyes only."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from server.lib.own_files import make_file, sync_directory
from server.store.jobs import CannotOpen, DiskFull, ForeignDatabase, StoreReadOnly
from server.store.sqlite_errors import translate

# "OSTY" in the file's header: a database of somebody else is never migrated.
APPLICATION_ID: Final = 0x4F535459

# RETURNING (3.35) is the newest thing that our SQL needs.
MINIMUM_SQLITE: Final = (3, 35, 0)

# Another process (a back-up, a shell) may hold the lock for a moment. Beyond this the batch fails with 503.
BUSY_SECONDS: Final = 5.0

# After a burst the WAL file is cut back to this; without it, it stays as large as it ever was.
_WAL_KEPT_BYTES: Final = 64 * 1024 * 1024

_STATEMENTS_CACHED: Final = 256


@contextmanager
def opening(path: Path | None) -> Generator[None]:
    """Turn SQLite's errors while opening into ones that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        name = "the database" if path is None else str(path)
        trouble = translate(error)
        raise CannotOpen(f"cannot open {name}: {trouble}", hint=trouble.hint) from error


def connect_writer(path: Path | None) -> sqlite3.Connection:
    """A connection that may write, to a file (made with mode 0600 if missing) or, for None, to memory."""
    if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
        raise CannotOpen(
            f"this Python has SQLite {sqlite3.sqlite_version}, which is too old",
            hint=f"use a Python with SQLite {'.'.join(map(str, MINIMUM_SQLITE))} or newer",
        )
    if path is not None:
        _make_private_file(path)
    with opening(path):
        connection = _connect(":memory:" if path is None else str(path))
        try:
            _check_ours(connection, path)
            if path is not None:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise CannotOpen(
                        f"{path.parent} does not support the database's write-ahead log",
                        hint="use a data directory on a local disk",
                    )
                connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
            # A settled payment or a used code must survive a power cut, not just a crash.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. In WAL mode it never waits for the writer, nor the writer for it."""
    with opening(path):
        connection = _connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(target: str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target,
        uri=uri,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # we begin and end transactions ourselves
        check_same_thread=False,  # opened in one thread, then used in another, never in two at once
        cached_statements=_STATEMENTS_CACHED,
    )
    connection.execute("PRAGMA temp_store = MEMORY")  # so that a read that sorts works on a full disk
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _check_ours(connection: sqlite3.Connection, path: Path | None) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id == APPLICATION_ID:
        return
    if application_id != 0 or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise ForeignDatabase(f"{path} is a database of another program", hint="use another data directory")


def _make_private_file(path: Path) -> None:
    # SQLite would make it with the umask's mode; the -wal and -shm files take theirs from this one.
    try:
        os.close(make_file(path))
    except FileExistsError:
        return
    except OSError as error:
        raise CannotOpen(f"cannot create {path}: {error.strerror}", hint=hint_for(error)) from error
    sync_directory(path.parent)


def hint_for(error: OSError) -> str | None:
    """What to do about a disk that refuses."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull.hint
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly.hint
    return None
