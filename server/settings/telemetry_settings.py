"""`[telemetry]`: where traces and metrics are sent, and how many of them. The shape, and what is wrong with it. Sending is
server/telemetry's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

Fault = tuple[str, str, str]  # the setting, what is wrong, what to write instead


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    otlp: Annotated[
        str,
        Meta(
            max_length=2048,
            description='where a collector takes OTLP over HTTP, e.g. "http://127.0.0.1:4318"',
        ),
    ]
    headers: Annotated[
        dict[str, str],
        Meta(description='a table of headers, e.g. { authorization = "Bearer env:NAME" }'),
    ] = {}
    ca_file: Annotated[
        str, Meta(description="the path of the PEM certificates by which the collector is known")
    ] = ""
    service: Annotated[
        str, Meta(min_length=1, max_length=100, description='the name of this service, e.g. "ostiary"')
    ] = "ostiary"
    instance: Annotated[str, Meta(max_length=100, description="what tells it from others of that name")] = ""
    traces: Annotated[
        float, Meta(ge=0, le=1, description="the share of calls that are traced, from 0 to 1")
    ] = 0.05
    follow: Annotated[
        bool, Meta(description="true or false: whether a caller may say that its call is traced")
    ] = True
    metrics_seconds: Annotated[
        int, Meta(ge=0, le=3600, description="seconds from 5 to 3600, or 0 for no metrics")
    ] = 60


def telemetry_faults(telemetry: TelemetryConfig) -> Iterable[Fault]:
    from server.settings.header_settings import address_problem, header_problems

    for key, what in address_problem("otlp", telemetry.otlp):
        yield f"telemetry.{key}", what.partition("; write")[0], 'e.g. "http://127.0.0.1:4318"'
    if "?" in telemetry.otlp:
        yield "telemetry.otlp", "has a query", "the address alone; what is secret is sent in headers"
    if telemetry.ca_file and not telemetry.otlp.startswith("https:"):
        yield "telemetry.ca_file", "is of no use without https", "otlp with https://, or no ca_file"
    for key, what in header_problems(telemetry.headers):
        yield f"telemetry.{key}", what, ""
    if 0 < telemetry.metrics_seconds < 5:
        yield "telemetry.metrics_seconds", "is too often", "5 or more, or 0 for none"
