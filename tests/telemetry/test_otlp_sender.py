"""Spans and counts on their way to a collector that takes them, wants to be left alone, refuses them, or is not there."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from server.lib.log.metrics import Metrics
from server.lib.tracing.trace_spans import BATCH, Span, SpanBook
from server.telemetry.otlp import Reporter
from server.telemetry.otlp_sender import (
    EVERY_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Collector,
    Sent,
    keep_sending_metrics,
    keep_sending_spans,
)
from tests.agents.mcp.upstreams import Log
from tests.lib.http_client.raw_upstream import Visitor, answer, raw_upstream

WHO = Reporter(service="ostiary", instance="here", version="1")


def span(name: str = "a") -> Span:
    return Span(
        trace_id="1" * 32,
        span_id="2" * 16,
        parent="",
        state="",
        name=name,
        kind=2,
        began=1,
        ended=3,
        facts={"n": 1, "yes": True, "text": "é"},
    )


class Wants:
    """A collector that says what it is told to, one answer after the other and the last one for ever."""

    def __init__(self, *answers: Sent, pause: float = 0) -> None:
        self._answers = list(answers)
        self.pause = pause
        self.given: list[tuple[float, str, Any]] = []

    async def send(self, what: str, body: bytes) -> Sent:
        await trio.lowlevel.checkpoint()
        self.given.append((trio.current_time(), what, json.loads(body)))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    @property
    def collector(self) -> Collector:
        return cast("Collector", self)

    def names(self) -> list[list[str]]:
        return [
            [each["name"] for each in given["resourceSpans"][0]["scopeSpans"][0]["spans"]]
            for _, _, given in self.given
        ]


async def test_what_waits_is_sent_every_few_seconds_and_at_once_where_it_is_much(
    autojump_clock: MockClock,
) -> None:
    book, wants = SpanBook(), Wants(Sent.TAKEN)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_sending_spans, book, wants.collector, WHO)
        await trio.sleep(1)
        book.add(span("first"))
        await trio.sleep(EVERY_SECONDS)
        assert [at for at, _, _ in wants.given] == [EVERY_SECONDS] and wants.names() == [["first"]]
        for _ in range(BATCH + 1):
            book.add(span())
        await wait_all_tasks_blocked()
        assert [len(names) for names in wants.names()] == [1, BATCH, 1]
        book.add(span("last"))
        nursery.cancel_scope.cancel()
    assert wants.names()[-1] == ["last"]


async def test_whoever_takes_nothing_is_asked_less_and_less_often_and_nothing_is_lost(
    autojump_clock: MockClock,
) -> None:
    book, wants = SpanBook(), Wants(*[Sent.LATER] * 8, Sent.TAKEN)
    book.add(span("waits"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_sending_spans, book, wants.collector, WHO)
        await trio.sleep(900)
        nursery.cancel_scope.cancel()
    times = [at for at, _, _ in wants.given]
    assert [later - earlier for earlier, later in pairwise(times)] == [
        5, 10, 20, 40, 80, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS,
    ]  # fmt: skip
    assert wants.names() == [["waits"]] * 9 and (len(book), book.dropped) == (0, 0)


async def test_a_pause_that_is_wanted_is_kept_and_what_is_refused_is_gone(autojump_clock: MockClock) -> None:
    book, wants = SpanBook(), Wants(Sent.LATER, Sent.REFUSED, Sent.TAKEN, pause=60)
    book.add(span())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_sending_spans, book, wants.collector, WHO)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert [at for at, _, _ in wants.given] == [5, 65] and book.dropped == 1


async def test_counts_go_as_sums_since_the_start_also_when_it_stops(autojump_clock: MockClock) -> None:
    metrics, wants = Metrics("1"), Wants(Sent.LATER, Sent.TAKEN)
    metrics.tool_called("main", "echo", "ok", 0.002)
    metrics.gauge("sessions", "Sessions", lambda: 3)
    metrics.counters("held_back", "Held back", "limit", lambda: {"caller": 2})
    times = iter(range(100, 200))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                keep_sending_metrics,
                metrics,
                wants.collector,
                WHO,
                every_seconds=30,
                clock=lambda: next(times),
            )
        )
        await trio.sleep(70)
        metrics.tool_called("main", "echo", "ok", 0.2)
        nursery.cancel_scope.cancel()
    assert [at for at, _, _ in wants.given] == [30, 60, 70]
    last = {
        each["name"]: each for each in wants.given[-1][2]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    }
    (calls,) = last["ostiary_tool_calls"]["sum"]["dataPoints"]
    assert (calls["asDouble"], calls["startTimeUnixNano"], calls["timeUnixNano"]) == (2, "100", "103")
    (took,) = last["ostiary_tool_call_seconds"]["histogram"]["dataPoints"]
    assert took["count"] == "2" and len(took["bucketCounts"]) == len(took["explicitBounds"]) + 1
    assert last["ostiary_sessions"]["gauge"]["dataPoints"][0]["asDouble"] == 3
    assert last["ostiary_held_back"]["sum"]["dataPoints"][0]["attributes"] == [
        {"key": "limit", "value": {"stringValue": "caller"}}
    ]


@pytest.mark.parametrize(
    ("status", "fields", "sent", "pause"),
    [
        (200, [], Sent.TAKEN, 0),
        (503, [b"Retry-After: 7"], Sent.LATER, 7),
        (429, [b"Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"], Sent.LATER, 0),
        (502, [b"Retry-After: 99999"], Sent.LATER, LONGEST_PAUSE_SECONDS),
        (400, [], Sent.REFUSED, 0),
        (401, [], Sent.REFUSED, 0),
        (404, [], Sent.REFUSED, 0),
    ],
)
async def test_what_a_collector_answers_says_whether_it_is_asked_again(
    status: int, fields: list[bytes], sent: Sent, pause: float
) -> None:
    log, asked = Log(), list[bytes]()

    async def play(visitor: Visitor) -> None:
        while (body := await visitor.request()) is not None:
            asked.append(body)
            await visitor.send(answer(b"because", *fields, status=status))

    async with raw_upstream(play) as upstream:
        collector = Collector(upstream.url.partition("/chat")[0], {"x-key": "k"}, None, log.logger)
        for _ in range(2):
            assert await collector.send("traces", b"{}") is sent
        assert collector.pause == pause and asked == [b"{}", b"{}"]
        await collector.aclose()
    told = log.of("telemetry.not_sent")
    assert len(told) == (0 if sent is Sent.TAKEN else 1)
    if told:
        assert told[0]["reason"] == f"answered {status} because" and collector.failed == 2


async def test_it_is_said_once_that_nobody_is_there_and_once_that_somebody_is_again() -> None:
    log, there = Log(), [True]

    async def play(visitor: Visitor) -> None:
        if there[0] and await visitor.request() is not None:
            await visitor.send(answer(b"{}", b"Connection: close"))

    async with raw_upstream(play) as upstream:
        collector = Collector(upstream.url.partition("/chat")[0], {}, None, log.logger)
        for now in (True, False, False, True, True):
            there[0] = now
            assert await collector.send("traces", b"{}") is (Sent.TAKEN if now else Sent.LATER)
        await collector.aclose()
    assert [each["event"] for each in log.events] == ["telemetry.not_sent", "telemetry.sent_again"]
