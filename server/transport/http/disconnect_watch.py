"""What goes with a request that takes long: somebody who notices that its client has left, and gives signs of life meanwhile.

A request that is answered within a tick of the reaper has none, so that ordinary calls cost no task.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

from server.calls.caller_outlet import KEEP_ALIVE_SECONDS


class WatchedReply(Protocol):
    """The request's side: transport/http/inline_reply.py."""

    @property
    def spoke_at(self) -> float:
        """When something was last said to the client, or it began."""
        ...

    async def wait_gone(self) -> None:
        """Returns when the client has left."""
        ...

    async def ping(self) -> None: ...

    def leave(self) -> None:
        """The client is not there any more."""
        ...


class DisconnectWatch:
    """`watches`: whether the client is there matters; `pings`: nobody else gives signs of life."""

    __slots__ = ("_ended", "_scope", "_side", "pings", "watches")

    def __init__(self, side: WatchedReply, *, watches: bool, pings: bool) -> None:
        self._side = side
        self.watches: Final = watches
        self.pings: Final = pings
        self._scope: trio.CancelScope | None = None  # from when on it runs
        self._ended: trio.Event | None = None

    @property
    def started(self) -> bool:
        return self._scope is not None

    def prepare(self) -> None:
        """It is about to run."""
        self._scope, self._ended = trio.CancelScope(), trio.Event()

    async def run(self) -> None:
        """Until it is dismissed, or the client has left."""
        assert self._scope is not None
        assert self._ended is not None
        try:
            with self._scope:
                while True:
                    due = self._side.spoke_at + KEEP_ALIVE_SECONDS if self.pings else math.inf
                    with trio.move_on_at(due):
                        if not self.watches:
                            await trio.sleep_forever()
                        await self._side.wait_gone()
                        self._side.leave()
                        return
                    if trio.current_time() >= self._side.spoke_at + KEEP_ALIVE_SECONDS:
                        await self._side.ping()
        finally:
            self._ended.set()

    def give_up(self) -> None:
        """It cannot go on: the request is taken for one whose client has left."""
        self._side.leave()

    async def dismiss(self) -> None:
        """Nothing of it reads or writes any more when this returns."""
        if self._scope is not None and self._ended is not None:
            self._scope.cancel()
            await self._ended.wait()
