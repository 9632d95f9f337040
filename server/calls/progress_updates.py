"""Progress on its way to a caller: strictly rising, and whole but for floods. Each event costs a write to the socket, so beyond
`PROGRESS_AT_ONCE` and `PROGRESS_A_SECOND` events are held, and the newest of them is told when its time has come, or before whatever
comes next: a question, the answer.

The words of a generator, said bit by bit, are told as progress too. Nothing of them is left out: what comes too soon is joined.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import trio

from server.mcp.call_outlet import Progress

PROGRESS_AT_ONCE: Final = 256
PROGRESS_A_SECOND: Final = 200
# Texts that come sooner are joined, for a person cannot see more; and so often the newest of a flood is told.
PROGRESS_INTERVAL_SECONDS: Final = 0.01

Tell: TypeAlias = Callable[[Progress], Awaitable[None]]


class PacedProgress:
    """The progress of one call. `run` is for a task beside the call, which ends with `end`; the others are the call's."""

    def __init__(self, tell: Tell, repeats: Callable[[], bool]) -> None:
        """Begin with nothing held. `repeats` says whether the call is being run again and has not come to where it stopped: what it says until
        then was told before, so it is told only where the call stays there."""
        self._tell = tell
        self._repeats = repeats
        self._last = float("-inf")
        self._not_before = float("-inf")
        self._room: float = PROGRESS_AT_ONCE  # for so many events, when it was looked at last
        self._looked = trio.current_time()
        self._text: Progress | None = None  # held, to be joined
        self._newest: Progress | None = None  # held; it comes behind the text
        self._ended = False
        self._holds = trio.Event()
        self._waiting = trio.CancelScope()

    async def emit(self, event: Progress) -> None:
        if not event.progress > self._last:
            return
        self._last = event.progress
        now = trio.current_time()
        self._room = min(self._room + (now - self._looked) * PROGRESS_A_SECOND, PROGRESS_AT_ONCE)
        self._looked = now
        at_once = self._room >= 1 and not event.joins
        if self._repeats():
            at_once = False
            self._not_before = max(self._not_before, now + PROGRESS_INTERVAL_SECONDS)
        self._hold(event)
        if at_once or now >= self._not_before:
            await self.flush()
        else:
            self._holds.set()

    async def flush(self) -> None:
        """Tell what is held."""
        held = [event for event in (self._text, self._newest) if event is not None]
        self._text = self._newest = None
        if held:
            self._not_before = trio.current_time() + PROGRESS_INTERVAL_SECONDS
            self._room -= len(held)
        for event in held:
            await self._tell(event)

    def has_gone_on(self) -> None:
        """Drop what is held: the call, run again, has come past a question that was answered, and what it said until there was told before."""
        self._text = self._newest = None
        self._not_before = float("-inf")

    async def run(self) -> None:
        while not self._ended:
            with (
                trio.CancelScope() as self._waiting
            ):  # never while it tells: half an event would break the stream
                await self._holds.wait()
                self._holds = trio.Event()
                await trio.sleep_until(self._not_before)
            if not self._ended:
                await self.flush()

    def end(self) -> None:
        self._ended = True
        self._waiting.cancel()

    def _hold(self, event: Progress) -> None:
        if not event.joins:
            self._newest = event
            return
        text, self._newest = self._text, None
        if text is not None:
            event = msgspec.structs.replace(event, message=(text.message or "") + (event.message or ""))
        self._text = event
