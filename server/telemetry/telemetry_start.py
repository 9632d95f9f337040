"""What the settings name, made and begun."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import trio

from server import __version__
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.lib.tracing.request_tracing import Tracing
from server.lib.tracing.trace_spans import SpanBook
from server.settings.header_settings import read_headers
from server.settings.telemetry_settings import TelemetryConfig
from server.telemetry.otlp import Reporter
from server.telemetry.otlp_sender import Collector, keep_sending_metrics, keep_sending_spans


class Telemetry:
    """Raises `ValueError`, `SecretUnreadable`."""

    def __init__(self, config: TelemetryConfig, metrics: Metrics, log: Logger, *, instance: str) -> None:
        self._config = config
        self._metrics = metrics
        self._book = SpanBook()
        self._collector = Collector(
            config.otlp,
            {name: value.reveal() for name, value in read_headers(config.headers).items()},
            Path(config.ca_file) if config.ca_file else None,
            log,
        )
        self._resource = Reporter(
            service=config.service, instance=config.instance or instance, version=__version__
        )
        # No span where none is wanted, also not one that a caller wants.
        self.tracing = (
            Tracing(
                self._book,
                share=config.traces,
                follow=config.follow,
                clock=time.time_ns,
                entropy=os.urandom,
            )
            if config.traces
            else None
        )
        metrics.counter(
            "telemetry_failures",
            "Times that the collector did not take what was sent to it",
            lambda: self._collector.failed,
        )
        metrics.counter("telemetry_spans_dropped", "Spans that could not be sent", lambda: self._book.dropped)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                if self.tracing is not None:
                    nursery.start_soon(keep_sending_spans, self._book, self._collector, self._resource)
                if self._config.metrics_seconds:
                    nursery.start_soon(
                        partial(
                            keep_sending_metrics,
                            self._metrics,
                            self._collector,
                            self._resource,
                            every_seconds=self._config.metrics_seconds,
                            clock=time.time_ns,
                        )
                    )
        finally:
            with trio.CancelScope(shield=True):
                await self._collector.aclose()
