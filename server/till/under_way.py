"""What is under way in this process, by its id, and who waits for it."""

from __future__ import annotations

import trio


class UnderWay:
    def __init__(self) -> None:
        self._events: dict[str, trio.Event] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._events

    def begin(self, name: str) -> None:
        self._events.setdefault(name, trio.Event())

    def end(self, name: str) -> None:
        """Whoever waits for it goes on."""
        event = self._events.pop(name, None)
        if event is not None:
            event.set()

    async def wait(self, name: str, *, within: float) -> bool:
        """Until it has ended. False: it is not under way here, or takes longer."""
        event = self._events.get(name)
        if event is None:
            return False
        with trio.move_on_after(within):
            await event.wait()
            return True
        return False
