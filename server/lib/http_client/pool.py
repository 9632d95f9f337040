"""The connections to one upstream: how many there may be at once, and which of them is used again.

A connection is in use by one call, or idle here, or closed; whoever waits for a place gets it in turn. One that could hold
somebody else's answer, or the end of an exchange that went wrong, is closed and never idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import trio

from server.lib.counted import counted
from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.failures import NotConnected, TooManyConnections

# Waiting longer than this for one of our own connections means that the other side does not keep up.
SLOT_SECONDS: Final = 10.0
# Below the idle limit of common servers (gunicorn 2 s, node and uvicorn 5 s): a request sent into a connection that is
# just being closed is lost, and may not be sent again.
KEEPALIVE_SECONDS: Final = 1.5


class ConnectionPool:
    def __init__(
        self,
        dial: Callable[[], Awaitable[UpstreamConnection]],
        *,
        connections: int,
        slot_seconds: float = SLOT_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._dial = dial
        self._connections = connections
        self._free = connections
        self._waiting = 0
        self._line = trio.lowlevel.ParkingLot()  # a place that is given back is theirs who wait here
        self._slot_seconds = slot_seconds
        self._clock = clock
        self._idle: deque[UpstreamConnection] = deque()  # the one used last is last
        self._closed = False

    def __len__(self) -> int:
        """Return how many are idle."""
        return len(self._idle)

    async def take(self) -> UpstreamConnection:
        """Return the connection used last, or a new one; to be given back. Raises `NotConnected`. Where one is idle, nothing waits."""
        if self._closed:
            raise _stopping()
        if self._free:
            self._free -= 1
        else:
            await self._wait()
        try:
            return self._idle_one() or await self._dial()
        except BaseException:
            self._release()
            raise

    def give_back(self, connection: UpstreamConnection) -> None:
        if connection.reusable and not self._closed:
            connection.expires_at = self._clock() + KEEPALIVE_SECONDS
            self._idle.append(connection)
        else:
            connection.close()
        if self._waiting:
            self._release()
        else:
            self._free += 1

    def close(self) -> None:
        """Close what is idle now, and a connection in use when it is given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _wait(self) -> None:
        with trio.move_on_after(self._slot_seconds) as wait:
            self._waiting += 1
            try:
                await self._line.park()
            finally:
                self._waiting -= 1
        if wait.cancelled_caught:
            raise TooManyConnections(
                f"is busy: {counted(self._connections, 'call')} {'is' if self._connections == 1 else 'are'} running"
            )
        if self._closed:
            self._release()
            raise _stopping()

    def _release(self) -> None:
        """Give the place to who waits longest, or keep it."""
        if not self._line.unpark():
            self._free += 1

    def _idle_one(self) -> UpstreamConnection | None:
        idle = self._idle
        if idle:
            now = self._clock()
            while idle and idle[0].expires_at <= now:
                idle.popleft().close()
            while idle:
                connection = idle.pop()
                if connection.is_quiet():
                    return connection
                connection.close()
        return None


def _stopping() -> NotConnected:
    return NotConnected("is no longer called: this server is stopping")
