"""Calls that wait to be written (server/store/call_records/call_book.py), and how durations are told apart."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from records_fakes import ADA, HOUR, KEY, NOW, call

from auth.values.identity_model import ANONYMOUS
from server.store.call_records.call_book import (
    FOR_FAILURES,
    MOST_NOTED,
    NOTED_EVERY,
    ROWS_AT_ONCE,
    SUMS_AN_HOUR,
    CallBook,
)
from server.store.call_records.call_record import BOUNDS, BUCKETS, CallRecord, quantile


def book_of(*records: CallRecord) -> CallBook:
    book = CallBook()
    book.waiting.extend(records)
    while book.count(1_000):
        pass
    return book


def test_calls_are_summed_by_hour_tool_caller_and_outcome_and_each_has_its_row() -> None:
    batch = book_of(
        call(), call(seconds=0.5), call(outcome="error"), call(who=ADA), call(at=NOW + HOUR)
    ).take()
    assert batch is not None
    assert len(batch.rows) == 5
    sums = {key: (found.count, found.buckets) for key, found in batch.sums.items()}
    first = sums[NOW, "main", "echo", "anonymous:", "ok"]
    assert first[0] == 2
    assert [place for place, count in enumerate(first[1]) if count] == [2, 8]  # up to 5 ms, up to 500 ms
    assert {key[0]: count for key, (count, _) in sums.items() if key[3:] == ("anonymous:", "ok")} == {
        NOW: 2,
        NOW + HOUR: 1,
    }
    assert sums[NOW, "main", "echo", "user:user-1:client-1", "ok"][0] == 1
    assert sums[NOW, "main", "echo", "anonymous:", "error"][0] == 1


def test_when_a_login_and_a_tool_were_used_last_is_written_at_once_and_then_by_the_minute() -> None:
    book = book_of(call(who=ADA), call(), call(who=KEY))
    first = book.take()
    assert first is not None
    assert first.logins == {"grant-1": NOW}  # of keys it is noted where they are looked at
    assert first.tools == {("main", "echo"): NOW}
    book.waiting.append(call(at=NOW + NOTED_EVERY - 1, who=ADA))
    book.count(10)
    within = book.take()
    assert within is not None
    assert (within.logins, within.tools) == ({}, {})
    book.waiting.append(call(at=NOW + NOTED_EVERY, who=ADA))
    book.count(10)
    later = book.take()
    assert later is not None
    assert later.logins == {"grant-1": NOW + NOTED_EVERY}
    book.put_back(later)
    again = book.take()
    assert again is not None
    assert (again.logins, again.tools) == (later.logins, later.tools)


def test_a_login_that_only_reads_is_in_use_and_leaves_no_row_and_no_sum() -> None:
    book = CallBook()
    book.used(ANONYMOUS, NOW)
    book.used(KEY, NOW)
    assert book.take() is None, "there is no login to take note of"
    book.used(ADA, NOW)
    first = book.take()
    assert first is not None
    assert (first.logins, first.rows, first.sums, first.tools) == ({"grant-1": NOW}, [], {}, {})
    book.used(ADA, NOW + NOTED_EVERY - 1)
    assert book.take() is None, "once a minute"
    book.put_back(first)
    again = book.take()
    assert again is not None and again.logins == first.logins


def test_what_was_taken_is_not_taken_again() -> None:
    book = book_of(call())
    assert book.take() is not None
    assert book.take() is None


def test_of_a_flood_every_call_is_counted_few_have_rows_and_the_next_row_says_how_many_had_none() -> None:
    book = book_of(*(call() for _ in range(15_000)), call(outcome="timeout"))
    batch = book.take()
    assert batch is not None
    assert len(batch.rows) == ROWS_AT_ONCE - FOR_FAILURES + 1  # failures have room of their own
    assert sum(found.count for found in batch.sums.values()) == 15_001
    assert sum(1 + record.passed_over for record in batch.rows) == 15_001
    assert batch.rows[-1].outcome == "timeout"
    assert book.passed_over == 15_001 - len(batch.rows)


def test_of_failures_alone_there_are_no_more_rows_than_of_all_together() -> None:
    batch = book_of(*(call(outcome="error") for _ in range(2 * ROWS_AT_ONCE))).take()
    assert batch is not None
    assert len(batch.rows) == ROWS_AT_ONCE


def test_callers_beyond_so_many_in_an_hour_are_counted_together() -> None:
    strangers = [call(who=replace(ADA, subject=f"u{number}")) for number in range(SUMS_AN_HOUR + 50)]
    book = book_of(*strangers)
    batch = book.take()
    assert batch is not None
    others = batch.sums[NOW, "main", "echo", "", "ok"]
    assert (len(batch.sums), others.count, others.who) == (SUMS_AN_HOUR + 1, 50, None)
    # Those who were told apart still are, in the next second as well; with the next hour it begins anew.
    book.waiting.extend([call(who=replace(ADA, subject="u0")), call(who=replace(ADA, subject="new"))])
    book.count(10)
    again = book.take()
    assert again is not None
    assert {key[3] for key in again.sums} == {"user:u0:client-1", ""}
    book.waiting.append(call(at=NOW + HOUR, who=replace(ADA, subject="new")))
    book.count(10)
    next_hour = book.take()
    assert next_hour is not None
    assert {key[3] for key in next_hour.sums} == {"user:new:client-1"}


def test_what_the_store_did_not_take_comes_with_the_next_batch_and_sums_stay_exact() -> None:
    book = book_of(call(), call())
    batch = book.take()
    assert batch is not None
    book.waiting.append(call())
    book.count(10)
    book.put_back(batch)
    again = book.take()
    assert again is not None
    assert len(again.rows) == 3
    assert [found.count for found in again.sums.values()] == [3]


def test_while_the_store_takes_nothing_only_so_many_logins_wait() -> None:
    book = CallBook()
    for number in range(MOST_NOTED + 5):
        book.used(replace(ADA, grant_id=f"grant-{number}"), NOW)
    book.used(replace(ADA, grant_id="grant-7"), NOW + NOTED_EVERY)
    batch = book.take()
    assert batch is not None
    assert (len(batch.logins), batch.logins["grant-7"]) == (MOST_NOTED, NOW + NOTED_EVERY)
    book.used(replace(ADA, grant_id=f"grant-{MOST_NOTED}"), NOW)  # of which nothing was kept
    assert (later := book.take()) is not None
    assert later.logins == {f"grant-{MOST_NOTED}": NOW}


def test_while_the_store_takes_nothing_only_so_many_rows_are_held() -> None:
    book = CallBook()
    for _ in range(5):
        book.waiting.extend(call(outcome="error") for _ in range(400))
        book.count(1_000)
        batch = book.take()
        assert batch is not None
        book.put_back(batch)
    held = book.take()
    assert held is not None
    assert len(held.rows) == ROWS_AT_ONCE
    assert [found.count for found in held.sums.values()] == [2_000]


async def test_whoever_writes_is_woken_by_what_may_have_been_written() -> None:
    book = book_of(call())
    batch = book.take()
    assert batch is not None
    book.put_back(batch, in_doubt=True)
    with trio.fail_after(60):
        await book.wait()
    again = book.take()
    assert again is not None
    assert again.in_doubt and list(again.rows) == list(batch.rows)


async def test_whoever_writes_is_woken_by_the_first_call_and_by_what_could_not_be_written() -> None:
    book = CallBook()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(book.wait)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            book.waiting.append(call())
            book.wake()
        book.count(10)
        batch = book.take()
        assert batch is not None
        book.put_back(batch)
        await book.wait()
        assert book.take() is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(book.wait)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            book.used(ADA, NOW)
        book.count(10)
        await book.wait()


@pytest.mark.parametrize(
    ("buckets", "share", "ms"),
    [
        ({}, 0.5, 0),
        ({0: 10}, 0.5, 0.5),
        ({0: 50, 3: 50}, 0.95, 9.5),  # from 5 to 10
        ({2: 1}, 0.95, 4.85),
        ({BUCKETS - 1: 3}, 0.5, BOUNDS[-1]),
    ],
)
def test_a_quantile_is_right_to_its_bucket(buckets: dict[int, int], share: float, ms: float) -> None:
    assert quantile([buckets.get(place, 0) for place in range(BUCKETS)], share) == pytest.approx(ms)
