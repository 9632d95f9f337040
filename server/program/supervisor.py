"""What a supervisor is told of the server: that it is ready, and that it stops. The protocol is that of sd_notify(3), datagrams to the
socket that NOTIFY_SOCKET names; without it nobody is told anything.
"""

from __future__ import annotations

import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"
# What ending takes beyond the time that calls are given: agents, a reader that takes nothing, a disk that does not answer.
ENDING_SECONDS: Final = 30.0


class Supervisor:
    """Nobody waits for it, and a supervisor that does not listen keeps the server from nothing."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ready(self, words: str) -> None:
        self._tell("READY=1", f"STATUS={words}")

    def stopping(self, drain_seconds: float) -> None:
        """It is asked for as long as this may take, which settings decide and its own bound does not know."""
        microseconds = round((drain_seconds + ENDING_SECONDS) * 1_000_000)
        self._tell("STOPPING=1", "STATUS=finishing calls", f"EXTEND_TIMEOUT_USEC={microseconds}")

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
    return Supervisor(address if address[:1] in ("/", "@") else "")
