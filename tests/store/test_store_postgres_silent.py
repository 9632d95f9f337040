"""A database server that is there and says nothing: its processes stand still, and their connections stay open."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from functools import partial

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo
from store_engines import NOW, keys, put

from server.cluster.postgres import postgres_connection, postgres_wire
from server.cluster.postgres.network_watch import IN_VAIN, NetworkWatch
from server.cluster.postgres.postgres import open_postgres_store
from server.store.jobs import CannotOpen, StoreDb, StoreUnreachable
from server.store.threaded_store import StoreLimits
from tests.postgres_server import PostgresServer, server_of_its_own

PATIENCE_SECONDS = 120
LIMITS = StoreLimits(job_seconds=5)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands still is not waited for as long as it deserves."""
    monkeypatch.setattr(postgres_connection, "GRACE_SECONDS", -2)


@pytest.fixture
def own_server() -> Generator[PostgresServer]:
    """Nobody else's: all of it is to stand still."""
    with server_of_its_own() as server:
        yield server


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


class CutRelay:
    """A way to a database over TCP. While it is cut nothing comes through, and what was open then stays as it is: as if TCP would send it anew
    in an hour."""

    def __init__(self, folder: str) -> None:
        self._target = f"{folder}/.s.PGSQL.5432"
        self._door = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port: int = self._door.getsockname()[1]
        self._carried: list[tuple[socket.socket, socket.socket]] = []
        self._stuck: list[socket.socket] = []
        self._cut = self._over = False
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        with self._turn:
            self._cut = True
        for _ in range(3):  # whoever knocks is not answered
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))
            self._stuck.append(one)

    def mend(self) -> None:
        with self._turn:
            self._stuck += [each for pair in self._carried for each in pair]
            self._carried = []
            self._cut = False

    def close(self) -> None:
        self._over = True
        self._thread.join()
        for each in (self._door, *self._stuck, *(each for pair in self._carried for each in pair)):
            each.close()

    def _carry(self) -> None:
        while not self._over:
            with self._turn:
                self._carry_once([] if self._cut else self._carried)
            time.sleep(0.005)

    def _carry_once(self, ends: list[tuple[socket.socket, socket.socket]]) -> None:
        doors = [] if self._cut else [self._door]
        ready, _, _ = select.select([*doors, *(each for pair in ends for each in pair)], [], [], 0)
        if self._door in ready:
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            self._carried = [*self._carried, (self._door.accept()[0], far)]
        for one, other in ends:
            self._pass_on(one, other, ready)
            self._pass_on(other, one, ready)

    def _pass_on(self, one: socket.socket, other: socket.socket, ready: list[socket.socket]) -> None:
        if one in ready:
            with suppress(OSError):
                said = one.recv(65_536)
                if said:
                    other.sendall(said)
                else:
                    other.shutdown(socket.SHUT_WR)
                    self._carried = [pair for pair in self._carried if one not in pair]
                    self._stuck += [one, other]


async def test_what_others_changed_is_heard_after_a_cut_though_no_old_connection_comes_to_life(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What hangs is given up at no time: whatever is heard was heard without it.
    monkeypatch.setattr(postgres_connection, "GRACE_SECONDS", 10 * PATIENCE_SECONDS)
    knocked = Counter[NetworkWatch]()
    knock = NetworkWatch._begin_knock  # pyright: ignore[reportPrivateUsage]

    def counted(watch: NetworkWatch) -> None:
        knocked[watch] += 1
        knock(watch)

    monkeypatch.setattr(NetworkWatch, "_begin_knock", counted)
    parameters = own_server.parameters("ostiary_template")
    heard: list[str] = []
    with closing(CutRelay(parameters["host"])) as relay:
        over_network = {**parameters, "host": "127.0.0.1", "port": str(relay.port)}
        async with (
            open_postgres_store(parameters, clock=lambda: NOW) as here,
            open_postgres_store(over_network, clock=lambda: NOW) as there,
        ):
            there.on_changes(lambda changes: heard.extend(each.entity_id for each in changes))
            for number in range(3):
                before, during = f"before {number}", f"during {number}"
                await here.write(partial(tell, name=before))
                with trio.fail_after(PATIENCE_SECONDS):
                    while before not in heard:
                        await trio.sleep(0.02)
                relay.cut()
                knocked.clear()
                await here.write(partial(tell, name=during))
                with trio.fail_after(PATIENCE_SECONDS):
                    while max(knocked.values(), default=0) <= IN_VAIN:  # the last of them is under way
                        await trio.sleep(0.02)
                assert during not in heard
                relay.mend()
                with trio.fail_after(PATIENCE_SECONDS):
                    while during not in heard:
                        await trio.sleep(0.02)


def tell(db: StoreDb, name: str) -> None:
    db.changed("grant", name)
