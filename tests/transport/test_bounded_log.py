"""server/transport/bounded_log.py: how much of the log anybody on the network can fill."""

from __future__ import annotations

from typing import cast

import pytest
from structlog.testing import CapturingLogger

from server.lib.log.logger import Logger
from server.transport.bounded_log import LINES, LINES_PER_NETWORK, BoundedLog


class Seen:
    def __init__(self, *, everything: bool = False) -> None:
        self.sink = CapturingLogger()
        self.log = BoundedLog(cast("Logger", self.sink), everything=everything)

    def count(self, event: str) -> int:
        return sum(call.args == (event,) for call in self.sink.calls)

    def more(self) -> list[dict[str, object]]:
        return [call.kwargs for call in self.sink.calls if call.args == ("log.more",)]


def test_one_network_has_so_many_lines_and_the_rest_is_counted_and_said() -> None:
    seen = Seen()
    for each in range(LINES_PER_NETWORK + 7):
        seen.log.info("http.request", ip=f"2001:db8::{each:x}", status=404)
    seen.log.info("http.request", ip="192.0.2.1", status=404)
    assert seen.count("http.request") == LINES_PER_NETWORK + 1
    seen.log.settle()
    assert seen.more() == [{"count": 7, "most_from": "2001:db8::/64", "of_it": LINES_PER_NETWORK + 7}]
    seen.log.info("http.request", ip="2001:db8::1", status=404)
    seen.log.settle()
    assert (seen.count("http.request"), len(seen.more())) == (LINES_PER_NETWORK + 2, 1)


def test_all_networks_together_have_so_many_lines_and_no_more_are_remembered() -> None:
    seen = Seen()
    for each in range(LINES + 50):
        seen.log.warning("store.unavailable", ip=f"10.0.{each // 256}.{each % 256}")
    assert seen.count("store.unavailable") == LINES
    seen.log.settle()
    assert [each["count"] for each in seen.more()] == [50]


def test_whoever_asks_too_often_is_only_counted() -> None:
    seen = Seen()
    for _ in range(5):
        seen.log.info("http.request", ip="192.0.2.1", status=429)
    assert seen.count("http.request") == 0
    seen.log.settle()
    assert seen.more() == [{"count": 5, "most_from": "192.0.2.1", "of_it": 5}]


@pytest.mark.parametrize("level", ["error", "exception", "debug"])
def test_faults_of_ours_and_what_somebody_asked_for_are_always_told(level: str) -> None:
    seen = Seen()
    for _ in range(LINES + 1):
        getattr(seen.log, level)("http.crashed", ip="192.0.2.1")
    assert seen.count("http.crashed") == LINES + 1


def test_whoever_wants_everything_is_told_everything() -> None:
    seen = Seen(everything=True)
    for _ in range(LINES + 1):
        seen.log.info("http.request", ip="192.0.2.1", status=429)
    assert seen.count("http.request") == LINES + 1


async def test_each_minute_and_the_end_say_what_was_not_told() -> None:
    seen = Seen()
    waited: list[float] = []

    class End(Exception):
        pass

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        seen.log.info("http.request", ip="192.0.2.1", status=429)
        if len(waited) == 3:
            raise End

    with pytest.raises(End):
        await seen.log.run(sleep=sleep)
    assert (set(waited), [each["count"] for each in seen.more()]) == ({60.0}, [1, 1, 1])
