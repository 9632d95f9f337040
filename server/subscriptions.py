"""Who hears of what changes: open subscriptions, and a fan-out that cannot grow.

Changes coalesce: a subscriber that has not yet read that the tools changed need not be told twice, so what waits for it
is never more than one item per kind. Spec: basic/patterns/subscriptions (2026-07-28). Framing and keep-alive are sse.py's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import trio

from server.mcp.errors import TooManySubscriptions

# A client opens one or two per window it has. More is a client that forgot to close them.
MAX_PER_CALLER: Final = 64
# Each costs a connection and about 20 KiB.
MAX_OVERALL: Final = 4096


class Subscription:
    __slots__ = ("_ended", "_kinds", "_pending", "_wake")

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._pending: dict[str, None] = {}  # in the order in which they first came
        self._ended = False
        self._wake: trio.Event | None = None

    async def next_change(self) -> str | None:
        """The next kind of list that changed; None when the subscription has ended. For one reader."""
        while not self._ended and not self._pending:
            self._wake = trio.Event()
            await self._wake.wait()
        if self._ended:
            return None
        kind = next(iter(self._pending))
        del self._pending[kind]
        return kind

    def offer(self, kind: str) -> None:
        if kind in self._kinds:
            self._pending[kind] = None
            self._rouse()

    def end(self) -> None:
        self._ended = True
        self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None:
            self._wake.set()


class Subscriptions:
    def __init__(self, *, per_caller: int = MAX_PER_CALLER, overall: int = MAX_OVERALL) -> None:
        self._open: dict[Subscription, None] = {}
        self._by_caller = Counter[str]()
        self._per_caller = per_caller
        self._overall = overall

    def count(self) -> int:
        return len(self._open)

    @contextmanager
    def open(self, caller: str | None, kinds: frozenset[str]) -> Generator[Subscription]:
        """Registered inside the block. `caller` None is one that cannot be told from others, for whom only the overall
        cap holds. Raises `TooManySubscriptions`."""
        if len(self._open) >= self._overall:
            raise TooManySubscriptions("too many subscriptions are open on this server")
        if caller is not None and self._by_caller[caller] >= self._per_caller:
            raise TooManySubscriptions(f"{self._per_caller} subscriptions are open already: close one first")
        subscription = Subscription(kinds)
        self._open[subscription] = None
        if caller is not None:
            self._by_caller[caller] += 1
        try:
            yield subscription
        finally:
            del self._open[subscription]
            if caller is not None:
                self._by_caller[caller] -= 1
                if not self._by_caller[caller]:
                    del self._by_caller[caller]

    def publish(self, kind: str) -> None:
        """Tell everybody who listens for `kind`. Never waits."""
        for subscription in self._open:
            subscription.offer(kind)
