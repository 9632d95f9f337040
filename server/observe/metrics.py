"""Counters and histograms for Prometheus. Each server has its own registry; label sets are bound once, because binding costs more
than counting. Labels are from closed sets: nothing a caller sends becomes one.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        info = Gauge("ostiary_info", "The running version", ["version"], registry=self._registry)
        info.labels(version).set(1)
        self._requests = Counter(
            "ostiary_http_requests", "Requests answered", ["route", "status"], registry=self._registry
        )
        self._calls = Counter(
            "ostiary_tool_calls", "Tool calls ended", ["server", "tool", "outcome"], registry=self._registry
        )
        self._call_seconds = Histogram(
            "ostiary_tool_call_seconds",
            "How long tool calls took",
            ["server", "tool"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._bound_requests: dict[tuple[str, int], Counter] = {}
        self._bound_calls: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def request(self, route: str, status: int) -> None:
        counter = self._bound_requests.get((route, status))
        if counter is None:
            counter = self._bound_requests[(route, status)] = self._requests.labels(route, str(status))
        counter.inc()

    def tool_called(self, server: str, tool: str, outcome: str, seconds: float) -> None:
        bound = self._bound_calls.get((server, tool, outcome))
        if bound is None:
            bound = (self._calls.labels(server, tool, outcome), self._call_seconds.labels(server, tool))
            self._bound_calls[(server, tool, outcome)] = bound
        bound[0].inc()
        bound[1].observe(seconds)

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A value read when it is asked for."""
        Gauge(f"ostiary_{name}", help_text, registry=self._registry).set_function(read)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
