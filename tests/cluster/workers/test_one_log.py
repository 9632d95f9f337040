"""What workers write, in one log: whole lines, whatever pieces they come in."""

from __future__ import annotations

import io
import json
import os

import pytest
import trio

from server.cluster.workers.worker_process import LINE_CHARACTERS, pass_on
from server.lib.log.log_lines import LINES_HELD, Lines


async def passed_on(*pieces: bytes) -> str:
    out = io.StringIO()
    send, receive = trio.testing.memory_stream_one_way_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_on, receive, Lines(out))
        for piece in pieces:
            await send.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        await send.aclose()
    return out.getvalue()


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((b"one\ntwo\n",), "one\ntwo\n"),
        ((b"o", b"ne\nt", b"wo", b"\n"), "one\ntwo\n"),
        (("schön\n".encode()[:4], "schön\n".encode()[4:]), "schön\n"),
        ((b"its last words",), "its last words\n"),
        ((b"\xff\n",), "\\xff\n"),
        ((b"\n\n",), "\n\n"),
        ((), ""),
    ],
)
async def test_lines_come_whole_in_whatever_pieces_they_were_read(
    pieces: tuple[bytes, ...], text: str
) -> None:
    assert await passed_on(*pieces) == text


async def test_a_line_without_an_end_is_held_within_bounds_and_nothing_of_it_is_lost() -> None:
    length = 10 * LINE_CHARACTERS + 3
    *pieces, after = (await passed_on(b"x" * length + b"\nnext\n")).splitlines()
    assert ("".join(pieces), after) == ("x" * length, "next")
    assert max(len(piece) for piece in pieces) < 2 * LINE_CHARACTERS


async def test_two_workers_that_write_at_the_same_time_tear_no_line_of_each_other() -> None:
    out = io.StringIO()
    lines = Lines(out)
    ends: list[trio.testing.MemorySendStream] = []
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            send, receive = trio.testing.memory_stream_one_way_pair()
            ends.append(send)
            nursery.start_soon(pass_on, receive, lines)
        for count in range(50):
            for number, send in enumerate(ends):
                line = json.dumps({"worker": number, "count": count, "text": "y" * 200}).encode() + b"\n"
                await send.send_all(line[:100])
            for number, send in enumerate(ends):
                line = json.dumps({"worker": number, "count": count, "text": "y" * 200}).encode() + b"\n"
                await send.send_all(line[100:])
        for send in ends:
            await send.aclose()
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(found) == 100
    for number in range(2):
        assert [each["count"] for each in found if each["worker"] == number] == list(range(50))


async def test_whoever_reads_the_log_may_stop_and_the_workers_are_read_all_the_same() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, True)
    out = os.fdopen(writer, "w", encoding="utf-8")
    lines = Lines(out)
    count = LINES_HELD + 2000
    with lines.held():
        send, receive = trio.testing.memory_stream_one_way_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_on, receive, lines)
            for _ in range(count):
                await send.send_all(b"z" * 99 + b"\n")
            await send.aclose()
        # Nobody has read a byte of it, and the worker was held up by nothing.
        assert lines.dropped > 0
        os.close(reader)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), writer)
    out.close()
