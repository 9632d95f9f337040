"""Our ends of pipes, and lines that wait for room in one."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from server.lib.line_outbox import BATCH_BYTES, WAITING, LineOutbox
from server.lib.process_pipes import PipeReader, PipeWriter
from tests.agents.chat.memory_peer import PLENTY, MemoryInlet


@asynccontextmanager
async def pipe() -> AsyncGenerator[tuple[PipeReader, PipeWriter]]:
    reading, writing = os.pipe()
    reader, writer = PipeReader(reading), PipeWriter(writing)
    try:
        with trio.fail_after(60):
            yield reader, writer
    finally:
        await reader.aclose()
        await writer.aclose()


async def test_a_pipe_takes_what_it_has_room_for_and_gives_what_it_holds() -> None:
    async with pipe() as (reader, writer):
        assert reader.read_some() is None
        assert writer.write_some(b"a line\n") == 7
        await reader.news()
        assert reader.read_some() == b"a line\n"
        while written := writer.write_some(b"x" * 100_000):
            assert written <= 100_000
        with trio.move_on_after(0.01) as waiting:
            await writer.room()
        assert waiting.cancelled_caught
        assert reader.read_some()
        await writer.room()


async def test_the_end_of_a_pipe_is_no_bytes_and_one_that_nobody_reads_is_broken() -> None:
    async with pipe() as (reader, writer):
        await writer.aclose()
        await writer.aclose()
        await reader.news()
        assert reader.read_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            writer.write_some(b"x")
    async with pipe() as (reader, writer):
        await reader.aclose()
        with pytest.raises(trio.BrokenResourceError):
            writer.write_some(b"x")
        assert reader.read_some() == b""


async def test_who_waits_for_a_pipe_is_told_that_it_was_closed() -> None:
    async def waits(reader: PipeReader) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await reader.news()

    async with pipe() as (reader, _), trio.open_nursery() as nursery:
        nursery.start_soon(waits, reader)
        await trio.testing.wait_all_tasks_blocked()
        await reader.aclose()


# ── lines that wait ──


class Waiting:
    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.inlet = MemoryInlet(self.heard.append)
        self.broken = 0
        self.outbox = LineOutbox(self.inlet, self._break)

    def _break(self) -> None:
        self.broken += 1


@asynccontextmanager
async def waiting() -> AsyncGenerator[Waiting]:
    at = Waiting()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.outbox.run)
            await trio.testing.wait_all_tasks_blocked()
            yield at
            nursery.cancel_scope.cancel()


async def test_a_line_goes_straight_into_a_pipe_that_has_room() -> None:
    async with waiting() as at:
        assert at.outbox.put(b"one\n")
        assert at.outbox.put(b"two\n")
        assert at.heard == [b"one\n", b"two\n"]


async def test_what_waits_for_room_is_written_at_once_in_its_order_and_half_a_line_is_finished_first() -> (
    None
):
    async with waiting() as at:
        at.inlet.change(room_for=2)
        for number in range(5):
            assert at.outbox.put(b"line %d\n" % number)
        assert at.heard == [b"li"]
        at.inlet.change(room_for=PLENTY)
        await trio.testing.wait_all_tasks_blocked()
        assert b"".join(at.heard) == b"line 0\nline 1\nline 2\nline 3\nline 4\n"
        assert len(at.heard) <= 3
        assert at.outbox.put(b"line 5\n")  # nothing waits any more, so it goes straight again
        assert at.heard[-1] == b"line 5\n"


async def test_a_line_that_was_written_is_let_go_of_and_not_kept_until_the_next_one_comes() -> None:
    async with waiting() as at:
        at.inlet.change(room_for=1)
        line = b"x" * 100
        nobody_else = sys.getrefcount(line)
        assert at.outbox.put(line)
        await trio.testing.wait_all_tasks_blocked()
        assert sys.getrefcount(line) > nobody_else
        at.inlet.change(room_for=PLENTY)
        await trio.testing.wait_all_tasks_blocked()
        assert sys.getrefcount(line) == nobody_else


async def test_who_has_more_to_say_than_may_wait_waits_in_turn_and_nobody_overtakes() -> None:
    async with waiting() as at:
        at.inlet.change(room_for=0)
        async with trio.open_nursery() as nursery:
            for number in range(3 * WAITING):
                nursery.start_soon(at.outbox.send, b"%d\n" % number)
                await trio.testing.wait_all_tasks_blocked()
            assert not at.outbox.put(b"late\n")
            at.inlet.change(room_for=7)
            await trio.testing.wait_all_tasks_blocked()
            assert b"".join(at.heard) == b"0\n1\n2\n3"
            at.inlet.change(room_for=PLENTY)
        await trio.testing.wait_all_tasks_blocked()
        assert b"".join(at.heard).split() == [b"%d" % number for number in range(3 * WAITING)]


async def test_who_is_cancelled_while_waiting_for_room_has_said_nothing_and_a_line_that_was_taken_is_whole() -> (
    None
):
    async with waiting() as at:
        at.inlet.change(room_for=1)
        with trio.CancelScope() as scope:
            await at.outbox.send(b"taken\n")
            scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        number = 0
        while at.outbox.put(b"%d\n" % number):
            number += 1
        assert number == WAITING
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.outbox.send, b"never\n")
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            nursery.cancel_scope.cancel()
        at.inlet.change(room_for=PLENTY)
        await trio.testing.wait_all_tasks_blocked()
        assert b"".join(at.heard).startswith(b"taken\n0\n1\n")
        assert b"never" not in b"".join(at.heard)


async def test_a_pipe_that_breaks_is_told_once_it_is_noticed_and_whoever_waits_is_let_go() -> None:
    async with waiting() as at:
        at.inlet.change(room_for=1)
        async with trio.open_nursery() as nursery:
            for _ in range(4 * WAITING):
                nursery.start_soon(at.outbox.send, b"x" * BATCH_BYTES + b"\n")
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            at.inlet.change(broken=True)
        assert at.broken
        assert at.outbox.put(b"into nothing\n")
    async with waiting() as at:
        at.inlet.change(broken=True)
        assert at.outbox.put(b"into nothing\n")
        assert at.broken
        at.outbox.close()
        assert at.outbox.put(b"into nothing\n")


async def test_lines_through_a_real_pipe_that_is_read_slowly_come_whole_and_in_order() -> None:
    said = [b"%d " % number + b"x" * (number * 997 % 150_000) + b"\n" for number in range(100)]

    async def speak(outbox: LineOutbox) -> None:
        for line in said:
            await outbox.send(line)

    async with pipe() as (reader, writer), trio.open_nursery() as nursery:
        outbox = LineOutbox(writer, lambda: None)
        nursery.start_soon(outbox.run)
        nursery.start_soon(speak, outbox)
        heard = b""
        while heard.count(b"\n") < len(said):
            await reader.news()
            heard += reader.read_some() or b""
        assert heard == b"".join(said)
        nursery.cancel_scope.cancel()
