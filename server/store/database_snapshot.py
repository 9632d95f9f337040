"""A whole copy of a database in one new file, taken while it may be in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from server.lib.own_files import make_file, sync_directory
from server.store.jobs import StoreDamaged, StoreError, StoreUnavailable
from server.store.soundness import check_whole
from server.store.sqlite_connect import hint_for
from server.store.sqlite_errors import translate

_TIME: Final = "%Y%m%dT%H%M%S.%f"


class BackupFailed(StoreError):
    """No copy was made; the database is as it was."""


class SourceDamaged(BackupFailed):
    """What was copied is damaged, so the copy was not kept: it could take the place of one that is whole."""

    hint = StoreDamaged.hint


def stamp(now: int) -> str:
    """Return milliseconds since 1970 as a part of a file's name that sorts by time."""
    return datetime.fromtimestamp(now / 1000, UTC).strftime(_TIME)[:-3] + "Z"


def stamped(text: str) -> int:
    """Return the milliseconds since 1970 that a stamp stands for. Raises `ValueError`."""
    return round(datetime.strptime(text, f"{_TIME}Z").replace(tzinfo=UTC).timestamp() * 1000)


def copy_database(source: sqlite3.Connection, target: Path) -> None:
    """Write what `source` sees now to the new file `target` (mode 0600), complete and synced, or leave no file.

    Never overwrites. Raises `BackupFailed`; `SourceDamaged` if the copy is not whole.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        if target.exists():
            raise BackupFailed(f"{target} exists already", hint="name a new file")
        partial.unlink(missing_ok=True)
        os.close(make_file(partial))
        try:
            with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
                check_whole(copy)
            sync_file(partial)
            os.link(partial, target)  # unlike a rename, refuses to replace a file that appeared meanwhile
        finally:
            for each in (partial, partial.with_name(f"{partial.name}-journal")):
                each.unlink(missing_ok=True)
        sync_directory(target.parent)
    except StoreDamaged as error:
        raise SourceDamaged(f"cannot copy the database to {target}: it is damaged") from error
    except StoreUnavailable as error:
        raise BackupFailed(f"cannot copy the database to {target}: {error}", hint=error.hint) from error
    except sqlite3.DatabaseError as error:
        if isinstance(translate(error), StoreDamaged):
            raise SourceDamaged(f"cannot copy the database to {target}: it is damaged") from error
        raise BackupFailed(f"cannot copy the database to {target}: {translate(error)}") from error
    except OSError as error:
        raise BackupFailed(
            f"cannot copy the database to {target}: {error.strerror}",
            hint=hint_for(error)
            if target.parent.is_dir()
            else f"make the folder {target.parent} first, or name a file elsewhere",
        ) from error


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
