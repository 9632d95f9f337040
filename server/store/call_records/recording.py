"""Writing calls down, a second after the first of them: what no call waits for. What is gathered is call_book.py's, the rows are
call_rows.py's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from server.lib.log.logger import Logger
from server.store.call_records import call_rows
from server.store.call_records.call_book import CallBook
from server.store.jobs import JobTooSlow, Store, StoreBroken, StoreError, StoreUnavailable

EVERY_SECONDS: Final = 1.0
# Calls that are counted in one go: half a millisecond, in which nobody else runs.
PIECE: Final = 500
# At the end there is little to write, and nobody should wait for it.
LAST_SECONDS: Final = 2.0


async def keep_recording(
    book: CallBook,
    store: Store,
    log: Logger,
    *,
    most_rows: int,
    sleep: Callable[[float], Awaitable[None]] = trio.sleep,
) -> None:
    """Until it is cancelled; then what is left is written."""
    write = partial(write_down, book, store, log, most_rows=most_rows)
    try:
        while True:
            await book.wait()
            await sleep(EVERY_SECONDS)
            await write()
    finally:
        with trio.move_on_after(LAST_SECONDS, shield=True):
            await write()


async def write_down(book: CallBook, store: Store, log: Logger, *, most_rows: int) -> None:
    """All that there is, now. What the store does not take stays for the next time."""
    while book.count(PIECE):
        await trio.lowlevel.checkpoint()
    more = True
    while more and (batch := book.take()) is not None:
        more = batch.in_doubt  # behind it is what was counted
        try:
            await store.write(partial(call_rows.write, batch=batch, most_rows=most_rows))
        except trio.Cancelled:  # then nothing was handed in
            book.put_back(batch)
            raise
        except StoreError as problem:
            if not isinstance(problem, StoreUnavailable) and (more or not isinstance(problem, JobTooSlow)):
                book.give_up(batch)  # nor would it be taken, or found, the next time
                log.error("calls.given_up", reason=str(problem), calls=batch.count)
                continue
            book.put_back(batch, in_doubt=isinstance(problem, StoreBroken))
            if not book.held_up:  # once, however often it is tried
                log.warning("calls.not_recorded", reason=str(problem))
            book.held_up = True
            return
        else:
            book.held_up = False
