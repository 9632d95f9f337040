"""The counts in Prometheus's text format (0.0.4): a family is its help, its type and its samples. The labels of a sample stand in the
order of their names.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

import msgspec

from server.lib.log.metrics import SECONDS, Metrics

_BOUNDS: Final = (*map(str, SECONDS), "+Inf")


class MetricSample(msgspec.Struct, frozen=True, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class MetricFamily(msgspec.Struct, frozen=True, array_like=True):
    """All of one name, with what it means."""

    name: str
    kind: str
    help: str
    samples: list[MetricSample]


def render(families: Iterable[MetricFamily]) -> bytes:
    return "".join(_lines(families)).encode()


def merged(of_workers: Mapping[int, Iterable[MetricFamily]]) -> list[MetricFamily]:
    """Merge the families of several processes, each sample with its worker's number: `sum without (worker)` is the whole."""
    found: dict[str, MetricFamily] = {}
    for number, families in of_workers.items():
        for family in families:
            whole = found.setdefault(family.name, MetricFamily(family.name, family.kind, family.help, []))
            whole.samples.extend(
                MetricSample(each.name, {**each.labels, "worker": str(number)}, each.value)
                for each in family.samples
            )
    return list(found.values())


def families_of(metrics: Metrics) -> list[MetricFamily]:
    return list(_families(metrics))


def _families(metrics: Metrics) -> Iterator[MetricFamily]:
    yield family("ostiary_info", "gauge", "The running version", [({"version": metrics.version}, 1)])
    yield family(
        "ostiary_http_requests_total",
        "counter",
        "Requests answered",
        (
            ({"route": route, "status": str(status)}, count)
            for (route, status), count in metrics.requests.items()
        ),
    )
    yield family(
        "ostiary_tool_calls_total",
        "counter",
        "Tool calls ended",
        (
            ({"outcome": outcome, "server": server, "tool": tool}, count)
            for (server, tool, outcome), count in metrics.calls.items()
        ),
    )
    durations = family("ostiary_tool_call_seconds", "histogram", "How long tool calls took")
    for (server, tool), found in metrics.durations.items():
        labels = {"server": server, "tool": tool}
        durations.samples.extend(_histogram("ostiary_tool_call_seconds", labels, found.buckets, found.total))
    yield durations
    for kind, name, help_text, samples in metrics.readings():
        yield family(_full(kind, name), kind, help_text, samples)


def _full(kind: str, name: str) -> str:
    return f"ostiary_{name}" if kind == "gauge" else f"ostiary_{name}_total"


def family(
    name: str, kind: str, help_text: str, samples: Iterable[tuple[dict[str, str], float]] = ()
) -> MetricFamily:
    return MetricFamily(
        name, kind, help_text, [MetricSample(name, labels, float(value)) for labels, value in samples]
    )


def _histogram(
    name: str, labels: dict[str, str], buckets: Iterable[int], total: float
) -> Iterator[MetricSample]:
    """Yield the samples of a histogram. Each bucket counts what the ones before it count, too; the last counts all."""
    counts = list(accumulate(buckets))
    for bound, count in zip(_BOUNDS, counts, strict=True):
        yield MetricSample(f"{name}_bucket", {"le": bound, **labels}, count)
    yield MetricSample(f"{name}_count", labels, counts[-1])
    yield MetricSample(f"{name}_sum", labels, total)


def _lines(families: Iterable[MetricFamily]) -> Iterator[str]:
    for family in families:
        escaped = family.help.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"# HELP {family.name} {escaped}\n"
        yield f"# TYPE {family.name} {family.kind}\n"
        for each in family.samples:
            yield _written(each)


def _written(sample: MetricSample) -> str:
    text = ",".join(f'{label}="{_escaped(of)}"' for label, of in sample.labels.items())
    value = float(sample.value)
    return f"{sample.name}{{{text}}} {value!r}\n" if text else f"{sample.name} {value!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
