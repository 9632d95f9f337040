"""Spans and counts on their way to a collector. Nobody waits for it: what cannot be sent waits, and goes if it waits for too long.

https://opentelemetry.io/docs/specs/otlp/#otlphttp-response: what may be sent again is, after as long as the collector wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from server.lib.http_client.failures import DeadlinePassed, FetchFailed
from server.lib.http_client.fetch import Fetcher
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.lib.tracing.trace_spans import SpanBook
from server.telemetry import otlp
from server.telemetry.otlp import Reporter

EVERY_SECONDS: Final = 5.0
SEND_SECONDS: Final = 10.0
# At the end there is little to send, and nobody should wait for it.
LAST_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 120.0
_ANSWER_BYTES: Final = 64 * 1024
# Of what a collector says to a refusal, in the log.
_SAID: Final = 200
_AGAIN: Final = frozenset({429, 502, 503, 504})
_JSON: Final = ("Content-Type", "application/json")


class Sent(Enum):
    TAKEN = "taken"
    REFUSED = "refused"  # and would be again
    LATER = "later"


class Collector:
    """Where it goes. `reason` is why it does not, and empty while it does."""

    def __init__(self, url: str, headers: Mapping[str, str], ca_file: Path | None, log: Logger) -> None:
        """Raises `ValueError`."""
        # One for each of the two loops.
        self._fetcher = Fetcher(url, connections=2, ca_file=ca_file)
        path = urlsplit(url).path.rstrip("/")
        lines = [_JSON, *headers.items()]
        self._heads = {
            what: self._fetcher.prepare("POST", lines, target=f"{path}/v1/{what}")
            for what in ("traces", "metrics")
        }
        self._log = log
        self.failed = 0
        self.reason = ""
        self.pause = 0.0  # seconds, that the collector wants

    async def send(self, what: str, body: bytes) -> Sent:
        deadline = trio.current_time() + SEND_SECONDS
        try:
            async with self._fetcher.open(
                self._heads[what], body, deadline=deadline, limit=_ANSWER_BYTES
            ) as answer:
                status, pause = answer.status, _seconds(answer.header(b"retry-after"))
                said = await answer.beginning(_SAID)
        except DeadlinePassed:
            return self._not_taken(f"no answer within {SEND_SECONDS:g} s", Sent.LATER)
        except FetchFailed as problem:
            return self._not_taken(str(problem), Sent.LATER)
        if 200 <= status < 300:
            self._taken()
            return Sent.TAKEN
        reason = f"answered {status} {said.decode('utf-8', 'replace').strip()}".strip()
        if status in _AGAIN:
            self.pause = pause
            return self._not_taken(reason, Sent.LATER)
        return self._not_taken(reason, Sent.REFUSED)

    async def aclose(self) -> None:
        await self._fetcher.aclose()

    def _taken(self) -> None:
        self.pause = 0.0
        if self.reason:
            self._log.info("telemetry.sent_again")
        self.reason = ""

    def _not_taken(self, reason: str, how: Sent) -> Sent:
        self.failed += 1
        if not self.reason:  # once, however often it is tried
            self._log.warning("telemetry.not_sent", reason=reason)
        self.reason = reason
        return how


async def keep_sending_spans(book: SpanBook, collector: Collector, resource: Reporter) -> None:
    """Until it is cancelled; then what is left is sent, if that is soon done."""
    pause = 0.0
    try:
        while True:
            if pause:
                await trio.sleep(pause)
            else:
                await book.wait(EVERY_SECONDS)
            pause = 0.0 if await _send_all(book, collector, resource) else _longer(pause, collector.pause)
    finally:
        with trio.move_on_after(LAST_SECONDS, shield=True):
            await _send_all(book, collector, resource)


async def _send_all(book: SpanBook, collector: Collector, resource: Reporter) -> bool:
    """Whether nothing is left that could be sent."""
    while spans := book.take():
        sent = Sent.LATER
        try:
            sent = await collector.send("traces", otlp.traces(resource, spans))
        finally:
            if sent is Sent.LATER:
                book.put_back(spans)
        if sent is Sent.LATER:
            return False
        if sent is Sent.REFUSED:
            book.dropped += len(spans)
    return True


async def keep_sending_metrics(
    counted: Metrics,
    collector: Collector,
    resource: Reporter,
    *,
    every_seconds: float,
    clock: Callable[[], int],
) -> None:
    """They are sums, so one that did not arrive is made up for by the next."""
    since = clock()

    async def send() -> None:
        await collector.send("metrics", otlp.metrics(resource, counted, since=since, now=clock()))

    try:
        while True:
            await trio.sleep(max(every_seconds, collector.pause))
            await send()
    finally:
        with trio.move_on_after(LAST_SECONDS, shield=True):
            await send()


def _longer(pause: float, wanted: float) -> float:
    return min(max(pause * 2, EVERY_SECONDS, wanted), LONGEST_PAUSE_SECONDS)


def _seconds(retry_after: str) -> float:
    plain = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 6
    return min(float(retry_after), LONGEST_PAUSE_SECONDS) if plain else 0.0
