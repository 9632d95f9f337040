"""Whether a network that was cut carries again: known sooner than by the connection that hangs in it.

What TCP sends anew it sends after pauses that double: after a cut of three seconds it says nothing for up to three more, and what others have
ended meanwhile would go unheard for as long. So whoever waits for an answer in vain knocks at the same address, four times a second. A first
knock that is answered says that the network was never gone; one that is answered after others were not, that it is back.
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
# Where the network is well, and only who is asked takes long: now and then, because it may be cut meanwhile.
PAUSE_SECONDS: Final = 1.0


class NetworkWatch:
    """Of one connection; `begin` it with each wait. The clock is the machine's, in seconds."""

    def __init__(self, address: tuple[str, int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._knock: socket.socket | None = None
        self._next_at = 0.0  # the next one begins, or the one that is under way was in vain
        self._was_gone = False

    def begin(self) -> None:
        self.end()
        self._next_at = self._clock() + SILENT_SECONDS
        self._was_gone = False

    def end(self) -> None:
        if self._knock is not None:
            self._knock.close()
            self._knock = None

    def is_back(self) -> bool:
        """Asked again and again by whoever waits; it never waits itself."""
        if self._knock is not None and self._is_answered(self._knock):
            return self._note_answered()
        if self._clock() < self._next_at:
            return False
        if self._knock is not None:
            self._was_gone = True
        self.end()
        self._next_at = self._clock() + KNOCK_SECONDS
        try:
            self._knock = self._knocked()
        except OSError:  # there is no way there
            self._was_gone = True
        return False

    def _note_answered(self) -> bool:
        self.end()
        self._next_at = self._clock() + PAUSE_SECONDS
        return self._was_gone

    def _knocked(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        knock = socket.socket(family, socket.SOCK_STREAM)
        knock.setblocking(False)
        failed = knock.connect_ex(self._address)
        if failed not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
            knock.close()
            raise OSError(failed, "no way there")
        return knock

    def _is_answered(self, knock: socket.socket) -> bool:
        """Also with a refusal: whoever refuses is reached."""
        waiting = select.poll()
        waiting.register(knock, select.POLLOUT)
        if not waiting.poll(0):
            return False
        return knock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED)
