"""Room on the disk that is held for the moment when there is no other: a file of a megabyte that nobody reads.

Whoever takes a right away (ends a login, a key, an account, signs out) must be able to on a full disk, and so must a start. For the one
the writer lends the file's room to a single job that says so (`StoreDb.takes_away`), for the other it goes before anything else is
opened (`data_directory.py`). What is left of the room afterwards is taken back at once, or the next best request would use it up.

Only the process that holds the data directory's lock may touch it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

BALLAST_BYTES: Final = 1024 * 1024
# A start needs a few pages of SQLite's log and its index, and some small files; this is several times that.
START_BYTES: Final = 256 * 1024
# It is written in pieces: on a disk with less room it is as large as fits.
_PIECE_BYTES: Final = 32 * 1024


class ReserveFile:
    """May be used from any thread. An error of the disk is never raised: then there is less of it, or none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._alone = Lock()

    def fill(self) -> int:
        """Make it as large as it should be, or as fits; how large it is now."""
        with self._alone:
            return self._fill()

    def make_room_for_start(self) -> None:
        """Give it up if the disk takes less than a start needs. Tried out, because no system call tells of every quota."""
        with self._alone:
            # If we are killed, it is cleared away like any other file of this ending.
            trial = self.path.with_name(f"{self.path.name}.partial")
            try:
                if _extend(trial, START_BYTES) < START_BYTES:
                    self._empty()
            finally:
                with suppress(OSError):
                    trial.unlink()

    @contextmanager
    def lent(self) -> Generator[None]:
        """While the body runs its room is free for whatever that writes."""
        with self._alone:
            self._empty()
            try:
                yield
            finally:
                self._fill()

    def _empty(self) -> None:
        # Emptied, not removed: on a disk that has no room for another name it could not be made again.
        with suppress(OSError):
            os.close(os.open(self.path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC))

    def _fill(self) -> int:
        return _extend(self.path, BALLAST_BYTES)


def _extend(path: Path, size: int) -> int:
    """Write on at the end of a file until it has this size or the disk takes no more; how large it is then."""
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
    except OSError:
        return 0
    try:
        length = os.fstat(descriptor).st_size
        if length >= size:
            return length
        with suppress(OSError):
            while length < size:
                # At random: a file system that compresses would hold zeros in no room at all.
                length += os.write(descriptor, os.urandom(min(_PIECE_BYTES, size - length)))
        return length
    finally:
        os.close(descriptor)
