"""What is written to peers that do not take it at once, over all connections of a server: one budget of bytes.

Each peer has its time to read (connection_limits.py); this bounds what all of them may have waiting meanwhile.
"""

from __future__ import annotations

from typing import Protocol


class SlowPeer(Protocol):
    def give_up(self) -> None:
        """It does not read what it is sent, and is cut."""
        ...


class Unsent:
    def __init__(self, limit: int) -> None:
        self.bytes = 0
        self._limit = limit
        self._waiting: dict[SlowPeer, int] = {}  # whoever has waited for longest comes first

    def add(self, peer: SlowPeer, size: int) -> None:
        """This peer, which waits for nothing else, is being sent so much. Others may have to give way, who have had the longest
        time to take theirs."""
        self._waiting[peer] = size
        self.bytes += size
        while self.bytes > self._limit and len(self._waiting) > 1:
            longest = next(iter(self._waiting))
            self.remove(longest)
            longest.give_up()

    def remove(self, peer: SlowPeer) -> None:
        self.bytes -= self._waiting.pop(peer, 0)
