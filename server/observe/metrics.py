"""Counts and durations for Prometheus. Counting is a dictionary and an addition, because every call of every tool is counted;
the library's families are made when somebody asks. Labels are from closed sets: nothing a caller sends becomes one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# From an echo to an agent that thinks for minutes.
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class _Durations:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.total = 0.0


class Metrics(Collector):
    """One per server, counted and asked in the event loop's thread only."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._requests: dict[tuple[str, int], int] = {}
        self._calls: dict[tuple[str, str, str], int] = {}
        self._durations: dict[tuple[str, str], _Durations] = {}
        self._read: list[
            tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, Callable[[], float]]
        ] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def request(self, route: str, status: int) -> None:
        key = (route, status)
        self._requests[key] = self._requests.get(key, 0) + 1

    def tool_called(self, server: str, tool: str, outcome: str, seconds: float) -> None:
        key = (server, tool, outcome)
        self._calls[key] = self._calls.get(key, 0) + 1
        durations = self._durations.get((server, tool))
        if durations is None:
            durations = self._durations[(server, tool)] = _Durations()
        durations.buckets[bisect_left(SECONDS, seconds)] += 1
        durations.total += seconds

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A value that is read when it is asked for."""
        self._read.append((GaugeMetricFamily, name, help_text, read))

    def counter(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """The same, for one that only grows."""
        self._read.append((CounterMetricFamily, name, help_text, read))

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("ostiary_info", "The running version", labels=["version"])
        info.add_metric([self._version], 1)
        yield info
        requests = CounterMetricFamily(
            "ostiary_http_requests", "Requests answered", labels=["route", "status"]
        )
        for (route, status), count in self._requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        calls = CounterMetricFamily(
            "ostiary_tool_calls", "Tool calls ended", labels=["server", "tool", "outcome"]
        )
        for labels, count in self._calls.items():
            calls.add_metric(list(labels), count)
        yield calls
        seconds = HistogramMetricFamily(
            "ostiary_tool_call_seconds", "How long tool calls took", labels=["server", "tool"]
        )
        for labels, durations in self._durations.items():
            bounds = [*map(str, SECONDS), "+Inf"]
            cumulative = list(zip(bounds, accumulate(durations.buckets), strict=True))
            seconds.add_metric(list(labels), cumulative, durations.total)
        yield seconds
        for family, name, help_text, read in self._read:
            yield family(f"ostiary_{name}", help_text, value=read())
