from __future__ import annotations

import os

import pytest
import trio

from server.client.stdio_lines import LineSplitter, TooLong, read_lines, reader, writer
from server.lib.server_sent_events import EventDecoder


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_come_out_whole_however_they_arrive(size: int) -> None:
    data = b"one\n\ntwo\r\n" + b"x" * 11 + b"\nthree\n" + b"y" * 40 + b"\nfour\nrest"
    splitter = LineSplitter(limit=10)
    found = [
        line for start in range(0, len(data), size) for line in splitter.feed(data[start : start + size])
    ]
    assert found == [b"one", b"", b"two\r", TooLong(), b"three", TooLong(), b"four"]
    assert splitter.end() == b"rest"


async def test_a_last_line_without_an_end_is_a_line() -> None:
    chunks = [b"a\nb", b"c", b""]

    async def read() -> bytes:
        return chunks.pop(0)

    assert [line async for line in read_lines(read)] == [b"a", b"bc"]


@pytest.mark.parametrize("blocking", [True, False])
async def test_descriptors_stay_as_they_are_and_a_full_pipe_holds_the_writer_up(blocking: bool) -> None:
    out, into = os.pipe()
    os.set_blocking(out, blocking)
    os.set_blocking(into, blocking)
    try:
        write = writer(into)
        line = b"x" * (1024 * 1024)  # more than a pipe holds
        done = trio.Event()
        received = bytearray()

        async def produce() -> None:
            await write(line)
            done.set()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                await trio.sleep(0)
                assert not done.is_set()
                read = reader(out)
                while len(received) < len(line) + 1:
                    received += await read()
                await done.wait()
        assert bytes(received) == line + b"\n"
        assert os.get_blocking(out) == os.get_blocking(into) == blocking
    finally:
        os.close(out)
        os.close(into)


async def test_a_read_that_nothing_comes_to_can_be_cancelled() -> None:
    out, into = os.pipe()
    with trio.move_on_after(0.05) as scope:
        await reader(out)()
    assert scope.cancelled_caught
    os.close(into)  # the thread that was left behind ends with this


def test_an_event_stream_tells_where_it_was_left() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"id: 1\nretry: 250\ndata:\n\n") == [b""]  # a priming event
    assert (decoder.last_id, decoder.retry_millis) == ("1", 250)
    assert decoder.feed(b"data: a\n\nid: 2\ndata: b\n") == [b"a"]
    assert decoder.last_id == "1"  # 2 is not complete
    assert decoder.feed(b"\nid: 3\n\n") == [b"b"]
    assert decoder.last_id == "3"  # an event without data counts
    assert decoder.feed(b"id: with\0nul\nretry: soon\ndata: c\n\n") == [b"c"]
    assert (decoder.last_id, decoder.retry_millis) == ("3", 250)
    assert decoder.feed(b"id: " + b"x" * 5000 + b"\ndata: d\n\n") == [b"d"]
    assert decoder.last_id == "3"
