"""Writing down how keys were used (server/transport/admission/key_usage.py): now and then, at the end, and never at a caller's cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from auth.tokens.api_key_ring import PIECE, KeyUsage, UseNotes
from server.store.jobs import DiskFull
from server.transport.admission.key_usage import EVERY_SECONDS, keep_noting


@dataclass
class Shelf:
    """A store that takes notes as they are."""

    full: bool = False
    taken: list[UseNotes] = field(default_factory=list[UseNotes])

    async def write(self, job: Any) -> None:
        await trio.lowlevel.checkpoint()
        if self.full:
            raise DiskFull("no room")
        self.taken.append(job.keywords["notes"])

    async def read(self, job: Any) -> None:
        raise AssertionError("nothing is read")


async def test_a_key_that_is_used_all_the_time_costs_one_write_a_minute(autojump_clock: MockClock) -> None:
    usage, shelf = KeyUsage(), Shelf()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_noting, usage, shelf, structlog.get_logger())  # type: ignore[arg-type]
        for second in range(300):
            usage.used("key_1", second, "10.0.0.1")
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert len(shelf.taken) <= 300 // EVERY_SECONDS + 1  # and what was left at the end
    assert [len(notes.uses) for notes in shelf.taken] == [1] * len(shelf.taken)


async def test_at_the_end_what_is_left_is_written_in_pieces(autojump_clock: MockClock) -> None:
    usage, shelf = KeyUsage(), Shelf()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_noting, usage, shelf, structlog.get_logger())  # type: ignore[arg-type]
        await trio.sleep(1)
        for number in range(PIECE + 1):
            usage.used(f"key_{number}", 1, "10.0.0.1")
        nursery.cancel_scope.cancel()
    assert [len(notes.uses) for notes in shelf.taken] == [PIECE, 1]


async def test_a_store_that_cannot_take_it_stops_nothing(autojump_clock: MockClock) -> None:
    usage, shelf = KeyUsage(), Shelf(full=True)
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_noting, usage, shelf, structlog.get_logger())  # type: ignore[arg-type]
            usage.used("key_1", 1, "10.0.0.1")
            await trio.sleep(EVERY_SECONDS + 1)
            shelf.full = False
            usage.used("key_2", 2, "10.0.0.1")
            await trio.sleep(EVERY_SECONDS)
            nursery.cancel_scope.cancel()
    assert [use.key_id for notes in shelf.taken for use in notes.uses] == ["key_2"]
    assert [line["event"] for line in lines] == ["api_key.use_not_noted"]


async def test_requests_on_which_nobody_could_decide_are_one_line_a_minute(autojump_clock: MockClock) -> None:
    usage, shelf = KeyUsage(), Shelf()
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_noting, usage, shelf, structlog.get_logger())  # type: ignore[arg-type]
            for _ in range(90):
                usage.undecided("it changed")
                await trio.sleep(1)
            await trio.sleep(3 * EVERY_SECONDS)
            nursery.cancel_scope.cancel()
    assert {line["event"] for line in lines} == {"entry.undecided"}
    assert len(lines) == 2
    assert sum(line["requests"] for line in lines) == 90
    assert lines[0]["reason"] == "it changed"
