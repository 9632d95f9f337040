"""What a supervisor is told of the server: that it is ready, that it is well, and that it stops. The protocol is that of sd_notify(3),
datagrams to the socket that NOTIFY_SOCKET names; without it nobody is told anything. How often it wants to hear is in WATCHDOG_USEC
(sd_watchdog_enabled(3)): it ends a server that says nothing for so long.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Final

import trio

VARIABLE: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
WATCHDOG_OF: Final = "WATCHDOG_PID"
# What ending takes beyond the time that calls are given: agents, a reader that takes nothing, a disk that does not answer.
ENDING_SECONDS: Final = 30.0


class Supervisor:
    """Nobody waits for it, and a supervisor that does not listen keeps the server from nothing."""

    def __init__(self, address: str, *, watches_seconds: float = 0.0) -> None:
        """`watches_seconds`: how long the server may say nothing; 0 where nobody looks."""
        self._address = address
        self._watches_seconds = watches_seconds
        self._is_ready = False

    def ready(self, words: str) -> None:
        self._is_ready = True
        self._tell("READY=1", f"STATUS={words}")

    def stopping(self, drain_seconds: float) -> None:
        """It is asked for as long as this may take, which settings decide and its own bound does not know."""
        microseconds = round((drain_seconds + ENDING_SECONDS) * 1_000_000)
        self._tell("STOPPING=1", "STATUS=finishing calls", f"EXTEND_TIMEOUT_USEC={microseconds}")

    async def keep_saying_well(self, well: Callable[[], bool] = lambda: True) -> None:
        """From when it is ready, twice in the time that it may say nothing, as long as it is. Whoever does not get round to it is not."""
        if not self._watches_seconds:
            return
        while True:
            if self._is_ready and well():
                self._tell("WATCHDOG=1")
            await trio.sleep(self._watches_seconds / 2)

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        # @ stands for the zero byte of an address that is no file.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), address)


def supervisor_of(environ: MutableMapping[str, str]) -> Supervisor:
    """Whoever is named there; taken out, because what this process starts has nothing to say of it."""
    address = environ.pop(VARIABLE, "")
    microseconds, whose = environ.pop(WATCHDOG, ""), environ.pop(WATCHDOG_OF, "")
    # Of the executable, the process that was started is the one that unpacks it.
    ours = not whose or whose in (str(os.getpid()), str(os.getppid()))
    watches = (
        int(microseconds) / 1_000_000 if ours and microseconds.isascii() and microseconds.isdigit() else 0.0
    )
    return Supervisor(address if address[:1] in ("/", "@") else "", watches_seconds=watches)
