"""Counts and durations. Counting is a dictionary and an addition, because every call of every tool is counted; what Prometheus
reads is made when it asks (prometheus_text.py). Labels are from closed sets: nothing a caller sends becomes one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

OTHER: Final = "other"  # the route of whatever has none of its own
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# From an echo to an agent that thinks for minutes.
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Durations:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.total = 0.0


class Metrics:
    """One per server, counted and asked in the event loop's thread only."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.requests: dict[tuple[str, int], int] = {}
        self.calls: dict[tuple[str, str, str], int] = {}
        self.durations: dict[tuple[str, str], Durations] = {}
        self.read: list[tuple[Literal["counter", "gauge"], str, str, Callable[[], float]]] = []
        self.read_by_label: list[
            tuple[Literal["counter", "gauge"], str, str, str, Callable[[], Mapping[str, float]]]
        ] = []

    def counting_requests(self, routes: Mapping[str, str]) -> Callable[[str, int], None]:
        """Return the one function that the router calls with path and status of every request.

        Paths that are not in `routes` are counted together.
        """
        requests, route_of = self.requests, routes.get

        def request_answered(path: str, status: int) -> None:
            key = (route_of(path, OTHER), status)
            requests[key] = requests.get(key, 0) + 1

        return request_answered

    def tool_called(self, server: str, tool: str, outcome: str, seconds: float) -> None:
        key = (server, tool, outcome)
        self.calls[key] = self.calls.get(key, 0) + 1
        durations = self.durations.get((server, tool))
        if durations is None:
            durations = self.durations[(server, tool)] = Durations()
        durations.buckets[bisect_left(SECONDS, seconds)] += 1
        durations.total += seconds

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Add a value that is read when it is asked for."""
        self.read.append(("gauge", name, help_text, read))

    def counter(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Add a value that only grows, read when it is asked for."""
        self.read.append(("counter", name, help_text, read))

    def counters(
        self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Add several counters, told apart by the values of one label."""
        self.read_by_label.append(("counter", name, help_text, label, read))

    def gauges(self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Add values that are read when they are asked for, told apart by the values of one label."""
        self.read_by_label.append(("gauge", name, help_text, label, read))

    def readings(self) -> Iterator[tuple[str, str, str, Iterable[tuple[dict[str, str], float]]]]:
        """Yield kind, name, help and labelled values of all that is read when it is asked for."""
        for kind, name, help_text, read in self.read:
            yield kind, name, help_text, [({}, read())]
        for kind, name, help_text, label, read_all in self.read_by_label:
            yield kind, name, help_text, (({label: value}, count) for value, count in read_all().items())
