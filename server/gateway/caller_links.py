"""Connections with an upstream that belong to one caller each: a child of its own, a TCP connection, or a stream of 2024-11-05.

A caller's connection is opened with the first request, and closed when nobody has used it for a while or somebody else needs the place.
What is offered is read on the shared connection; what a child says of changes is told to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from server.backends.base import AgentRequest, BackendError, Busy
from server.gateway.link import Link, UpstreamTells
from server.gateway.messages import UpstreamGone
from server.observe.log import Logger

IDLE_SECONDS: Final = 600.0
FULL: Final = "as many people use it as can at once: try again in a minute"


class CallerLink:
    """The connection of one caller, from the moment in which somebody begins to open it."""

    def __init__(self) -> None:
        self.ready: Final = trio.Event()  # it is there, or it is known why it is not
        self.ended: Final = trio.Event()  # its place is free again
        self.scope: Final = trio.CancelScope()
        self.link: Link | None = None
        self.problem: BackendError | None = None
        self.taken = trio.Event()  # somebody asked for it since it was last looked at
        self.waiting = 0

    @property
    def busy(self) -> bool:
        return self.link is None or self.waiting > 0 or self.link.busy


class CallerLinks:
    """`open_link` connects and agrees, for this caller; each connection runs in `nursery`."""

    def __init__(
        self,
        open_link: Callable[[UpstreamTells, AgentRequest], AbstractAsyncContextManager[Link]],
        nursery: trio.Nursery,
        *,
        most: int,
        name: str,
        log: Logger,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._open = open_link
        self._nursery = nursery
        self._most = most
        self._name = name
        self._log = log
        self._idle_seconds = idle_seconds
        self._links: dict[str, CallerLink] = {}  # whoever was heard of last comes last

    def __len__(self) -> int:
        return len(self._links)

    async def of(self, call: AgentRequest) -> Link:
        """Return the caller's connection. Raises `BackendError`: `Busy` where every place is in use."""
        key = call.apart
        found = self._links.pop(key, None)
        if found is None or found.ended.is_set():
            found = CallerLink()
            self._nursery.start_soon(self._hold, key, found, call.bare())
        self._links[key] = found
        found.taken.set()
        found.waiting += 1
        try:
            await found.ready.wait()
        finally:
            found.waiting -= 1
        if found.link is None:
            raise found.problem or UpstreamGone("is being stopped")
        return found.link

    def known(self, call: AgentRequest) -> Link | None:
        """Return the caller's connection, if there is one."""
        found = self._links.get(call.apart)
        return None if found is None else found.link

    async def _hold(self, key: str, found: CallerLink, call: AgentRequest) -> None:
        try:
            with found.scope:
                await self._make_room()
                await self._use(found, call)
        except BackendError as error:
            found.problem = error
        except Exception:  # a mistake of ours with one connection is none of the others'
            self._log.exception("upstream.crashed", agent=self._name)
            found.problem = UpstreamGone("cannot be used: the log says why")
        finally:
            found.link = None
            if self._links.get(key) is found:
                del self._links[key]
            found.ended.set()
            found.ready.set()

    async def _make_room(self) -> None:
        while len(self._links) > self._most:
            idle = next((each for each in self._links.values() if not each.busy), None)
            if idle is None:
                raise Busy(FULL)
            idle.scope.cancel()
            await idle.ended.wait()

    async def _use(self, found: CallerLink, call: AgentRequest) -> None:
        async with self._open(UpstreamTells(lists=nothing, resource=nothing_of), call) as link:
            found.link = link
            found.ready.set()
            while not link.ended.is_set():
                found.taken = trio.Event()
                with trio.move_on_after(self._idle_seconds) as idle:
                    await either(link.ended, found.taken)
                if idle.cancelled_caught and not found.busy:
                    return


async def either(one: trio.Event, other: trio.Event) -> None:
    """Wait until one of them is set."""
    async with trio.open_nursery() as nursery:

        async def until(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(until, one)
        nursery.start_soon(until, other)


def nothing() -> None:
    """Nobody listens."""


def nothing_of(_: str) -> None:
    """Nobody listens."""
