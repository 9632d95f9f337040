"""While a database cannot be reached: who tries, who is refused at once, and who hears that it is back (server/cluster/postgres/postgres_wire.py)."""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import trio
from store_engines import NOW, put

from server.cluster.postgres import postgres_connection, postgres_wire
from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_errors import PostgresRefused
from server.cluster.postgres.postgres_transaction import BEGIN_READ
from server.cluster.postgres.postgres_wire import Outage, connected
from server.store.jobs import CannotOpen, StoreDb, StoreUnreachable
from server.store.threaded_store import StoreLimits
from tests.postgres_server import PostgresServer


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_the_pauses_grow_to_five_seconds_and_only_one_tries_after_each() -> None:
    """While others may end what is believed here they stay short."""
    clock = Clock()
    outage = Outage(clock=clock)
    assert [outage.begin_try(), outage.begin_try(), outage.refuses] == [True, True, False]
    for _ in range(2):  # the second time as the first
        began, longest = clock.now, {True: 0.0, False: 0.0}
        for _ in range(60):
            outage.failed()
            assert (outage.refuses, outage.begin_try()) == (True, False)
            before = clock.now
            while outage.refuses:
                clock.now += 0.01
            eager = before < began + 6
            longest[eager] = max(longest[eager], clock.now - before)
            assert (outage.begin_try(), outage.begin_try(), outage.refuses) == (True, False, True)
        assert 0.15 <= longest[True] <= 0.32
        assert 2.5 <= longest[False] <= 5.1
        outage.succeeded()
        assert (outage.refuses, outage.begin_try(), outage.begin_try()) == (False, True, True)


def test_tries_that_hang_for_ever_are_not_made_more_and_more() -> None:
    outage = Outage()
    go = threading.Event()
    hanging = [threading.Thread(target=go.wait, daemon=True) for _ in range(4)]
    for thread in hanging:
        assert outage.begin_try()
        thread.start()
        outage.note_hanging(thread)
    assert not outage.begin_try()
    go.set()
    for thread in hanging:
        thread.join(60)
    assert outage.begin_try()


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(postgres_wire, "_LONGEST_CONNECT_SECONDS", 0.1)
    monkeypatch.setattr("socket.getaddrinfo", lambda *what, **how: go.wait(60) and [])
    try:
        with pytest.raises(CannotOpen, match="name server"):
            connected({"host": "db.example.test", "dbname": "x"}, context=None, outage=Outage())
    finally:
        go.set()


def test_what_one_connection_finds_out_all_others_know(
    postgres_server: PostgresServer, postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    access = PostgresAccess(parameters=postgres_database, job_seconds=10, outage=Outage(clock=clock))
    tries: list[object] = []

    def counted(parameters: Any, **how: Any) -> Any:
        tries.append(parameters)
        return connected(parameters, **how)

    def reads(connection: PostgresConnection) -> bool:
        try:
            connection.execute(BEGIN_READ)
            connection.execute("SELECT 1")
        except PostgresRefused as trouble:
            return trouble.kind is not StoreUnreachable
        connection.execute("ROLLBACK")
        return True

    with (
        closing(PostgresConnection(access, writes=False)) as one,
        closing(PostgresConnection(access, writes=False)) as other,
    ):
        monkeypatch.setattr(postgres_connection, "connected", counted)
        postgres_server.stop(how="immediate")
        try:
            assert (reads(one), reads(other), reads(one)) == (False, False, False)
            assert len(tries) == 1
        finally:
            postgres_server.start()
        assert (reads(one), reads(other), len(tries)) == (False, False, 1)
        clock.now += 10
        assert (reads(one), reads(other), len(tries)) == (True, True, 3)


def look(db: StoreDb) -> object:
    return db.fetch_one("SELECT 1 AS one")


async def test_while_one_tries_to_connect_nobody_else_waits_for_it(
    postgres_server: PostgresServer, postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_wire, "_FIRST_PAUSE_SECONDS", 1e-9)
    trying, go = threading.Event(), threading.Event()

    def in_vain(*what: object, **how: object) -> Any:
        raise CannotOpen("nobody is there")

    def at_length(*what: object, **how: object) -> Any:
        trying.set()
        go.wait(60)
        raise CannotOpen("nobody is there")

    limits = StoreLimits(readers=1)
    async with open_postgres_store(postgres_database, clock=lambda: NOW, limits=limits) as store:
        monkeypatch.setattr(postgres_connection, "connected", in_vain)
        postgres_server.said(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{postgres_database['dbname']}'"
        )
        for _ in range(2):
            with pytest.raises(StoreUnreachable):
                await store.write(partial(put, key="a"))
            with pytest.raises(StoreUnreachable):
                await store.read(look)
        monkeypatch.setattr(postgres_connection, "connected", at_length)

        async def waits() -> None:
            with pytest.raises(StoreUnreachable, match=r"nobody is there|cannot be reached"):
                await store.write(partial(put, key="b"))

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waits)
                await trio.to_thread.run_sync(trying.wait, 60)
                for _ in range(3):
                    with pytest.raises(StoreUnreachable, match="cannot be reached"):
                        await store.write(partial(put, key="c"))
                    with pytest.raises(StoreUnreachable, match="cannot be reached"):
                        await store.read(look)
                go.set()
        monkeypatch.setattr(postgres_connection, "connected", connected)
        # Those that were refused at once are counted as well.
        assert store.report().refused == {"unreachable": 6}
        with trio.fail_after(120):
            while True:
                try:
                    await store.write(partial(put, key="d"))
                except StoreUnreachable:
                    await trio.sleep(0.05)  # the pause between two tries is by the real clock
                else:
                    return
