"""What a worker is handed by its parent: the number of a descriptor in its environment, and over that all the rest, in one line.

Nothing of it is secret, and nothing of it stands in its command line.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

# It begins with OSTIARY_ and is no setting: it is taken out before variables are looked through for misspelt ones.
VARIABLE: Final = "OSTIARY_WORKER"
_LINE_BYTES: Final = 4096


class HandedOver(msgspec.Struct, frozen=True, kw_only=True):
    """Descriptors are numbers in the worker."""

    number: int  # of this worker, from 1
    public: tuple[int, ...]
    plain: tuple[int, ...] = ()
    admin: tuple[int, ...] = ()
    locks: tuple[int, ...] = ()  # of the data directory: held until the last of all has ended
    terminal: int = -1  # the one on which the log is read, if it is read on one
    settings: int = -1  # what stood in their file when the parent read it: what counts from the next start counts for all from there
    speaks: bool = False  # says what is to be said once at the start of all
    shows_claim_link: bool = False

    @property
    def descriptors(self) -> Sequence[int]:
        others = (each for each in (self.terminal, self.settings) if each >= 0)
        return (*self.public, *self.plain, *self.admin, *self.locks, *others)


class NotHanded(ValueError):
    """The variable is there, and nothing behind it: whoever set it is no parent of ours."""


def hand_over(sock: socket.socket, handed: HandedOver) -> None:
    """The first that is written to a new pair of sockets, which has room for it."""
    sock.sendall(msgspec.json.encode(handed) + b"\n")


def take_over(environ: MutableMapping[str, str]) -> tuple[HandedOver, socket.socket]:
    """What it was handed is not passed on to what it starts. Raises `NotHanded`."""
    written = environ.pop(VARIABLE, "")
    with ExitStack() as undo:
        try:
            sock = undo.enter_context(socket.socket(fileno=int(written)))
            handed = msgspec.json.decode(_line(sock), type=HandedOver)
            for descriptor in (sock.fileno(), *handed.descriptors):
                os.set_inheritable(descriptor, False)
        except (ValueError, OSError, msgspec.MsgspecError) as error:
            raise NotHanded(f"{VARIABLE} is set by a server for its own workers: {error}") from error
        undo.pop_all()
    return handed, sock


def _line(sock: socket.socket) -> bytes:
    """A byte at a time: what follows is for others."""
    found = bytearray()
    while not found.endswith(b"\n") and len(found) < _LINE_BYTES:
        more = sock.recv(1)
        if not more:
            break
        found += more
    return bytes(found)
