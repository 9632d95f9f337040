"""A whole copy of a database in one new file, taken while it may be in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from server.store.connect import sync_directory
from server.store.jobs import StoreError
from server.store.sqlite_errors import translate


class BackupFailed(StoreError):
    """No copy was made; the database is as it was."""


def copy_database(source: sqlite3.Connection, target: Path) -> None:
    """Write what `source` sees now to the new file `target` (mode 0600), complete and synced, or leave no file.

    Never overwrites. Raises `BackupFailed`.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        if target.exists():
            raise BackupFailed(f"{target} exists already", hint="name a new file")
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
            sync_file(partial)
            os.link(partial, target)  # unlike a rename, refuses to replace a file that appeared meanwhile
        finally:
            partial.unlink()
        sync_directory(target.parent)
    except sqlite3.Error as error:
        raise BackupFailed(f"cannot copy the database to {target}: {translate(error)}") from error
    except OSError as error:
        raise BackupFailed(f"cannot copy the database to {target}: {error.strerror}") from error


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
