"""What is under way in this process, by its id, and who waits for it. Whoever waits for a call is handed its answer."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
import trio

A = TypeVar("A")


class Ended(msgspec.Struct, Generic[A], frozen=True):
    """`answer`: of a call that was served."""

    answer: A | None = None


class _Running(Generic[A]):
    __slots__ = ("ended", "event")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.ended: Ended[A] = Ended()


class UnderWay(Generic[A]):
    def __init__(self) -> None:
        self._running: dict[str, _Running[A]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def begin(self, name: str) -> None:
        self._running.setdefault(name, _Running())

    def end(self, name: str, answer: A | None = None) -> None:
        """Whoever waits for it goes on."""
        running = self._running.pop(name, None)
        if running is not None:
            running.ended = Ended(answer)
            running.event.set()

    async def wait(self, name: str, *, within: float) -> Ended[A] | None:
        """Until it has ended. None: it is not under way here, or takes longer."""
        running = self._running.get(name)
        if running is None:
            return None
        with trio.move_on_after(within):
            await running.event.wait()
            return running.ended
        return None
