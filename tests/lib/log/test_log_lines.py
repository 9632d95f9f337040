"""Where lines of the log go: in order, at once or soon, and never at the expense of whoever logs."""

import fcntl
import io
import json
import os
import select
import threading
from collections.abc import Generator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Literal, TextIO

import pytest

from server.lib.log import log_lines as lines_module
from server.lib.log.log_lines import CHARACTERS_HELD, LINES_AT_ONCE, LINES_HELD, Lines
from server.lib.log.logger import Logger
from server.lib.log.structured_log import make_logger

WAIT_SECONDS = 60.0


class Told(io.StringIO):
    """A log that says when a line with this in it was written."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self._awaited = awaited
        self.came = Event()

    def write(self, text: str, /) -> int:
        written = super().write(text)
        if self._awaited in self.getvalue():
            self.came.set()
        return written

    @property
    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.getvalue().splitlines()]


class Gone(io.StringIO):
    """A log whose reader has left, or whose disk is full, for so many times."""

    def __init__(self, times: int = 1_000_000) -> None:
        super().__init__()
        self.times = times

    def write(self, text: str, /) -> int:
        if self.times:
            self.times -= 1
            raise BrokenPipeError
        return super().write(text)


def logging_to(out: TextIO, style: Literal["json", "console"] = "json") -> tuple[Lines, Logger]:
    lines = Lines(out)
    return lines, make_logger(level="info", style=style, stream=out, lines=lines)


@contextmanager
def a_pipe(*, blocking: bool = True) -> Generator[tuple[int, TextIO]]:
    """The end to read, and the other one as a stream."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, blocking)
    with open(writing, "w", encoding="utf-8") as out:
        try:
            yield reading, out
        finally:
            os.close(reading)  # which frees a thread that is stuck
            for thread in threading.enumerate():
                if thread.name == "log":
                    thread.join(WAIT_SECONDS)


def read_until(reading: int, event: str, found: list[dict[str, Any]]) -> None:
    """Whole lines, into `found`, to the one that tells this event."""
    rest = b""
    while True:
        *whole, rest = (rest + os.read(reading, 65536)).split(b"\n")
        found += [json.loads(line) for line in whole]
        if any(line["event"] == event for line in found):
            return


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written merely because time has passed."""
    monkeypatch.setattr(lines_module, "WRITTEN_EVERY_SECONDS", 3600.0)


def test_while_nothing_runs_each_line_is_written_by_who_says_it() -> None:
    out = Told("")
    _, log = logging_to(out)
    log.info("at once")
    assert out.events == ["at once"]


@pytest.mark.usefixtures("unhurried")
def test_a_warning_does_not_wait_and_takes_along_what_came_before() -> None:
    out = Told("now")
    lines, log = logging_to(out)
    with lines.held():
        log.info("waits")
        log.warning("now")
        assert out.came.wait(WAIT_SECONDS)
        log.info("later")
    assert out.events == ["waits", "now", "later"]


def test_an_ordinary_line_waits_for_a_moment_only() -> None:
    out = Told("soon")
    lines, log = logging_to(out)
    with lines.held():
        log.info("soon")
        assert out.came.wait(WAIT_SECONDS)


@pytest.mark.usefixtures("unhurried")
def test_many_lines_do_not_wait_for_more() -> None:
    out = Told("last")
    lines, log = logging_to(out)
    with lines.held():
        for _ in range(LINES_AT_ONCE - 1):
            log.info("many")
        log.info("last")
        assert out.came.wait(WAIT_SECONDS)
    assert len(out.events) == LINES_AT_ONCE


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("held", [True, False])
def test_a_line_that_nobody_can_take_is_dropped_and_counted_and_whoever_logs_goes_on(
    style: Literal["json", "console"], held: bool
) -> None:
    lines, log = logging_to(Gone(), style)
    if held:
        with lines.held():
            log.info("tool.called")
    else:
        log.info("tool.called")
    assert lines.dropped == 1
    assert not lines.stuck


def test_lines_that_were_lost_are_missed_as_soon_as_the_log_flows_again() -> None:
    out = Gone(times=2)
    lines, log = logging_to(out)
    for event in ("lost", "lost, too", "written"):
        log.info(event)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in told] == ["written", "log.dropped"]
    assert (told[1]["count"], told[1]["level"]) == (2, "warning")
    assert lines.dropped == 2


def test_while_nobody_reads_so_many_lines_wait_and_the_rest_is_dropped_and_missed_later() -> None:
    said = 4 * LINES_HELD
    found: list[dict[str, Any]] = []
    with a_pipe() as (reading, out):
        lines, log = logging_to(out)
        with lines.held():
            log.warning("longer than the pipe", number=-1, text="x" * 10_000)
            assert select.select([reading], (), (), WAIT_SECONDS)[0]  # it is being written, and cannot be
            for number in range(said):
                log.info("said", number=number)
            log.error("dropped as well")
            assert lines.dropped > 0
            reader = Thread(target=read_until, args=(reading, "log.dropped", found))
            reader.start()
            reader.join(WAIT_SECONDS)
            assert not reader.is_alive()
    *kept, missed = found
    assert [line["number"] for line in kept] == sorted({line["number"] for line in kept})
    assert len(kept) == 1 + LINES_HELD
    assert len(kept) + missed["count"] == 1 + said + 1
    assert lines.dropped == missed["count"]
    assert not lines.stuck


def test_what_waits_is_bounded_by_its_length_as_well() -> None:
    with a_pipe() as (_, out):
        lines, log = logging_to(out)
        with lines.held():
            for _ in range(40):
                log.info("long", text="x" * (CHARACTERS_HELD // 10))
            assert lines.dropped >= 40 - 2 * 10


def test_the_end_does_not_wait_for_a_log_that_nobody_reads_nor_does_a_line_after_it() -> None:
    with a_pipe() as (reading, out):
        lines, log = logging_to(out)
        with lines.held():
            for _ in range(LINES_HELD):
                log.info("said")
        assert lines.stuck
        log.info("afterwards")
        assert os.read(reading, 16)


def test_the_end_waits_for_a_log_that_is_read() -> None:
    found: list[dict[str, Any]] = []
    with a_pipe() as (reading, out):
        lines, log = logging_to(out)
        reader = Thread(target=read_until, args=(reading, "last", found))
        with lines.held():
            for _ in range(LINES_HELD - 1):
                log.info("said")
            reader.start()
            log.info("last")
        assert not lines.stuck
        reader.join(WAIT_SECONDS)
    assert len(found) == LINES_HELD


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing() -> None:
    found: list[dict[str, Any]] = []
    with a_pipe(blocking=False) as (reading, out):
        lines, log = logging_to(out)
        reader = Thread(target=read_until, args=(reading, "last", found))
        with lines.held():
            for _ in range(1000):
                log.info("said")
            log.warning("last")
            reader.start()
            reader.join(WAIT_SECONDS)
    assert len(found) == 1001
    assert lines.dropped == 0
