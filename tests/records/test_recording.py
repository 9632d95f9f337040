"""Writing calls down (server/records/recording.py): soon, at the end, and when the store takes nothing."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import trio
import trio.testing
from records_fakes import NOW, call

from server.observe.logs import make_logger
from server.records.call_book import CallBook
from server.records.recording import keep_recording, write_down
from server.store.inline import open_inline_store
from server.store.jobs import DiskFull, Store, StoreDb

MOST = 1_000_000


class Full:
    """A store that takes nothing, until it does."""

    def __init__(self, store: Store) -> None:
        self.full = True
        self._store = store

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        if self.full:
            raise DiskFull("the disk is full")
        return await self._store.write(job)


def ended(book: CallBook) -> None:
    """As perform.py has it."""
    book.waiting.append(call())
    if len(book.waiting) == 1:
        book.wake()


async def count(store: Store) -> int:
    row = await store.read(lambda db: db.fetch_one("SELECT coalesce(sum(count), 0) AS n FROM call_hours"))
    assert row is not None
    return row["n"]


async def test_calls_are_written_a_second_after_the_first_of_them_and_nothing_is_done_without_one() -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    slept, go_on = list[float](), trio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await go_on.wait()

    async with open_inline_store(clock=lambda: NOW) as store:
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


async def test_what_is_left_at_the_end_is_written() -> None:
    book, log = CallBook(), make_logger(level="info", style="json", stream=StringIO())
    async with open_inline_store(clock=lambda: NOW) as store:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: keep_recording(book, store, log, most_rows=MOST))
                await trio.testing.wait_all_tasks_blocked()
                ended(book)
                nursery.cancel_scope.cancel()
        assert await count(store) == 1


async def test_a_store_that_takes_nothing_is_told_of_once_and_loses_no_count() -> None:
    out, book = StringIO(), CallBook()
    log = make_logger(level="info", style="json", stream=out)
    async with open_inline_store(clock=lambda: NOW) as store:
        full: Any = Full(store)
        for _ in range(3):
            ended(book)
            await write_down(book, full, log, most_rows=MOST)
        assert await count(store) == 0
        assert out.getvalue().count("calls.not_recorded") == 1
        full.full = False
        await write_down(book, full, log, most_rows=MOST)
        assert await count(store) == 3
        full.full = True
        ended(book)
        await write_down(book, full, log, most_rows=MOST)
        assert out.getvalue().count("calls.not_recorded") == 2
