"""The connections to one upstream: how many there may be at once, and which of them is used again.

A connection is in use by one call, or idle here, or closed; whoever waits for a place gets it in turn. What could hold
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
        self._slots = trio.Semaphore(connections)
        self._slot_seconds = slot_seconds
        self._clock = clock
        self._idle: deque[UpstreamConnection] = deque()  # the one used last is last
        self._closed = False

    def __len__(self) -> int:
        """How many are idle."""
        return len(self._idle)

    async def take(self) -> UpstreamConnection:
        """The connection used last, or a new one; to be given back. Raises `NotConnected`. It does not wait where one is idle."""
        if self._closed:
            raise _stopping()
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            await self._wait()
        try:
            return self._idle_one() or await self._dial()
        except BaseException:
            self._slots.release()
            raise

    def give_back(self, connection: UpstreamConnection) -> None:
        if connection.reusable and not self._closed:
            connection.expires_at = self._clock() + KEEPALIVE_SECONDS
            self._idle.append(connection)
        else:
            connection.close()
        self._slots.release()

    def close(self) -> None:
        """What is idle, now; a connection in use when it is given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _wait(self) -> None:
        with trio.move_on_after(self._slot_seconds) as wait:
            await self._slots.acquire()
        if wait.cancelled_caught:
            raise TooManyConnections(
                f"is busy: {counted(self._connections, 'call')} {'is' if self._connections == 1 else 'are'} running"
            )
        if self._closed:
            self._slots.release()
            raise _stopping()

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
