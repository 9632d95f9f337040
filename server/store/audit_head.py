"""The head of a chain in a file of its own, outside the database: an older copy of the database, or of its end, lacks it.

Written now and then, after the rows were committed: so it is behind the database or level with it, and never ahead, whenever the process
is killed. It is sealed with the key of the chain. A restore writes the head of the copy *beside* the one that was there, and only then puts
the copy in place: whichever of the two databases is there fits.

Who compares is `chains.py`; who writes it down while the server runs, `run/audit_trail.py`. Files, so not for use inside a job.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from server.lib.own_files import replace_file
from server.store.chains import seal
from server.store.jobs import Position, StoreError

_VERSION: Final = "ostiary-head-1"
_HEAD: Final = re.compile(r"(\d{1,18}):([0-9a-f]*)")
_MAX_TEXT: Final = 1024


class HeadLost(StoreError):
    """There is no head to compare with: the file is missing, or not as it was written."""


class HeadFile:
    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key

    def read(self) -> tuple[Position, ...]:
        """The heads of which one must be in the chain. Raises `HeadLost`."""
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                text = file.read(_MAX_TEXT).rstrip("\n")
        except OSError as error:
            raise HeadLost(f"cannot read {self.path.name}: {error.strerror}") from error
        said, _, found_seal = text.rpartition(" ")
        version, *heads = said.split(" ")
        found = [match for head in heads if (match := _HEAD.fullmatch(head))]
        same = hmac.compare_digest(seal(self._key, "head", said).encode(), found_seal.encode())
        if not same or version != _VERSION or not heads or len(found) != len(heads):
            raise HeadLost(f"{self.path.name} is not as it was written")
        return tuple(Position(seq=int(match[1]), mac=match[2]) for match in found)

    def write(self, *heads: Position) -> None:
        """Raises `OSError`; then what was there is there still."""
        self._replace(heads)

    def add(self, head: Position) -> None:
        """Beside those that are there, as far as they can be read. Raises `OSError`."""
        try:
            there = self.read()
        except HeadLost:
            there = ()
        self._replace((*there[-1:], head))

    def _replace(self, heads: Sequence[Position]) -> None:
        said = " ".join((_VERSION, *(f"{head.seq}:{head.mac}" for head in heads)))
        replace_file(self.path, f"{said} {seal(self._key, 'head', said)}\n".encode())
