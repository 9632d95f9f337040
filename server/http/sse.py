"""Server-sent events: how one is framed, and how a request that may run long is answered while it runs.

Each way to run one lends it a line (`server.caller.Line`) on which it speaks before its answer. What belongs to sessions,
whose streams can be come back to, is in session_post.py. Spec: basic/transports/streamable-http (2026-07-28); style rule 10.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import trio

from server.caller import Line
from server.feeds import KEEP_ALIVE_SECONDS

T = TypeVar("T")

KEEP_ALIVE: Final = b": keep-alive\n\n"

Gone: TypeAlias = Callable[[], Awaitable[None]]


class Sink(Protocol):
    """Where events go. Both raise OSError when nobody is there any more."""

    async def event(self, message: bytes) -> None: ...

    async def ping(self) -> None: ...


def frame(message: bytes, event_id: str | None = None) -> bytes:
    """One JSON text, which has no line breaks, as one event."""
    if event_id is None:
        return b"data: %s\n\n" % message
    return b"id: %s\ndata: %s\n\n" % (event_id.encode(), message)


async def stream(produce: Callable[[Line], Awaitable[T]], sink: Sink, *, gone: Gone | None) -> T | None:
    """Run `produce`, pass on what it sends as it comes, and return what it returns; a comment goes out when nothing else
    has for a while.

    `gone` returns when the client has left: then `produce` is cancelled and the answer is None. Without it, `produce`
    runs on for nobody. Neither may raise.
    """
    outcome: list[T] = []
    send, receive = trio.open_memory_channel[bytes](0)
    async with trio.open_nursery() as nursery:
        if gone is not None:
            nursery.start_soon(cancel_after, gone, nursery.cancel_scope)
        nursery.start_soon(_produce, produce, send, outcome)
        with receive:
            listening = True
            while True:
                message: bytes | None = None
                with trio.move_on_after(KEEP_ALIVE_SECONDS):
                    try:
                        message = await receive.receive()
                    except trio.EndOfChannel:
                        break
                if not listening:
                    continue
                try:
                    await (sink.ping() if message is None else sink.event(message))
                except OSError:
                    if gone is not None:
                        break
                    listening = False
        nursery.cancel_scope.cancel()
    return outcome[0] if outcome else None


async def attend(
    produce: Callable[[Line], Awaitable[T]],
    sink: Sink,
    *,
    gone: Gone,
    alongside: Callable[[], Awaitable[None]],
) -> T | None:
    """Like `stream`, for what spends its life waiting and sends its own signs of life: it runs in this task and without a
    channel, which is a third of what an idle stream costs. `alongside` runs meanwhile and is cancelled at the end.
    """
    outcome: T | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_after, gone, nursery.cancel_scope)
        nursery.start_soon(alongside)
        outcome = await produce(_Direct(sink, nursery.cancel_scope))
        nursery.cancel_scope.cancel()
    return outcome


async def cancel_after(gone: Gone, scope: trio.CancelScope) -> None:
    await gone()
    scope.cancel()


class _Channelled:
    """The line of what runs in a task of its own."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self.send = send

    async def ping(self) -> None:
        """Whoever reads the channel sends signs of life."""

    async def release(self) -> None:
        """This stream is the only way to the answer."""


class _Direct:
    """The line of what writes to its client by itself. A client that turns out to have left cancels `scope`."""

    def __init__(self, sink: Sink, scope: trio.CancelScope) -> None:
        self._sink = sink
        self._scope = scope

    async def send(self, message: bytes) -> None:
        await self._attempt(partial(self._sink.event, message))

    async def ping(self) -> None:
        await self._attempt(self._sink.ping)

    async def release(self) -> None:
        """This stream is the only way to the answer."""

    async def _attempt(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except OSError:
            self._scope.cancel()
            await trio.lowlevel.checkpoint()


async def _produce(
    produce: Callable[[Line], Awaitable[T]], send: trio.MemorySendChannel[bytes], outcome: list[T]
) -> None:
    with send:
        outcome.append(await produce(_Channelled(send.send)))
