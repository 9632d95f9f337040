"""A request that may last, answered in the task of its connection: JSON when nothing is said before the answer, else an event stream.

Until something is said, or its client leaves, it costs no more than one that does not last. What belongs to sessions, whose streams
can be come back to, is in session_post.py. Spec: basic/transports/streamable-http (2026-07-28).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from server.calls.caller_outlet import Line
from server.transport.http.disconnect_watch import DisconnectWatch
from server.transport.http.handler import Cycle
from server.transport.http.mcp_reply import McpReply

T = TypeVar("T")


class ReplyLine:
    """Implements `Line`, and `WatchedReply`: what is said goes to the client at once, and as slowly as it reads. `cancels`: whoever
    leaves does not want the answer any more; else the work goes on for nobody, and `on_left` hears of it. Cancelled while a client takes its time to read,
    it leaves half a message, and the connection ends with it."""

    __slots__ = ("_cancels", "_cycle", "_deaf", "_reply", "on_left", "spoke_at")

    def __init__(
        self, reply: McpReply, cycle: Cycle, *, cancels: bool, on_left: Callable[[], None] | None = None
    ) -> None:
        self.on_left = on_left
        self._reply = reply
        self._cycle = cycle
        self._cancels = cancels
        self._deaf = False  # the client is not there any more
        self.spoke_at = cycle.now

    async def send(self, message: bytes) -> None:
        await self._say(self._reply.event, message)

    async def ping(self) -> None:
        await self._say(self._reply.ping)

    async def release(self) -> None:
        """This stream is the only way to the answer."""

    async def wait_gone(self) -> None:
        await self._cycle.wait_gone()

    def leave(self) -> None:
        self._deaf = True
        if self._cancels:
            self._cycle.abandon()
        elif self.on_left is not None:
            self.on_left()

    async def _say(self, say: Callable[..., Awaitable[None]], *what: bytes) -> None:
        # Also when nobody hears it, or signs of life would be due at once for ever.
        self.spoke_at = trio.current_time()
        if self._deaf:
            return
        try:
            await say(*what)
        except OSError:
            self.leave()
            await trio.lowlevel.checkpoint()


async def answer_in_place(
    produce: Callable[[Line], Awaitable[T]],
    reply: McpReply,
    cycle: Cycle,
    *,
    cancels: bool,
    pings: bool = True,
    on_left: Callable[[], None] | None = None,
    last_word: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """What `produce` returns; what it sends before goes out as it comes. `cancels`: it is cancelled when the client has left, and so is
    the task that runs this; else `on_left` is called then. `pings`: signs of life are given; else it gives them itself. `last_word`: of a
    server that stops, to whoever still waits."""
    line = ReplyLine(reply, cycle, cancels=cancels, on_left=on_left)
    companion = DisconnectWatch(line, watches=cancels or on_left is not None, pings=pings)
    cycle.last_word = last_word
    cycle.attend(companion)
    try:
        made = await produce(line)
        cycle.last_word = None
        return made
    finally:
        await cycle.part(companion)
        line.on_left = None  # who is to hear of that has this line: they would hold each other
