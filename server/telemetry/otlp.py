"""Spans and counts as OTLP has them, in JSON.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: names in camel case, ids in hexadecimal, numbers of 64 bits as texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from server.lib.log.metrics import SECONDS, Metrics
from server.lib.tracing.trace_spans import Span

_SCOPE: Final = "ostiary"
_SAMPLED: Final = 1
_ERROR: Final = 2
_CUMULATIVE: Final = 2


class Reporter(msgspec.Struct, frozen=True, kw_only=True):
    """The process that reports."""

    service: str
    instance: str
    version: str

    def as_json(self) -> dict[str, Any]:
        return {
            "attributes": attributes(
                {
                    "service.name": self.service,
                    "service.version": self.version,
                    "service.instance.id": self.instance,
                }
            )
        }


def attributes(facts: Mapping[str, str | int | bool]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in facts.items()]


def _value(value: str | int | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value}


# ── traces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def traces(resource: Reporter, spans: Sequence[Span]) -> bytes:
    scope = {"name": _SCOPE, "version": resource.version}
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": resource.as_json(),
                    "scopeSpans": [{"scope": scope, "spans": [_span(each) for each in spans]}],
                }
            ]
        }
    )


def _span(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "flags": _SAMPLED,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.began),
        "endTimeUnixNano": str(max(span.began, span.ended)),
        "attributes": attributes(span.facts | ({"error.type": span.error} if span.error else {})),
    }
    if span.parent:
        found["parentSpanId"] = span.parent
    if span.state:
        found["traceState"] = span.state
    if span.error:
        found["status"] = {"code": _ERROR}
    return found


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def metrics(resource: Reporter, counted: Metrics, *, since: int, now: int) -> bytes:
    """Return all counts, summed up from the start of the process. `since` and `now`: nanoseconds since 1970."""
    times = {"startTimeUnixNano": str(since), "timeUnixNano": str(now)}
    return msgspec.json.encode(
        {
            "resourceMetrics": [
                {
                    "resource": resource.as_json(),
                    "scopeMetrics": [
                        {
                            "scope": {"name": _SCOPE, "version": resource.version},
                            "metrics": list(_metrics(counted, times)),
                        }
                    ],
                }
            ]
        }
    )


def _metrics(counted: Metrics, times: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield _sum(
        "http_requests",
        "Requests answered",
        (
            _number(times, {"route": route, "status": str(status)}, count)
            for (route, status), count in counted.requests.items()
        ),
    )
    yield _sum(
        "tool_calls",
        "Tool calls ended",
        (
            _number(times, {"server": server, "tool": tool, "outcome": outcome}, count)
            for (server, tool, outcome), count in counted.calls.items()
        ),
    )
    yield {
        "name": "ostiary_tool_call_seconds",
        "description": "How long tool calls took",
        "unit": "s",
        "histogram": {
            "aggregationTemporality": _CUMULATIVE,
            "dataPoints": [
                {
                    **times,
                    "attributes": attributes({"server": server, "tool": tool}),
                    "count": str(sum(durations.buckets)),
                    "sum": durations.total,
                    "bucketCounts": [str(count) for count in durations.buckets],
                    "explicitBounds": SECONDS,
                }
                for (server, tool), durations in counted.durations.items()
            ],
        },
    }
    for kind, name, description, found in counted.readings():
        shape = _sum if kind == "counter" else _gauge
        yield shape(name, description, (_number(times, labels, value) for labels, value in found))


def _number(times: Mapping[str, str], labels: Mapping[str, str], value: float) -> dict[str, Any]:
    return {**times, "attributes": attributes(labels), "asDouble": float(value)}


def _sum(name: str, description: str, points: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": f"ostiary_{name}",
        "description": description,
        "sum": {"aggregationTemporality": _CUMULATIVE, "isMonotonic": True, "dataPoints": list(points)},
    }


def _gauge(name: str, description: str, points: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"name": f"ostiary_{name}", "description": description, "gauge": {"dataPoints": list(points)}}
