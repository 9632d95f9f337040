"""Have files changed? By looking at them again and again, which works on every file system, and on those that others share
with us.

Only whether, not what: who asks starts anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import trio

EVERY_SECONDS: Final = 0.5

Stamp = tuple[int, int, int] | None  # None: it is not there, or cannot be seen
Stamps = dict[str, Stamp]


def look(files: Iterable[str]) -> Stamps:
    return {file: _stamp(file) for file in files}


def followed(file: Path) -> list[str]:
    """Return a file and what it is a link to: a configuration that is put in place from elsewhere is exchanged there."""
    return sorted({str(file), str(file.resolve())})


class FileWatch:
    """`known` may be added to meanwhile."""

    def __init__(self, known: Stamps) -> None:
        self._known = known
        self._edited: Stamps = {}

    def settled(self, now: Stamps) -> bool:
        """Return whether files have changed, and been left alone since the last look: saving or exchanging them takes time."""
        edited = {file: stamp for file, stamp in now.items() if stamp != self._known.get(file, stamp)}
        before, self._edited = self._edited, edited
        return bool(edited) and edited == before


async def changed(known: Stamps) -> None:
    """Wait until files have changed and settled."""
    watch = FileWatch(known)
    while True:
        await trio.sleep(EVERY_SECONDS)
        # In a thread: one of them may lie on a disk that does not answer.
        if watch.settled(await trio.to_thread.run_sync(look, list(known), abandon_on_cancel=True)):
            return


def _stamp(file: str) -> Stamp:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
