"""What was counted, in Prometheus's words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from server.observe.metrics import SECONDS, Metrics


class _Families(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return _families(self._metrics)


def render(metrics: Metrics) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Families(metrics))
    return generate_latest(registry)


def _families(metrics: Metrics) -> Iterator[Metric]:
    info = GaugeMetricFamily("ostiary_info", "The running version", labels=["version"])
    info.add_metric([metrics.version], 1)
    yield info
    requests = CounterMetricFamily("ostiary_http_requests", "Requests answered", labels=["route", "status"])
    for (route, status), count in metrics.requests.items():
        requests.add_metric([route, str(status)], count)
    yield requests
    calls = CounterMetricFamily(
        "ostiary_tool_calls", "Tool calls ended", labels=["server", "tool", "outcome"]
    )
    for labels, count in metrics.calls.items():
        calls.add_metric(list(labels), count)
    yield calls
    seconds = HistogramMetricFamily(
        "ostiary_tool_call_seconds", "How long tool calls took", labels=["server", "tool"]
    )
    for labels, durations in metrics.durations.items():
        bounds = [*map(str, SECONDS), "+Inf"]
        cumulative = list(zip(bounds, accumulate(durations.buckets), strict=True))
        seconds.add_metric(list(labels), cumulative, durations.total)
    yield seconds
    for kind, name, help_text, read in metrics.read:
        family = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
        yield family(f"ostiary_{name}", help_text, value=read())
