"""A database server that is there and says nothing: its processes stand still, and their connections stay open."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import AsyncExitStack, closing, contextmanager
from functools import partial

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo
from store_engines import NOW

from server.store import postgres_connection, postgres_wire
from server.store.jobs import CannotOpen, StoreDb, StoreUnreachable
from server.store.postgres import open_postgres_store
from server.store.threads import StoreLimits
from tests.postgres_server import PostgresServer, programs

PATIENCE_SECONDS = 120
LIMITS = StoreLimits(job_seconds=5)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands still is not waited for as long as it deserves."""
    monkeypatch.setattr(postgres_connection, "GRACE_SECONDS", -2)


@pytest.fixture
def own_server() -> Generator[PostgresServer]:
    """Nobody else's: all of it is to stand still."""
    found = programs()
    if found is None:
        pytest.fail("PostgreSQL is not installed: scripts/peers system")
    server = PostgresServer(found)
    try:
        server.make()
        yield server
    finally:
        server.remove()


def processes(parameters: dict[str, str]) -> list[int]:
    """Those that serve this database."""
    with closing(
        psycopg.connect(make_conninfo("", **{**parameters, "dbname": "postgres"}), autocommit=True)
    ) as asking:
        rows = asking.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s", (parameters["dbname"],)
        ).fetchall()
    return [pid for (pid,) in rows]


@contextmanager
def standing_still(pids: list[int]) -> Generator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def put(db: StoreDb, key: str) -> str:
    db.execute("INSERT INTO meta (key, value) VALUES (?, 'x')", key)
    return key


def keys(db: StoreDb) -> list[str]:
    return [row["key"] for row in db.fetch_all("SELECT key FROM meta ORDER BY key")]


@pytest.mark.usefixtures("short")
async def test_readers_leave_connections_that_say_nothing_and_writers_say_so_until_they_do(
    postgres_database: dict[str, str],
) -> None:
    async with open_postgres_store(postgres_database, clock=lambda: NOW, limits=LIMITS) as store:
        await store.write(partial(put, key="before"))
        with standing_still(processes(postgres_database)), trio.fail_after(PATIENCE_SECONDS):
            assert await store.read(keys) == ["before"]  # by a new one
            # The old one may hold whatever the new one would write.
            with pytest.raises(StoreUnreachable):
                await store.write(partial(put, key="between"))
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                try:
                    await store.write(partial(put, key="after"))
                except StoreUnreachable:
                    await trio.sleep(0.05)  # its pause between two tries is by the real clock
                else:
                    break
        assert await store.read(keys) == ["after", "before"]


@pytest.mark.usefixtures("short")
async def test_a_server_that_stands_still_altogether_holds_up_nobody_for_ever_nor_the_end(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = own_server.parameters("ostiary_template")
    with trio.fail_after(PATIENCE_SECONDS):
        await _served_by_nobody(parameters, own_server, monkeypatch)


async def _served_by_nobody(
    parameters: dict[str, str], server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as serving:
        store = await serving.enter_async_context(
            open_postgres_store(parameters, clock=lambda: NOW, limits=LIMITS)
        )
        monkeypatch.setattr(postgres_wire, "CONNECT_SECONDS", 2)
        monkeypatch.setattr(postgres_wire.WireConnection, "patience", 2)
        everything = [*processes(parameters), server.process()]
        with standing_still(everything):
            for _ in range(2):
                with pytest.raises(StoreUnreachable):
                    await store.read(keys)
                with pytest.raises(StoreUnreachable):
                    await store.write(partial(put, key="between"))
            assert store.report().refused == {"unreachable": 2}
            with pytest.raises(CannotOpen, match="cannot connect"):
                async with open_postgres_store(parameters, clock=lambda: NOW, limits=LIMITS):
                    pass
            await serving.aclose()
