"""From SQLite's result codes to the store's error tree. Messages of SQLite name tables and columns, never values."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from server.store.jobs import (
    ConstraintFailed,
    DiskError,
    DiskFull,
    JobTooSlow,
    StatementFailed,
    StoreBroken,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
)

# Extended codes first: a quota (EDQUOT) or file size limit (EFBIG) reaches us as a failed write, not as SQLITE_FULL.
_BY_CODE: Final[Mapping[int, tuple[type[StoreError], str]]] = MappingProxyType(
    {
        sqlite3.SQLITE_IOERR_WRITE:   (DiskFull, "the disk is full or refuses to be written to"),
        sqlite3.SQLITE_IOERR_SHMSIZE: (DiskFull, "the disk is full or refuses to be written to"),
        # What a failed sync leaves behind is anybody's guess until the machine has been restarted.
        sqlite3.SQLITE_IOERR_FSYNC:   (StoreBroken, "the disk did not confirm a write; it may or may not last"),
        sqlite3.SQLITE_FULL:          (DiskFull, "the disk is full"),
        sqlite3.SQLITE_READONLY:      (StoreReadOnly, "the database cannot be written to"),
        sqlite3.SQLITE_BUSY:          (StoreBusy, "another process is using the database"),
        sqlite3.SQLITE_LOCKED:        (StoreBusy, "another connection is using the database"),
        sqlite3.SQLITE_INTERRUPT:     (JobTooSlow, "the database work took too long and was stopped"),
        sqlite3.SQLITE_CORRUPT:       (StoreDamaged, "the database file is damaged"),
        sqlite3.SQLITE_NOTADB:        (StoreDamaged, "the file is not a database, or is damaged"),
        sqlite3.SQLITE_IOERR:         (DiskError, "the disk refused to be read or written"),
        sqlite3.SQLITE_CANTOPEN:      (DiskError, "the database file cannot be opened"),
    }
)  # fmt: skip


def translate(error: sqlite3.Error | sqlite3.Warning) -> StoreError:
    """The store's own error for one of SQLite's; a new object at each call, because exceptions collect tracebacks."""
    # Absent where Python itself refused (wrong number of parameters …).
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        for known in (code, code & 0xFF):
            if known in _BY_CODE:
                kind, message = _BY_CODE[known]
                return kind(message)
        if code & 0xFF == sqlite3.SQLITE_CONSTRAINT:
            return ConstraintFailed(str(error))
    return StatementFailed(str(error))
