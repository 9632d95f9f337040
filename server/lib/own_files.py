"""Files and directories that their owner alone may use, made and replaced so that they survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_FILE: Final = 0o600
_DIRECTORY: Final = 0o700
_OTHERS: Final = 0o077


def make_file(path: Path | str) -> int:
    """Return a new file, open for writing. Raises `FileExistsError` for whatever is there, a link too, and other `OSError`."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE)


def open_lock_file(path: Path) -> int:
    """Return a file to be locked, made if there is none. Raises `OSError`, also for a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _FILE)


def make_directory(path: Path) -> None:
    """Make a directory if there is none, with those above it. Raises `OSError`."""
    path.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)


def open_to_others(status: os.stat_result) -> bool:
    """Return whether others may read, change or enter it."""
    return bool(status.st_mode & _OTHERS)


def replace_file(path: Path, data: bytes) -> None:
    """Put a new file in the place of the one that may be there; durable when it returns. Raises `OSError`; then the old one stays."""
    # One fixed name: what a killed process left behind is overwritten, not left lying about.
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(make_file(partial), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make a file's creation or renaming in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
