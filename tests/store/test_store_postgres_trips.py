"""What goes to PostgreSQL together with something else, and is found out late (server/cluster/postgres/postgres_transaction.py)."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from store_engines import NOW

from auth.values.database import AuditEntry
from server.cluster.postgres import postgres_trips
from server.cluster.postgres.postgres import open_postgres_store
from server.store import meta_rows
from server.store.audit_chain import AuditChain
from server.store.jobs import Collided, ConstraintFailed, StoreBroken, StoreDb
from server.store.threaded_store import StoreLimits, ThreadedStore
from tests.postgres_server import PostgresServer

KEY = b"k" * 32
# The first who puts in such a row is cut off, as by a restart, while the server is at it.
CUT_OFF_ONCE = """
CREATE SEQUENCE rows_put_in;
CREATE FUNCTION cut_off_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('rows_put_in') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(9); END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER cut_off AFTER INSERT ON meta FOR EACH ROW WHEN (NEW.key = 'cut off') EXECUTE FUNCTION cut_off_once();
"""
AS_BEFORE = "DROP FUNCTION cut_off_once CASCADE; DROP SEQUENCE rows_put_in"
PATIENCE_SECONDS = 60
TOGETHER = StoreLimits(batch_seconds=PATIENCE_SECONDS, longest_batch_seconds=PATIENCE_SECONDS)


@pytest.fixture
async def store(postgres_database: dict[str, str]) -> AsyncGenerator[ThreadedStore]:
    async with open_postgres_store(postgres_database, clock=lambda: NOW, limits=TOGETHER) as store:
        store.chain_audit(KEY)
        await store.write(partial(write, event="test.first"))
        yield store


def write(db: StoreDb, event: str) -> str:
    db.audit(AuditEntry(NOW, event, "user:u", None, None, None, None, "ok", ""))
    return event


def clash(db: StoreDb) -> None:
    """The row that it audits is there already, by its own doing."""
    db.begin_audit()
    row = db.fetch_one("SELECT max(seq) AS seq FROM audit")
    assert row is not None
    db.execute(
        "INSERT INTO audit (seq, at, event, actor, outcome, reason, mac) VALUES (?, ?, 'x', 'x', 'ok', '', 'x')",
        row["seq"] + 1, NOW,
    )  # fmt: skip
    write(db, "test.clashed")


def events(db: StoreDb) -> list[str]:
    return [row["event"] for row in db.fetch_all("SELECT event FROM audit ORDER BY seq")]


async def together(store: ThreadedStore, *jobs: Any) -> list[Any]:
    """What became of these, which are there when the one before them is done."""
    entered, go = threading.Event(), threading.Event()
    became: list[Any] = [None] * len(jobs)

    def gate(db: StoreDb) -> None:
        db.fetch_one("SELECT 1 AS one")
        entered.set()
        assert go.wait(PATIENCE_SECONDS)

    async def run(number: int) -> None:
        try:
            became[number] = await store.write(jobs[number])
        except Exception as error:
            became[number] = error

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.write, gate)
            await trio.to_thread.run_sync(entered.wait, PATIENCE_SECONDS)
            for number in range(len(jobs)):
                nursery.start_soon(run, number)
                await trio.testing.wait_all_tasks_blocked()  # so that they come in this order
            go.set()
    return became


async def is_whole(store: ThreadedStore) -> bool:
    piece = await store.read(lambda db: AuditChain(KEY).walk(db, None, at_most=100))
    return piece.broken is None


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_row_that_cannot_be_put_in_is_the_failure_of_its_own_job_and_of_no_neighbours(
    store: ThreadedStore, place: int
) -> None:
    jobs: list[Any] = [partial(write, event="test.a"), partial(write, event="test.b")]
    jobs.insert(place, clash)
    became = await together(store, *jobs)
    assert isinstance(became.pop(place), ConstraintFailed)
    assert became == ["test.a", "test.b"]
    assert await store.read(events) == ["test.first", "test.a", "test.b"]
    assert await is_whole(store)


async def test_a_row_that_cannot_be_put_in_is_its_jobs_failure_also_where_it_is_alone(
    store: ThreadedStore,
) -> None:
    with pytest.raises(ConstraintFailed):
        await store.write(clash)

    def goes_on(db: StoreDb) -> None:
        clash(db)
        db.fetch_one("SELECT 1 AS one")

    with pytest.raises(ConstraintFailed):
        await store.write(goes_on)
    assert await store.read(events) == ["test.first"]


async def test_a_record_that_somebody_else_wrote_meanwhile_loses_the_transaction_before_its_commit(
    store: ThreadedStore,
) -> None:
    def moved(db: StoreDb) -> None:
        write(db, "test.moved")
        assert db.execute("UPDATE meta SET value = 'x' WHERE key = ?", meta_rows.AUDIT_CHAIN) == 1

    with pytest.raises(Collided):
        await store.write(moved)
    became = await together(store, partial(write, event="test.a"), moved, partial(write, event="test.b"))
    assert isinstance(became.pop(1), Collided)
    assert became == ["test.a", "test.b"]
    assert await store.read(events) == ["test.first", "test.a", "test.b"]
    assert await is_whole(store)


@pytest.fixture
def cut_off_once(
    postgres_server: PostgresServer, postgres_database: dict[str, str]
) -> Generator[Callable[[StoreDb], str]]:
    postgres_server.said_in(postgres_database["dbname"], CUT_OFF_ONCE)

    def put_in(db: StoreDb) -> str:
        db.put_in("INSERT INTO meta (key, value) VALUES ('cut off', 'x')")
        return "put in"

    yield put_in
    postgres_server.said_in(postgres_database["dbname"], AS_BEFORE)


async def test_what_the_server_ended_before_the_commit_that_it_came_with_is_done_again(
    store: ThreadedStore, cut_off_once: Callable[[StoreDb], str]
) -> None:
    neighbours = [partial(write, event="test.a"), partial(write, event="test.b")]
    became = await together(store, neighbours[0], cut_off_once, neighbours[1])
    assert became == ["test.a", "put in", "test.b"]
    assert await store.read(events) == ["test.first", "test.a", "test.b"]
    assert await is_whole(store)
    assert await store.read(partial(meta_rows.get, key="cut off")) == "x"


class Pooler:
    """Between a client and PostgreSQL. When it hears a word, it passes that on, loses its server before the answer, and says so itself: it does
    not know how far the server came."""

    SAYS = b"SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0"

    def __init__(self, folder: Path, server: Path, word: bytes) -> None:
        self._server = str(server / ".s.PGSQL.5432")
        self._word = word
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / ".s.PGSQL.5432"))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                heard = threading.Event()
                threading.Thread(target=self._forth, args=(client, server, heard), daemon=True).start()
                threading.Thread(target=self._back, args=(server, client, heard), daemon=True).start()

    def _forth(self, client: socket.socket, server: socket.socket, heard: threading.Event) -> None:
        with suppress(OSError), server:
            while piece := client.recv(65536):
                if self._word and self._word in piece:
                    self._word = b""  # once
                    heard.set()
                server.sendall(piece)

    def _back(self, server: socket.socket, client: socket.socket, heard: threading.Event) -> None:
        with suppress(OSError), client:
            while piece := server.recv(65536):
                if heard.is_set():
                    client.sendall(b"E" + (4 + len(self.SAYS)).to_bytes(4, "big") + self.SAYS)
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(piece)


async def test_what_only_a_pooler_says_of_a_commit_leaves_it_in_doubt(
    tmp_path: Path, postgres_server: PostgresServer, postgres_database: dict[str, str]
) -> None:
    def job(db: StoreDb) -> None:
        assert db.fetch_one("SELECT 1 AS one") is not None
        db.put_in("INSERT INTO meta (key, value) VALUES (?, 'x')", "lost on the way")

    with closing(Pooler(tmp_path, postgres_server.folder, b"lost on the way")):
        there = {**postgres_database, "host": str(tmp_path)}
        async with open_postgres_store(there, clock=lambda: NOW) as store:
            with pytest.raises(StoreBroken):
                await store.write(job)
            assert await store.read(partial(meta_rows.get, key="lost on the way")) == "x"


async def test_what_a_job_asked_nothing_of_is_no_transaction_that_anybody_waits_for_twice(
    store: ThreadedStore,
) -> None:
    """Nothing is asked in the first, the last fails before it asks anything."""

    def refuses(db: StoreDb) -> None:
        raise LookupError

    assert await store.write(lambda db: "nothing") == "nothing"
    became = await together(store, lambda db: "nothing", refuses, partial(write, event="test.a"), refuses)
    assert became[0] == "nothing"
    assert became[2] == "test.a"
    assert [type(each) for each in became[1::2]] == [LookupError, LookupError]
    assert await store.read(events) == ["test.first", "test.a"]


async def test_a_job_that_fails_among_others_takes_along_what_it_put_in_and_nothing_more(
    store: ThreadedStore,
) -> None:
    def gives_up(db: StoreDb, *, asks: bool) -> None:
        write(db, "test.undone")
        if asks:
            db.fetch_one("SELECT 1 AS one")
        raise LookupError

    became = await together(
        store,
        partial(write, event="test.a"),
        partial(gives_up, asks=False),
        partial(gives_up, asks=True),
        partial(write, event="test.b"),
    )
    assert [type(each) for each in became] == [str, LookupError, LookupError, str]
    assert await store.read(events) == ["test.first", "test.a", "test.b"]
    assert await is_whole(store)


async def test_what_was_foreseen_is_no_answer_once_anything_was_written(store: ThreadedStore) -> None:
    asks = "SELECT value FROM meta WHERE key = ?"

    def put(db: StoreDb, value: str) -> int:
        return db.execute(
            "INSERT INTO meta (key, value) VALUES ('a', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            value,
        )

    def job(db: StoreDb, *, number: int, fails: bool = False) -> list[Any]:
        db.foresee(asks, "a")
        before = db.fetch_one("SELECT count(*) AS n FROM changes")
        found = [db.fetch_one(asks, "a")]  # as it was foreseen
        db.foresee(asks, "a")
        assert before == db.fetch_one("SELECT count(*) AS n FROM changes")
        assert put(db, f"{number}") == 1
        found.append(db.fetch_one(asks, "a"))
        db.foresee(asks, "a")
        db.foresee("SELECT 1 AS one WHERE ? = 'x'", "y")  # and is never asked
        found += [db.fetch_one(asks, "a"), db.fetch_one(asks, "b")]
        if fails:
            raise LookupError
        return [row and row["value"] for row in found]

    became = await together(
        store,
        partial(job, number=1),
        partial(job, number=2, fails=True),
        partial(job, number=3),
    )
    assert became[0] == [None, "1", "1", None]
    assert isinstance(became[1], LookupError)
    assert became[2] == ["1", "3", "3", None]


async def test_of_more_statements_than_are_prepared_the_others_are_asked_as_they_are(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(db: StoreDb) -> list[object]:
        rows = [db.fetch_one(f"SELECT ? + {number} AS sum", 1) for number in range(5)]
        prepared = db.fetch_one("SELECT count(*) AS count FROM pg_prepared_statements")
        return [*(row and row["sum"] for row in rows), prepared and prepared["count"]]

    monkeypatch.setattr(postgres_trips, "_PREPARED", 3)
    async with open_postgres_store(postgres_database, clock=lambda: NOW) as store:
        assert await store.write(ask) == [1, 2, 3, 4, 5, 3]
