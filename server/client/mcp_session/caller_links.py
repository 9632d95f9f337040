"""Connections with a server that belong to one caller each: a child of its own, a TCP connection, or a stream of 2024-11-05.

A caller's connection is opened with the first request, and closed when nobody has used it for a while or somebody else needs the place.
The lists are read on the connection that serves no caller, and anew when a caller's says that they changed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Container
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from server.client.mcp_session.connection_places import giving_way, holder_of
from server.client.mcp_session.session_link import Link, ServerNews
from server.client.mcp_session.session_messages import ServerGone
from server.client.mcp_session.session_request import SessionRequest
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError, Busy

IDLE_SECONDS: Final = 600.0
WAIT_SECONDS: Final = 5.0  # for a place that is in use
LOOK_SECONDS: Final = 0.05
LISTENING: Final = 6  # times that
LOOKS: Final = 10  # during the time after which nobody is expected any more
PARTING_SECONDS: Final = 1.0  # what a session left under way is cancelled by then
CLOSING_SECONDS: Final = 10.0  # a child is given time to end
# Of one caller, in so many seconds; and of how many callers they are counted.
STARTS: Final = 32
STARTS_SECONDS: Final = 60.0
HOLDERS: Final = 1024
TOO_OFTEN: Final = "connections with it were begun, or ended by themselves, too often: try again in a minute"
CLOSING: Final = "the connection with it is being closed: try again in a minute"


class CallerLink:
    """The connection of one caller, from the moment in which somebody begins to open it."""

    def __init__(self, call: SessionRequest) -> None:
        self.apart: Final = call.apart
        self.holder: Final = holder_of(call)
        self.ready: Final = trio.Event()  # it is there, or it is known why it is not
        self.ended: Final = trio.Event()  # its place is free again
        self.scope: Final = trio.CancelScope()
        self.link: Link | None = None
        self.problem: BackendError | None = None
        self.parted: Final = trio.Event()  # its client's session has ended, so that nobody comes back
        self.uses = 0
        self.waiting = 0
        self.left = False  # nobody will use it any more

    @property
    def over(self) -> bool:
        """True if the connection is being closed, or has to be."""
        return self.left or (self.link is not None and self.link.ended.is_set())

    @property
    def busy(self) -> bool:
        return not self.over and (self.link is None or self.waiting > 0 or self.link.busy)

    def give_way(self) -> None:
        """Have the connection closed: somebody else needs its place."""
        self.left = True
        self.scope.cancel()


class CallerLinks:
    """`open_link` connects and agrees, for this caller; each connection runs in `nursery`."""

    def __init__(
        self,
        open_link: Callable[[ServerNews, SessionRequest], AbstractAsyncContextManager[Link]],
        nursery: trio.Nursery,
        *,
        news: Callable[[str], ServerNews],
        most: int,
        name: str,
        log: Logger,
        there: Callable[[], Awaitable[object]],
        begun: Callable[[BackendError | None], None] = lambda problem: None,
        engaged: Container[str] = (),
        shown: bool = False,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Keep the parts. `begun` is told of each connection that was begun, and of each that could not be, and why. `news` hears what is said unasked to a caller, who is named as `apart`. `there` waits until the server can be reached, and raises `BackendError`. `engaged`: callers that have something under
        way there between one request and the next. `shown`: a connection is opened with its caller's credential, which names the program as well."""
        self._open = open_link
        self._nursery = nursery
        self._most = most
        self._name = name
        self._log = log
        self._there = there
        self._news = news
        self._tell_begun = begun
        self._engaged = engaged
        self._shown = shown
        self._idle_seconds = idle_seconds
        self._links: dict[str, CallerLink] = {}
        self._starts: OrderedDict[str, deque[float]] = OrderedDict()  # of each holder, when the last were
        self._places: dict[CallerLink, None] = {}  # those that have one; whoever was heard of last comes last

    def __len__(self) -> int:
        return len(self._links)

    async def of(self, call: SessionRequest) -> Link:
        """Return the caller's connection. Raises `BackendError`: `Busy` where every place is in use."""
        key = self._key(call) if self._shown else call.apart
        found = before = self._links.get(key)
        # Every call comes by here.
        if found is not None and not found.left and (link := found.link) and not link.ended.is_set():
            found.uses += 1
            self._places[found] = self._places.pop(found)
            return link
        if found is None or found.over:
            found = self._links[key] = CallerLink(call)
            self._nursery.start_soon(self._hold, key, found, call.bare(), before)
        found.waiting += 1
        try:
            await found.ready.wait()
        finally:
            found.waiting -= 1
        if found.link is None:
            raise found.problem or ServerGone("is being stopped")
        return found.link

    def part(self, apart: str) -> None:
        """End the connections of a client whose session has ended, as soon as nothing of it is under way."""
        for each in self._links.values():
            if each.apart == apart:
                each.parted.set()

    def known(self, call: SessionRequest) -> Link | None:
        """Return the caller's connection, if there is one."""
        found = self._links.get(self._key(call))
        return None if found is None or found.over else found.link

    def _key(self, call: SessionRequest) -> str:
        program = call.caller.client_id if self._shown and call.caller is not None else None
        return call.apart if program is None else f"{call.apart} {program}"

    async def _hold(
        self, key: str, found: CallerLink, call: SessionRequest, before: CallerLink | None
    ) -> None:
        try:
            with found.scope:
                await self._there()
                await self._wait_for_start(found.holder)
                await self._take_place(found, before)
                await self._use(found, call)
        except BackendError as error:
            found.problem = error
            if found.link is None:
                self._tell_begun(error)
        except Exception:  # a mistake of ours with one connection is none of the others'
            self._log.exception("upstream.crashed", agent=self._name)
            found.problem = ServerGone("cannot be used: the log says why")
        finally:
            found.link = None
            found.left = True
            self._places.pop(found, None)
            if self._links.get(key) is found:
                del self._links[key]
            found.ended.set()
            found.ready.set()

    async def _wait_for_start(self, holder: str) -> None:
        """Wait until this caller may start one more: each costs the processor a moment, and one may end as soon as it is there. Raises `Busy`."""
        starts = self._starts.setdefault(holder, deque(maxlen=STARTS))
        self._starts.move_to_end(holder)
        if len(self._starts) > HOLDERS:
            self._starts.popitem(last=False)
        if len(starts) == STARTS and (seconds := starts[0] + STARTS_SECONDS - trio.current_time()) > 0:
            if seconds > WAIT_SECONDS:
                raise Busy(TOO_OFTEN)
            await trio.sleep(seconds)
        starts.append(trio.current_time())

    async def _take_place(self, found: CallerLink, before: CallerLink | None) -> None:
        """Wait for a place. `before`: the connection that its caller had. Raises `Busy`."""
        if before is not None:
            await _closed(before)
        until = trio.current_time() + WAIT_SECONDS
        while True:
            places = list(self._places)
            held = [(each.holder, self._in_use(each)) for each in places]
            try:
                giving = giving_way(held, found.holder, self._most)
            except Busy:
                if trio.current_time() >= until:
                    raise
                await trio.sleep(LOOK_SECONDS)  # nobody says when a request of somebody else's ends
                continue
            if giving is None:
                self._places[found] = None
                return
            places[giving].give_way()
            await _closed(places[giving])

    def _in_use(self, found: CallerLink) -> bool:
        return found.busy or (found.apart in self._engaged and not found.over)

    async def _use(self, found: CallerLink, call: SessionRequest) -> None:
        async with self._open(self._news(found.apart), call) as link:
            found.link = link
            found.ready.set()
            self._tell_begun(None)
            uses, unused = found.uses, 0
            # Somebody who listens for a change may ask nothing for a while.
            while not link.ended.is_set() and unused < (LISTENING if link.follows else 1) * LOOKS:
                if found.parted.is_set():
                    with trio.move_on_after(PARTING_SECONDS):
                        await link.ended.wait()
                    unused = LISTENING * LOOKS
                else:
                    with trio.move_on_after(self._idle_seconds / LOOKS) as look:
                        await either(link.ended, found.parted)
                    unused += look.cancelled_caught
                if uses != found.uses or self._in_use(found):
                    uses, unused = found.uses, 0
            found.left = True


async def _closed(found: CallerLink) -> None:
    with trio.move_on_after(CLOSING_SECONDS):
        await found.ended.wait()
        return
    raise Busy(CLOSING)


async def either(one: trio.Event, other: trio.Event) -> None:
    """Wait until one of them is set."""
    async with trio.open_nursery() as nursery:

        async def until(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(until, one)
        nursery.start_soon(until, other)


def nothing() -> None:
    """Do nothing, as nobody listens."""


def nothing_of(_: str, __: str) -> None:
    """Do nothing, as nobody listens."""
