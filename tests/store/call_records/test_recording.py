"""Writing calls down (server/store/call_records/recording.py): soon, at the end, and when the store takes nothing."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from records_fakes import ADA, NOW, call

from server.lib.log.structured_log import make_logger
from server.store.call_records.call_book import CallBook
from server.store.call_records.recording import keep_recording, write_down
from server.store.inline_store import InlineStore
from server.store.jobs import DiskFull, JobTooSlow, StatementFailed, Store, StoreBroken, StoreDb, StoreError

MOST = 1_000_000


class Full:
    """A store that takes nothing, until it does. `written`: or has taken what it says it may not have."""

    def __init__(self, store: Store, problem: StoreError | None = None, *, written: bool = False) -> None:
        self.problem: StoreError | None = problem or DiskFull("the disk is full")
        self.written = written
        self.writes = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self._store = store

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        self.writes += 1
        self.meanwhile()
        if self.problem is not None:
            if self.written:
                await self._store.write(job)
            raise self.problem
        return await self._store.write(job)


def ended(book: CallBook) -> None:
    """As server/calls/agent_use.py has it."""
    book.waiting.append(call())
    if len(book.waiting) == 1:
        book.wake()


async def count(store: Store) -> int:
    row = await store.read(lambda db: db.fetch_one("SELECT coalesce(sum(count), 0) AS n FROM call_hours"))
    assert row is not None
    return row["n"]


async def test_calls_are_written_a_second_after_the_first_of_them_and_nothing_is_done_without_one(
    store: InlineStore,
) -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    slept, go_on = list[float](), trio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await go_on.wait()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            keep = lambda: keep_recording(book, store, log, most_rows=MOST, sleep=sleep)  # noqa: E731
            nursery.start_soon(keep)
            await trio.testing.wait_all_tasks_blocked()
            assert slept == []
            ended(book)
            await trio.testing.wait_all_tasks_blocked()
            ended(book)
            assert (slept, await count(store)) == ([1.0], 0)
            go_on.set()
            while await count(store) < 2:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def test_what_is_left_at_the_end_is_written(store: InlineStore) -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: keep_recording(book, store, log, most_rows=MOST))
            await trio.testing.wait_all_tasks_blocked()
            ended(book)
            nursery.cancel_scope.cancel()
    assert await count(store) == 1


async def test_a_store_that_takes_nothing_is_told_of_once_and_loses_no_count(store: InlineStore) -> None:
    out, book = StringIO(), CallBook()
    log = make_logger(level="info", style="json", stream=out)
    full: Any = Full(store)
    for _ in range(3):
        ended(book)
        await write_down(book, full, log, most_rows=MOST)
    assert await count(store) == 0
    assert out.getvalue().count("calls.not_recorded") == 1
    full.problem = None
    await write_down(book, full, log, most_rows=MOST)
    assert await count(store) == 3
    full.problem = DiskFull("the disk is full")
    ended(book)
    await write_down(book, full, log, most_rows=MOST)
    assert out.getvalue().count("calls.not_recorded") == 2


async def test_what_took_too_long_is_tried_again_and_ends_nothing(store: InlineStore) -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    slow: Any = Full(store, JobTooSlow("took too long"))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            rounds = 0

            async def sleep(seconds: float) -> None:
                nonlocal rounds
                rounds += 1
                if rounds == 3:
                    slow.problem = None
                await trio.lowlevel.checkpoint()

            nursery.start_soon(lambda: keep_recording(book, slow, log, most_rows=MOST, sleep=sleep))
            ended(book)
            while await count(store) < 1:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert rounds == 3


async def test_whoever_looks_while_nothing_waits_leaves_the_bell_to_who_waits_for_it(
    store: InlineStore,
) -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())

    async def at_once(seconds: float) -> None:
        await trio.lowlevel.checkpoint()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            keep = lambda: keep_recording(book, store, log, most_rows=MOST, sleep=at_once)  # noqa: E731
            nursery.start_soon(keep)
            await trio.testing.wait_all_tasks_blocked()
            await write_down(book, store, log, most_rows=MOST)  # a page
            ended(book)
            while await count(store) < 1:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def test_what_comes_while_it_is_written_waits_for_the_next_second(store: InlineStore) -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    busy: Any = Full(store)
    busy.problem = None
    busy.meanwhile = lambda: book.used(replace(ADA, grant_id=f"grant-{busy.writes}"), NOW)
    ended(book)
    with trio.fail_after(60):
        await write_down(book, busy, log, most_rows=MOST)
    assert (busy.writes, await count(store)) == (1, 1)


async def test_what_may_have_been_written_and_cannot_be_looked_for_in_time_holds_up_nothing(
    store: InlineStore,
) -> None:
    out, book = StringIO(), CallBook()
    log = make_logger(level="info", style="json", stream=out)
    doubtful: Any = Full(store, StoreBroken("written or not"))
    ended(book)
    await write_down(book, doubtful, log, most_rows=MOST)
    ended(book)
    doubtful.problem = JobTooSlow("took too long")
    await write_down(book, doubtful, log, most_rows=MOST)  # both: the newer one is tried again
    assert (book.missed, out.getvalue().count("calls.given_up")) == (1, 1)
    doubtful.problem = None
    await write_down(book, doubtful, log, most_rows=MOST)
    assert (await count(store), book.missed) == (1, 1)


async def test_what_the_store_can_never_take_is_counted_as_missed_and_what_comes_after_is_written(
    store: InlineStore,
) -> None:
    out, book = StringIO(), CallBook()
    log = make_logger(level="info", style="json", stream=out)
    refusing: Any = Full(store, StatementFailed("the database refused a value"))
    for _ in range(2):
        ended(book)
    await write_down(book, refusing, log, most_rows=MOST)
    assert (book.missed, book.take()) == (2, None)
    assert "calls.given_up" in out.getvalue() and "the database refused a value" in out.getvalue()
    refusing.problem = None
    ended(book)
    await write_down(book, refusing, log, most_rows=MOST)
    assert (await count(store), book.missed) == (1, 2)


@pytest.mark.parametrize("written", [True, False])
async def test_what_may_have_been_written_is_written_once(store: InlineStore, written: bool) -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    doubtful: Any = Full(store, StoreBroken("written or not"), written=written)
    ended(book)
    await write_down(book, doubtful, log, most_rows=MOST)
    ended(book)
    doubtful.problem, doubtful.written = DiskFull("the disk is full"), False
    await write_down(book, doubtful, log, most_rows=MOST)
    assert await count(store) == written
    doubtful.problem = None
    await write_down(book, doubtful, log, most_rows=MOST)
    assert await count(store) == 2
    assert await store.read(lambda db: db.fetch_one("SELECT count(*) AS n FROM calls")) == {"n": 2}


async def test_who_is_cancelled_before_anything_is_handed_in_loses_nothing(store: InlineStore) -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    ended(book)
    with trio.CancelScope() as scope:
        scope.cancel()
        await write_down(book, store, log, most_rows=MOST)
    await write_down(book, store, log, most_rows=MOST)
    assert await count(store) == 1
