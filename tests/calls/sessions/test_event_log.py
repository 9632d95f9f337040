"""The log of a session's events: what can be had again, what is dropped, who reads."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack

import pytest
import trio
import trio.testing

from server.calls.sessions.event_log import OWED, Allowance, EventLog, EventStream, StreamReader


def log(*, max_events: int = 512, max_bytes: int = 1 << 20, overall: int = 1 << 30) -> EventLog:
    return EventLog(Allowance(overall), max_events=max_events, max_bytes=max_bytes)


def found(made: EventLog, event: str) -> tuple[EventStream, int] | None:
    """`event` as `rest` tells it."""
    return made.find(f"{made.life}-{event}")


async def rest(stream: EventStream, after: int = 0) -> list[tuple[str, bytes]]:
    """What a reader gets of a stream that has ended; of each id only what follows the log's own part of it."""
    got: list[tuple[str, bytes]] = []
    with trio.fail_after(60), stream.read(after) as reader:
        while (event := await reader.next()) is not None:
            got.append((event.id.partition("-")[2], event.message))
    return got


async def test_a_stream_is_read_from_any_of_its_events_on() -> None:
    made = log()
    one, other = made.open(), made.open()
    for message in (b"a", b"b", b"c"):
        one.append(message)
        other.append(message.upper())
    one.end()
    assert await rest(one) == [("0-1", b"a"), ("0-2", b"b"), ("0-3", b"c")]
    assert found(made, "0-1") == (one, 1)
    assert await rest(one, 1) == [("0-2", b"b"), ("0-3", b"c")]
    assert await rest(one, 3) == []
    other.end()
    assert [message for _, message in await rest(other)] == [b"A", b"B", b"C"]
    assert made.find(other.beginning) == (other, 0)


@pytest.mark.parametrize(
    "event_id", ["", "0", "0-", "-1", "0-2", "1-0", "0--1", "0-1 ", "٠-١", "0-1-1", "9" * 400 + "-1"]
)
def test_an_id_that_was_never_given_finds_nothing(event_id: str) -> None:
    made = log()
    made.open().append(b"a")
    assert made.find(event_id) is None
    assert found(made, event_id) is None
    assert made.find(f"{made.life}{event_id}") is None


def test_an_event_of_an_earlier_log_leads_to_the_beginning_of_the_first_stream_or_to_nothing() -> None:
    earlier, made = log(), log()
    assert earlier.life != made.life
    for one in (earlier, made):
        for _ in range(2):
            stream = one.open()
            for _ in range(3):
                stream.append(b"a")
    first, second = (made.find(f"{made.life}-{number}-1") for number in range(2))
    assert first is not None and second is not None
    assert made.find(f"{earlier.life}-0-2") == (first[0], 0)
    assert made.find(f"{earlier.life}-1-2") is None, "that was another request"
    made.close()
    assert made.find(f"{earlier.life}-0-2") is None


async def test_a_reader_gets_what_comes_while_it_reads() -> None:
    stream = log().open()
    got: list[bytes] = []

    async def read() -> None:
        with stream.read() as reader:
            while (event := await reader.next()) is not None:
                got.append(event.message)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            stream.append(b"a")
            await trio.testing.wait_all_tasks_blocked()
            assert got == [b"a"]
            stream.append(b"b")
            stream.append(b"c")
            stream.end()
            stream.append(b"too late")
    assert got == [b"a", b"b", b"c"]


async def test_a_sender_goes_no_faster_than_its_reader_and_waits_for_nobody() -> None:
    stream = log().open()
    stream.append(b"a")
    with trio.fail_after(60):
        await stream.taken()
        with ExitStack() as reading:
            reader = reading.enter_context(stream.read())
            first = await reader.next()
            assert first is not None and first.message == b"a"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.taken)
                await trio.testing.wait_all_tasks_blocked()
                assert len(nursery.child_tasks) == 1, "the event was handed out, and not dealt with yet"
                nursery.start_soon(reader.next)
                await trio.testing.wait_all_tasks_blocked()
                assert len(nursery.child_tasks) == 1, "only the reader waits now"
                nursery.cancel_scope.cancel()
            stream.append(b"b")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.taken)
                await trio.testing.wait_all_tasks_blocked()
                reading.close()  # a reader that leaves holds nobody up


async def test_a_cancelled_reader_has_lost_nothing() -> None:
    stream = log().open()
    with trio.fail_after(60), stream.read() as reader:
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.next()
        stream.append(b"a")
        event = await reader.next()
        assert event is not None and event.message == b"a"


async def test_a_newer_reader_replaces_the_older_one() -> None:
    stream = log().open()
    ended: list[str] = []

    async def read(name: str, into: list[StreamReader]) -> None:
        with stream.read() as reader:
            into.append(reader)
            assert await reader.next() is None
            ended.append(name)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            readers: list[StreamReader] = []
            nursery.start_soon(read, "first", readers)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(read, "second", readers)
            await trio.testing.wait_all_tasks_blocked()
            assert ended == ["first"]
            assert stream.attended
            stream.end()
    assert ended == ["first", "second"]
    assert not stream.attended


@pytest.mark.requirement("safety.queues")
async def test_the_oldest_events_are_dropped_when_there_are_too_many() -> None:
    made = log(max_events=3)
    old, new = made.open(), made.open()
    old.append(b"a")
    old.end()
    new.append(b"b")
    new.append(b"c")
    assert found(made, "0-1") is not None
    new.append(b"d")
    assert found(made, "0-1") is None, "it has ended, and nothing of it is kept"
    new.append(b"e")
    new.end()
    assert found(made, "1-1") == (new, 1)
    assert await rest(new, 1) == [("1-2", b"c"), ("1-3", b"d"), ("1-4", b"e")]
    assert await rest(new, 0) == await rest(new, 1), "what is missing is skipped"


async def test_the_oldest_events_are_dropped_when_they_are_too_large_but_the_newest_stays() -> None:
    made = log(max_bytes=10)
    stream = made.open()
    for message in (b"aaaa", b"bbbb", b"cccc"):
        stream.append(message)
    stream.append(b"d" * 100)
    stream.end()
    assert await rest(stream) == [("0-4", b"d" * 100)]


async def test_a_stream_may_still_be_found_when_all_its_events_were_dropped_before_its_end() -> None:
    made = log(max_events=1)
    slow, chatty = made.open(), made.open()
    slow.append(b"progress")
    chatty.append(b"x")
    assert found(made, "0-1") == (slow, 1)
    slow.append(b"answer")
    slow.end()
    assert await rest(slow, 1) == [("0-2", b"answer")]


@pytest.mark.requirement("safety.queues")
async def test_the_logs_of_all_sessions_share_one_allowance() -> None:
    allowance = Allowance(100, least=0)
    greedy, modest = EventLog(allowance), EventLog(allowance)
    stream = greedy.open()
    stream.append(b"x" * 60)
    other = modest.open()
    other.append(b"y" * 30)
    other.append(b"z" * 30)
    other.end()
    assert await rest(other) == [("0-2", b"z" * 30)], "who writes makes room"
    stream.end()
    assert len(await rest(stream)) == 1
    greedy.close()
    assert allowance.used == 30
    modest.close()
    assert allowance.used == 0


async def test_a_closed_log_ends_its_readers_and_keeps_nothing() -> None:
    allowance = Allowance(100)
    made = EventLog(allowance)
    stream = made.open()
    stream.append(b"a")
    with trio.fail_after(60), stream.read(1) as reader:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.next)
            await trio.testing.wait_all_tasks_blocked()
            made.close()
        assert found(made, "0-1") is None
    late = made.open()
    late.append(b"late")
    assert await rest(late) == []
    assert allowance.used == 0


async def test_a_stream_without_events_is_forgotten_at_its_end() -> None:
    made = log()
    stream = made.open()
    assert found(made, "0-0") == (stream, 0)
    stream.end()
    assert found(made, "0-0") is None


# ── what is owed to a reader: not dropped to make room, whoever else keeps much ─────────────────────────────────────


@pytest.mark.requirement("safety.queues")
async def test_a_large_answer_does_not_push_out_one_that_another_stream_has_yet_to_give() -> None:
    made = EventLog(Allowance(), max_bytes=100)
    one, other = made.open(), made.open()
    with trio.fail_after(60), one.read() as first, other.read() as second:
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
    assert found(made, "0-1") is None
    assert found(made, "1-1") is None


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
    assert int(event.id.split("-")[2]) > 1, "the oldest went first"


@pytest.mark.requirement("safety.queues")
async def test_the_order_of_what_was_passed_over_stays() -> None:
    made = EventLog(Allowance(), max_events=3)
    past, owed = made.open(), made.open()
    with trio.fail_after(60), owed.read() as reader:
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
    assert found(modest, "0-1") == (stream, 1)
    assert allowance.used == 1080
    stream.append(b"y" * 40)
    with trio.fail_after(60), stream.read() as reader:
        event = await reader.next()
    assert event is not None
    assert event.message[:1] == b"z", "no more than its little"


@pytest.mark.requirement("safety.queues")
async def test_answers_that_were_given_leave_no_more_behind_than_all_sessions_may_keep_however_large_they_are() -> (
    None
):
    allowance = Allowance(100, least=10)
    for _ in range(20):
        stream = EventLog(allowance).open()
        with trio.fail_after(60), stream.read() as reader:
            stream.append(b"x" * 70)
            stream.end()
            event = await reader.next()
            assert event is not None
            assert len(event.message) == 70
            assert await reader.next() is None
    assert allowance.used <= 100


@pytest.mark.requirement("safety.queues")
async def test_answers_that_nobody_fetches_are_bounded_as_well_and_their_loss_is_said() -> None:
    allowance = Allowance(100, least=10)
    logs = [EventLog(allowance) for _ in range(20)]
    for made in logs:
        stream = made.open()
        stream.append(b"x" * 70)
        stream.end()
    assert allowance.used <= 100
    assert logs[0].find(f"{logs[0].life}-1-0") is None
    found = [made.find(f"{made.life}-0-0") is not None for made in logs]
    assert found == [True, *[False] * 19]


@pytest.mark.requirement("safety.queues")
async def test_answers_that_are_being_given_are_kept_beyond_it_but_not_without_bound() -> None:
    allowance = Allowance(100, least=10)
    with contextlib.ExitStack() as readers:
        for _ in range(20):
            stream = EventLog(allowance).open()
            readers.enter_context(stream.read())
            stream.append(b"x" * 70)
        assert 100 < allowance.used <= 100 * OWED
