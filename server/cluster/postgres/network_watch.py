"""Whether a network that was cut carries again: known sooner than by the connection that hangs in it.

What TCP sends anew it sends after pauses that double: after a cut of three seconds it says nothing for up to three more, and what others have
ended meanwhile would go unheard for as long. So whoever waits for an answer in vain knocks at the same address, four times a second. As long
as knocks are answered the network is well, and who is asked takes long; one that is answered after two that were not says that it is back.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable
from typing import Final

# An answer that takes no longer is nothing to wonder about.
SILENT_SECONDS: Final = 0.5
KNOCK_SECONDS: Final = 0.25
# Where the network is well: now and then, because it may be cut meanwhile.
PAUSE_SECONDS: Final = 1.0
# One may be lost on a network that is well.
IN_VAIN: Final = 2

# Whoever refuses is reached.
_ANSWERS: Final = frozenset({0, errno.ECONNREFUSED})
_NO_WAY: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


class NetworkWatch:
    """Of one connection; `begin` it with each wait. The clock is the machine's, in seconds."""

    def __init__(self, address: tuple[str, int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._knock: socket.socket | None = None
        self._next_at = 0.0  # the next one begins, and one that is under way is in vain
        self._in_vain = 0  # in a row

    def begin(self) -> None:
        self.end()
        self._next_at = self._clock() + SILENT_SECONDS
        self._in_vain = 0

    def end(self) -> None:
        if self._knock is not None:
            self._knock.close()
            self._knock = None

    def is_back(self) -> bool:
        """Asked again and again by whoever waits; it never waits itself."""
        if self._knock is not None and (outcome := _outcome(self._knock)) is not None:
            self.end()
            return self._note(outcome)
        if self._clock() >= self._next_at:
            if self._knock is not None:
                self.end()
                self._in_vain += 1
            self._next_at = self._clock() + KNOCK_SECONDS
            self._begin_knock()
        return False

    def _begin_knock(self) -> None:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        try:
            knock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # of this process: out of descriptors
            return
        knock.setblocking(False)
        begun = knock.connect_ex(self._address)
        if begun in _ANSWERS or begun == errno.EINPROGRESS:
            self._knock = knock
        else:
            knock.close()
            self._in_vain += begun in _NO_WAY

    def _note(self, outcome: int) -> bool:
        if outcome not in _ANSWERS:
            self._in_vain += 1
            return False
        was_gone, self._in_vain = self._in_vain >= IN_VAIN, 0
        self._next_at = self._clock() + PAUSE_SECONDS
        return was_gone


def _outcome(knock: socket.socket) -> int | None:
    """What came of it, told once. None: nothing yet."""
    waiting = select.poll()
    waiting.register(knock, select.POLLOUT)
    return knock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if waiting.poll(0) else None
