"""What a connected client has yet to be given is not dropped to make room, whoever else keeps much."""

from __future__ import annotations

import pytest
import trio

from server.event_log import OWED, Allowance, EventLog


@pytest.mark.requirement("safety.queues")
async def test_a_large_answer_does_not_push_out_one_that_another_stream_has_yet_to_give() -> None:
    made = EventLog(Allowance(), max_bytes=100)
    one, other = made.open(), made.open()
    with trio.fail_after(5), one.read() as first, other.read() as second:
        one.append(b"a" * 90)
        other.append(b"b" * 90)
        one.end()
        other.end()
        event, next_event = await first.next(), await second.next()
        assert event is not None
        assert next_event is not None
        assert (event.message[:1], next_event.message[:1]) == (b"a", b"b")
    # What was given is the past, and makes room.
    late = made.open()
    late.append(b"c" * 90)
    assert made.find("0-1") is None
    assert made.find("1-1") is None


@pytest.mark.requirement("safety.queues")
async def test_what_is_owed_to_a_reader_that_does_not_read_is_bounded_too() -> None:
    allowance = Allowance()
    made = EventLog(allowance, max_bytes=100)
    stream = made.open()
    with stream.read() as reader:
        for _ in range(50):
            stream.append(b"x" * 50)
        assert allowance.used <= 100 * OWED
        event = await reader.next()
    assert event is not None
    assert int(event.id.split("-")[1]) > 1, "the oldest went first"


@pytest.mark.requirement("safety.queues")
async def test_the_order_of_what_was_passed_over_stays() -> None:
    made = EventLog(Allowance(), max_events=3)
    past, owed = made.open(), made.open()
    with trio.fail_after(5), owed.read() as reader:
        for number in range(4):
            past.append(b"past")
            owed.append(b"%d" % number)
        owed.end()
        found: list[bytes] = []
        while (event := await reader.next()) is not None:
            found.append(event.message)
    assert found == [b"0", b"1", b"2", b"3"]


@pytest.mark.requirement("safety.queues")
async def test_whoever_keeps_much_leaves_the_others_a_little() -> None:
    allowance = Allowance(1000, least=100)
    greedy, modest = EventLog(allowance), EventLog(allowance)
    greedy.open().append(b"x" * 1000)
    stream = modest.open()
    for message in (b"y" * 40, b"z" * 40):
        stream.append(message)
    assert modest.find("0-1") == (stream, 1)
    assert allowance.used == 1080
    stream.append(b"y" * 40)
    with trio.fail_after(5), stream.read() as reader:
        event = await reader.next()
    assert event is not None
    assert event.message[:1] == b"z", "no more than its little"
