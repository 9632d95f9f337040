"""Server-sent events: how one is framed, and how a request that may run long is answered while it runs.

Spec: basic/transports/streamable-http (2026-07-28); style rule 10. No event ids: nothing here can be resumed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import trio

T = TypeVar("T")

# Below the idle limits of the proxies that people use (most: 60 s).
KEEP_ALIVE_SECONDS: Final = 25.0
KEEP_ALIVE: Final = b": keep-alive\n\n"

Emit: TypeAlias = Callable[[bytes], Awaitable[None]]
Ping: TypeAlias = Callable[[], Awaitable[None]]


class Sink(Protocol):
    """Where events go. Both raise OSError when nobody is there any more."""

    async def event(self, message: bytes) -> None: ...

    async def ping(self) -> None: ...


def frame(message: bytes) -> bytes:
    """One JSON text, which has no line breaks, as one event."""
    return b"data: %s\n\n" % message


async def stream(
    produce: Callable[[Emit], Awaitable[T]], sink: Sink, *, gone: Callable[[], Awaitable[None]] | None
) -> T | None:
    """Run `produce`, pass on what it emits as it comes, and return what it returns; a comment goes out when nothing else
    has for a while.

    `gone` returns when the client has left: then `produce` is cancelled and the answer is None. Without it, `produce`
    runs on for nobody. Neither may raise.
    """
    outcome: list[T] = []
    send, receive = trio.open_memory_channel[bytes](0)
    async with trio.open_nursery() as nursery:
        if gone is not None:
            nursery.start_soon(_cancel_after, gone, nursery.cancel_scope)
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
    produce: Callable[[Emit, Ping], Awaitable[T]],
    sink: Sink,
    *,
    gone: Callable[[], Awaitable[None]],
    alongside: Callable[[], Awaitable[None]],
) -> T | None:
    """Like `stream`, for what spends its life waiting and sends its own signs of life: it runs in this task and without a
    channel, which is a third of what an idle stream costs. `alongside` runs meanwhile and is cancelled at the end.
    """
    outcome: T | None = None
    async with trio.open_nursery() as nursery:

        async def attempt(write: Callable[[], Awaitable[None]]) -> None:
            try:
                await write()
            except OSError:
                nursery.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()

        nursery.start_soon(_cancel_after, gone, nursery.cancel_scope)
        nursery.start_soon(alongside)
        outcome = await produce(
            lambda message: attempt(partial(sink.event, message)), lambda: attempt(sink.ping)
        )
        nursery.cancel_scope.cancel()
    return outcome


async def _produce(
    produce: Callable[[Emit], Awaitable[T]], send: trio.MemorySendChannel[bytes], outcome: list[T]
) -> None:
    with send:
        outcome.append(await produce(send.send))


async def _cancel_after(gone: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
    await gone()
    scope.cancel()
