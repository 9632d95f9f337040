"""Who hears of what changes on one server: open subscriptions, and a fan-out that cannot grow.

What can change has a name (`Topic`). Changes coalesce: a subscriber that has not yet read that the tools changed need not
be told twice, so what waits for it is never more than one item per topic it asked for. Sessions of the handshake era are
told by sessions.py. Spec: basic/patterns/subscriptions (2026-07-28). Framing and keep-alive are the wire's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final, TypeAlias

import trio

from server.mcp.errors import TooManySubscriptions

# "tools", "prompts" or "resources": a list; "resource <uri>": its content; "task <id>": its state.
Topic: TypeAlias = str

# A client opens one or two per window it has. More is a client that forgot to close them.
MAX_PER_CALLER: Final = 64
# Each costs a connection and about 20 KiB. More only where so many may be connected (`max_connections`).
MAX_OVERALL: Final = 4096
# Resources and tasks that one subscription may name.
MAX_TOPICS: Final = 1024
# Their names together: they stay as long as the subscription, and each address is compared with every template.
MAX_TOPIC_CHARACTERS: Final = 128 * 1024


_RESOURCE: Final = "resource "


def resource_topic(uri: str) -> Topic:
    return f"{_RESOURCE}{uri}"


def task_topic(task_id: str) -> Topic:
    return f"task {task_id}"


class Subscription:
    __slots__ = ("_ended", "_pending", "_topics", "_wake", "apart")

    def __init__(self, topics: frozenset[Topic], apart: str = "") -> None:
        self.apart = apart  # `Request.apart` of the caller
        self._topics = topics
        self._pending: dict[Topic, None] = {}  # in the order in which they first came
        self._ended = False
        self._wake: trio.Event | None = None

    async def next_change(self) -> Topic | None:
        """What changed next; None when the subscription has ended. For one reader."""
        while not self._ended and not self._pending:
            self._wake = trio.Event()
            await self._wake.wait()
        if self._ended:
            return None
        topic = next(iter(self._pending))
        del self._pending[topic]
        return topic

    def resources(self) -> Iterable[str]:
        return (topic.removeprefix(_RESOURCE) for topic in self._topics if topic.startswith(_RESOURCE))

    def offer(self, topic: Topic) -> None:
        if topic in self._topics:
            self._pending[topic] = None
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
    def open(self, caller: str | None, topics: frozenset[Topic], apart: str = "") -> Generator[Subscription]:
        """Registered inside the block. `caller` None is one that cannot be told from others, for whom only the overall
        cap holds. Raises `TooManySubscriptions`."""
        if len(self._open) >= self._overall:
            raise TooManySubscriptions("too many subscriptions are open on this server")
        if caller is not None and self._by_caller[caller] >= self._per_caller:
            raise TooManySubscriptions(f"{self._per_caller} subscriptions are open already: close one first")
        if len(topics) > MAX_TOPICS:
            raise TooManySubscriptions(f"a subscription names at most {MAX_TOPICS} resources and tasks")
        subscription = Subscription(topics, apart)
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

    def resources(self) -> set[str]:
        """Those that somebody listens for."""
        return {uri for subscription in self._open for uri in subscription.resources()}

    def publish(self, topic: Topic, apart: str = "") -> None:
        """Tell everybody who listens for it; with `apart`, the one caller who is named so. Never waits."""
        for subscription in self._open:
            if apart in ("", subscription.apart):
                subscription.offer(topic)
