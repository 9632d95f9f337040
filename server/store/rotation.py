"""Back-ups made again and again into one directory: how they are called, when the last one was made, and how many stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from server.lib.own_files import make_directory
from server.store.backup import back_up
from server.store.database_snapshot import BackupFailed, stamp, stamped
from server.store.sqlite_connect import hint_for

_NAME: Final = re.compile(r"ostiary-(\d{8}T\d{6}\.\d{3}Z)\.db")


def back_up_into(database: Path, directory: Path, *, keep: int | None, now: int) -> Path:
    """A new copy in `directory`; only when it is complete, those beyond the newest `keep` go. Raises `BackupFailed`."""
    try:
        make_directory(directory)
    except OSError as error:
        raise BackupFailed(f"cannot use {directory}: {error.strerror}", hint=hint_for(error)) from error
    target = directory / f"ostiary-{stamp(now)}.db"
    back_up(database, target)
    if keep is not None:
        for old in copies(directory, now=now)[:-keep]:
            old.unlink(missing_ok=True)
    return target


def last_made(directory: Path, *, now: int) -> int | None:
    """When the newest of them was made."""
    times = [at for path in copies(directory, now=now) if (at := _time_of(path)) <= now]
    return times[-1] if times else None


def copies(directory: Path, *, now: int) -> list[Path]:
    """Oldest first. One that claims to be of the future was named by a wrong clock, and is older than what is made now."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: ((at := _time_of(path)) <= now, at))


def _time_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return stamped(match[1])
