"""What was counted, in Prometheus's words (the text format, 0.0.4): a family is its help, its type and its samples, and the labels
of a sample stand in the order of their names.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from server.observe.metrics import SECONDS, Metrics

_BOUNDS: Final = (*map(str, SECONDS), "+Inf")


def render(metrics: Metrics) -> bytes:
    return "".join(_lines(metrics)).encode()


def _lines(metrics: Metrics) -> Iterator[str]:
    yield from _family("ostiary_info", "gauge", "The running version")
    yield _sample("ostiary_info", {"version": metrics.version}, 1)
    yield from _family("ostiary_http_requests_total", "counter", "Requests answered")
    for (route, status), count in metrics.requests.items():
        yield _sample("ostiary_http_requests_total", {"route": route, "status": str(status)}, count)
    yield from _family("ostiary_tool_calls_total", "counter", "Tool calls ended")
    for (server, tool, outcome), count in metrics.calls.items():
        labels = {"outcome": outcome, "server": server, "tool": tool}
        yield _sample("ostiary_tool_calls_total", labels, count)
    yield from _family("ostiary_tool_call_seconds", "histogram", "How long tool calls took")
    for (server, tool), durations in metrics.durations.items():
        labels = {"server": server, "tool": tool}
        yield from _histogram("ostiary_tool_call_seconds", labels, durations.buckets, durations.total)
    for kind, name, help_text, read in metrics.read:
        yield from _family(_full(kind, name), kind, help_text)
        yield _sample(_full(kind, name), {}, read())
    for kind, name, help_text, label, read_all in metrics.read_by_label:
        yield from _family(_full(kind, name), kind, help_text)
        for value, count in read_all().items():
            yield _sample(_full(kind, name), {label: value}, count)


def _full(kind: str, name: str) -> str:
    return f"ostiary_{name}" if kind == "gauge" else f"ostiary_{name}_total"


def _family(name: str, kind: str, help_text: str) -> Iterator[str]:
    escaped = help_text.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {escaped}\n"
    yield f"# TYPE {name} {kind}\n"


def _histogram(name: str, labels: dict[str, str], buckets: Iterable[int], total: float) -> Iterator[str]:
    """Each bucket counts what the ones before it count, too; the last is the count of all."""
    counts = list(accumulate(buckets))
    for bound, count in zip(_BOUNDS, counts, strict=True):
        yield _sample(f"{name}_bucket", {"le": bound, **labels}, count)
    yield _sample(f"{name}_count", labels, counts[-1])
    yield _sample(f"{name}_sum", labels, total)


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    text = ",".join(f'{label}="{_escaped(of)}"' for label, of in labels.items())
    return f"{name}{{{text}}} {float(value)!r}\n" if text else f"{name} {float(value)!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
