"""Calls in the store (server/store/call_records/call_rows.py): written, bounded, read by the page, summed up."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from records_fakes import ADA, HOUR, KEY, NOW, call

from server.store.call_records import call_rows
from server.store.call_records.call_book import CallBook
from server.store.call_records.call_record import CallRecord
from server.store.call_records.call_rows import STRETCH, By, CallFilter
from server.store.jobs import Store

DAY = 24 * HOUR
ALL = CallFilter()


async def keep(store: Store, *records: CallRecord, most_rows: int = 1_000_000) -> None:
    book = CallBook()
    book.waiting.extend(records)
    book.count(len(records))
    batch = book.take()
    assert batch is not None
    await store.write(partial(call_rows.write, batch=batch, most_rows=most_rows))


async def numbers(store: Store, wanted: CallFilter = ALL, **how: Any) -> list[int]:
    how = {"oldest_first": False, "at": None, "at_most": 100, **how}
    found = await store.read(lambda db: call_rows.page(db, wanted, **how))
    return [row["seq"] for row in found.rows]


async def used(store: Store, by: By, wanted: CallFilter = ALL) -> list[tuple[dict[str, Any], int, int]]:
    found = await store.read(lambda db: call_rows.usage(db, wanted, by=by))
    return [(row.name, row.count, row.failed) for row in found]


async def test_a_tool_is_known_by_its_last_call_also_when_its_rows_are_gone(store: Store) -> None:
    await keep(store, call(at=NOW + 5), call(tool="add"), most_rows=1)
    await keep(store, call(at=NOW - DAY), most_rows=1)
    rows = await store.read(lambda db: db.fetch_all("SELECT * FROM tool_uses ORDER BY tool"))
    assert [(row["tool"], row["called_at"]) for row in rows] == [("add", NOW), ("echo", NOW + 5)]


async def test_a_row_says_who_called_what_and_what_came_of_it_and_no_more(store: Store) -> None:
    await keep(store, call(who=ADA, outcome="failed", reason="agent endpoint 502: gone", answered=0))
    row = await store.read(lambda db: db.fetch_one("SELECT * FROM calls"))
    assert row == {
        "seq": 1, "at": NOW, "server": "main", "tool": "echo", "outcome": "failed", "reason": "agent endpoint 502: gone",
        "ms": 4.0, "kind": "user", "subject": "user-1", "person": "Ada", "client_id": "client-1", "program": "Editor",
        "grant_id": "grant-1", "call_id": "request-1", "revision": "2026-07-28", "is_task": 0, "price": None,
        "asked": 10, "answered": None, "passed_over": 0,
    }  # fmt: skip


async def test_numbers_go_on_and_beyond_the_cap_the_oldest_go(store: Store) -> None:
    await keep(store, *(call() for _ in range(8)), most_rows=10)
    await keep(store, *(call() for _ in range(5)), most_rows=10)
    assert await numbers(store) == list(range(13, 3, -1))
    # What was written under a larger cap goes in pieces, faster than more can come.
    await keep(store, call(), most_rows=1)
    assert await numbers(store) == [14]
    assert [count for _, count, _ in await used(store, "server")] == [14]


async def test_pages_go_either_way_and_over_stretches_without_what_is_wanted(store: Store) -> None:
    await keep(store, *(call(outcome="error" if number == 3 else "ok") for number in range(1, 8)))
    assert await numbers(store, at_most=3) == [7, 6, 5]
    assert await numbers(store, at=5, at_most=3) == [4, 3, 2]
    assert await numbers(store, oldest_first=True, at=2, at_most=2) == [3, 4]
    assert await numbers(store, CallFilter(failed=True)) == [3]

    def spread(db: Any) -> None:
        db.execute("UPDATE calls SET seq = seq + ? WHERE seq > 3", 3 * STRETCH)

    await store.write(spread)
    found, at, pages = [], None, 0
    while True:
        page = await store.read(
            lambda db, at=at: call_rows.page(
                db, CallFilter(failed=True), oldest_first=False, at=at, at_most=10
            )
        )
        found += [row["seq"] for row in page.rows]
        pages, at = pages + 1, page.go_on
        if at is None:
            break
    assert (found, pages) == ([3], 4)


async def test_people_are_found_by_name_or_id_and_others_by_their_program(store: Store) -> None:
    machine = replace(KEY, subject="token:main:ci", person="", program="ci", user=None)
    await keep(store, call(who=ADA), call(who=KEY), call(who=machine), call())
    assert await numbers(store, CallFilter(person="Ada")) == [2, 1]
    assert await numbers(store, CallFilter(person="key-1")) == [2]
    assert await numbers(store, CallFilter(person="ci")) == [3]
    assert await numbers(store, CallFilter(person="nightly")) == []  # a key of somebody is not somebody


async def test_filters_narrow_by_time_server_and_tool(store: Store) -> None:
    await keep(
        store,
        call(at=NOW),
        call(at=NOW + 5, tool="sum"),
        call(at=NOW + 9, server="other"),
    )
    assert await numbers(store, CallFilter(since=NOW + 5)) == [3, 2]
    assert await numbers(store, CallFilter(until=NOW + 9)) == [2, 1]
    assert await numbers(store, CallFilter(tool="sum")) == [2]
    assert await numbers(store, CallFilter(server="other")) == [3]


async def test_usage_sums_every_call_up_by_what_is_asked_for(store: Store) -> None:
    await keep(store, call(who=ADA), call(who=KEY, outcome="timeout"), call(tool="sum"))
    await keep(store, call(who=ADA), call(at=NOW + DAY, who=ADA, outcome="unpaid"))
    today, tomorrow = NOW // DAY * DAY, NOW // DAY * DAY + DAY
    assert await used(store, "day") == [({"at": today}, 4, 1), ({"at": tomorrow}, 1, 0)]
    assert await used(store, "hour") == [({"at": NOW}, 4, 1), ({"at": NOW + DAY}, 1, 0)]
    assert await used(store, "tool") == [
        ({"server": "main", "tool": "echo"}, 4, 1),
        ({"server": "main", "tool": "sum"}, 1, 0),
    ]
    # One person, by whatever program or key.
    assert await used(store, "person") == [
        ({"kind": "user", "subject": "", "person": "Ada", "program": ""}, 4, 1),
        ({"kind": "anonymous", "subject": "anonymous", "person": "", "program": ""}, 1, 0),
    ]
    assert {name["outcome"]: count for name, count, _ in await used(store, "outcome")} == {
        "ok": 3,
        "timeout": 1,
        "unpaid": 1,
    }
    assert await used(store, "server", CallFilter(person="Ada", until=NOW + HOUR)) == [
        ({"server": "main"}, 3, 1)
    ]


async def test_how_long_calls_took_is_added_up_over_batches(store: Store) -> None:
    await keep(store, *(call(seconds=0.0005) for _ in range(95)))
    await keep(store, *(call(seconds=4) for _ in range(5)))
    (row,) = await store.read(lambda db: call_rows.usage(db, ALL, by="tool"))
    assert row.count == 100
    assert row.ms == pytest.approx(95 * 0.5 + 5 * 4_000)
    assert row.p50 < 1
    assert 0.9 < row.p95 <= 1


async def test_a_caller_is_told_of_its_own_calls_at_one_server_alone(store: Store) -> None:
    await keep(
        store, call(who=ADA), call(who=ADA, outcome="error"), call(who=ADA, tool="sum"), call(who=KEY), call()
    )
    await keep(store, call(who=ADA, server="other"), call(who=ADA, at=NOW - 40 * DAY))
    look = partial(call_rows.usage_of, server="main", caller=ADA.key(), since=NOW - 30 * DAY)
    found = await store.read(look)
    assert (found["calls"], found["failed"]) == (3, 1)
    assert found["days"] == [{"at": NOW // DAY * DAY, "calls": 3, "failed": 1}]
    assert [(tool["name"], tool["calls"], tool["failed"]) for tool in found["tools"]] == [
        ("echo", 2, 1),
        ("sum", 1, 0),
    ]
