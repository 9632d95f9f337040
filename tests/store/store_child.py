"""A process that writes to a store until it is killed, or until its files may grow no more. Started by test_store_crash.py.

usage: store_child.py acknowledge|full|end DATABASE PREFIX
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from server.store.jobs import DiskFull, StoreDb
from server.store.reserve_file import ReserveFile
from server.store.sqlite import open_store
from server.store.threaded_store import ThreadedStore
from tests.killed_child import say

WRITERS = 8


def put(db: StoreDb, key: str, value: str = "x") -> None:
    db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", key, value)


def count(db: StoreDb) -> int:
    row = db.fetch_one("SELECT count(*) AS n FROM meta")
    assert row is not None
    return row["n"]


async def acknowledge(store: ThreadedStore, prefix: str) -> None:
    async def writer(number: int) -> None:
        serial = 0
        while True:
            key = f"{prefix}-{number}-{serial}"
            await store.write(partial(put, key=key))
            say(key)
            serial += 1

    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(writer, number)


async def fill(store: ThreadedStore, database: Path) -> None:
    await store.write(partial(put, key="before"))
    before = await store.read(count)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log_size = database.with_name(f"{database.name}-wal").stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log_size + 16_384, hard))
    refused = 0
    for number in range(3):
        try:
            await store.write(partial(put, key=f"large-{number}", value="x" * 1_000_000))
        except DiskFull:
            refused += 1
    say(f"refused {refused}")
    say(f"reads {await store.read(count) == before}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.write(partial(put, key="after", value="x" * 1_000_000))
    say(f"written {await store.read(count) == before + 1}")


def tell(db: StoreDb, key: str) -> None:
    put(db, key)
    db.changed("grant", key)


def end(db: StoreDb, key: str) -> None:
    db.takes_away()
    put(db, key)


class LiftedLimit(ReserveFile):
    """The log may grow only while this is lent."""

    def __init__(self, path: Path, log: Path) -> None:
        super().__init__(path)
        self.log = log

    def limit(self) -> None:
        size = self.log.stat().st_size
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    @contextmanager
    def lent(self) -> Generator[None]:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        with super().lent():
            say("lent")
            yield
        self.limit()


async def end_on_full_disk(store: ThreadedStore, ballast: LiftedLimit) -> None:
    """Together, so that they share a transaction, and each for itself."""
    await store.write(partial(put, key="before"))
    before = await store.read(count)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ballast.limit()
    done: set[str] = set()

    async def attempt(job: Callable[..., None], key: str) -> None:
        try:
            await store.write(partial(job, key=key))
        except DiskFull:
            return
        done.add(key)

    for number in range(2):
        async with trio.open_nursery() as nursery:
            for job in (put, tell, end):
                nursery.start_soon(attempt, job, f"{job.__name__}-{number}")
    await attempt(end, "end-alone")
    say(f"done {' '.join(sorted(done))}")
    say(f"rows {await store.read(count) - before}")


async def main(mode: str, database: Path, prefix: str) -> None:
    ballast = LiftedLimit(database.with_name("ballast"), database.with_name(f"{database.name}-wal"))
    async with open_store(
        database, clock=lambda: 0, backups=database.parent / "backups", ballast=ballast
    ) as store:
        if mode == "acknowledge":
            await acknowledge(store, prefix)
        elif mode == "end":
            await end_on_full_disk(store, ballast)
        else:
            await fill(store, database)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], Path(sys.argv[2]), sys.argv[3])
