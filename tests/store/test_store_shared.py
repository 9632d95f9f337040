"""Two processes that write to one PostgreSQL database, each in its turn: one trail, one order, and nobody who holds the other up.

Each has a store of its own here; only what they do to the database tells them apart from two programs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import trio
from msgspec.structs import replace
from psycopg.conninfo import make_conninfo
from store_engines import NOW

from auth.values.database import AuditEntry
from server.cluster.postgres import postgres_connection
from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_connection import POSTGRES, PostgresAccess, PostgresConnection
from server.store import keyfile, meta_rows
from server.store.audit_chain import AuditChain
from server.store.chains import Break
from server.store.jobs import CannotOpen, Position, StoreBusy, StoreDb, StoreUnreachable
from server.store.ledger_chain import LedgerChain
from server.store.migrate import Migration, packaged_migrations
from server.store.threaded_store import ThreadedStore
from server.store.transactions import PendingJob, Transactions
from tests.postgres_server import PostgresServer

KEY, LEDGER_KEY = b"of the trail", b"of the ledger"
TABLES = {"audit": ("audit_chain", "trail"), "movements": ("ledger_chain", "ledger")}


@asynccontextmanager
async def node(
    parameters: Mapping[str, str], heads: Sequence[Position] = ()
) -> AsyncGenerator[ThreadedStore]:
    async with open_postgres_store(parameters, clock=lambda: NOW) as store:
        store.chain_audit(KEY, heads)
        store.chain_ledger(LEDGER_KEY)
        await store.write(partial(keyfile.bind_key, fingerprint="of the key"))
        yield store


def entry(name: str, number: int) -> AuditEntry:
    return AuditEntry(NOW, "test.done", f"user:{name}", None, None, None, None, "ok", f"row {number}")


def both(db: StoreDb, name: str, number: int) -> int:
    """A row in each chain."""
    db.audit(entry(name, number))
    return db.post(
        (NOW, "charge", "wallet:user:u", "revenue:s/t", number + 1, "USD", "user:u:", None, None, "s", "t", None, None, None, "v1", None, "")
    )  # fmt: skip


def change(db: StoreDb, name: str) -> None:
    db.changed("grant", name)
    db.audit(entry(name, 0))


async def alarms(store: ThreadedStore) -> list[str]:
    sql = "SELECT reason FROM audit WHERE event IN ('audit.altered', 'ledger.altered') ORDER BY seq"
    return [row["reason"] for row in await store.read(lambda db: db.fetch_all(sql))]


async def broken(store: ThreadedStore, table: str = "audit") -> Break | None:
    chain = AuditChain(KEY) if table == "audit" else LedgerChain(LEDGER_KEY)
    return (await store.read(partial(chain.walk, at=None, at_most=5_000))).broken


async def rows(store: ThreadedStore, sql: str) -> list[Mapping[str, Any]]:
    return await store.read(lambda db: db.fetch_all(sql))


@contextmanager
def attacker(parameters: Mapping[str, str]) -> Generator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(make_conninfo("", **parameters), autocommit=True)) as connection:
        yield connection


async def test_what_two_write_at_once_is_one_trail_one_ledger_and_one_order_of_changes(
    postgres_database: dict[str, str],
) -> None:
    async with node(postgres_database) as a, node(postgres_database) as b:
        async with trio.open_nursery() as nursery:
            for number in range(1, 151):
                for name, store in (("a", a), ("b", b)):
                    nursery.start_soon(store.write, partial(both, name=name, number=number))
                    nursery.start_soon(store.write, partial(change, name=name))
        assert (await broken(a), await broken(b, "movements")) == (None, None)
        assert await alarms(a) == []
        assert [
            dict(row) for row in await rows(a, "SELECT count(*) AS n, max(seq) AS last FROM movements")
        ] == [{"n": 300, "last": 300}]
        authors = await rows(b, "SELECT actor, count(*) AS n FROM audit GROUP BY actor ORDER BY actor")
        assert [row["n"] for row in authors if row["actor"].startswith("user:")] == [300, 300]
        # In the order of the commits: each batch's are together with its audit rows.
        said = await rows(a, "SELECT entity_id FROM changes ORDER BY seq")
        told = await rows(a, "SELECT actor FROM audit WHERE reason = 'row 0' ORDER BY seq")
        assert [row["entity_id"] for row in said if len(row["entity_id"]) == 1] == [
            row["actor"].removeprefix("user:") for row in told if len(row["actor"]) == 6
        ]
        assert a.report().refused == b.report().refused == {}


def put_back(
    connection: psycopg.Connection[Any], table: str, older: Mapping[str, Any], from_row: int
) -> None:
    connection.execute(f"DELETE FROM {table} WHERE seq > {from_row}".encode())
    connection.execute(b"UPDATE meta SET value = %s WHERE key = %s", (older[table], TABLES[table][0]))


def cut_off(connection: psycopg.Connection[Any], table: str, older: Mapping[str, Any], from_row: int) -> None:
    del older, from_row
    connection.execute(f"DELETE FROM {table} WHERE seq = (SELECT max(seq) FROM {table})".encode())


def insert(connection: psycopg.Connection[Any], table: str, older: Mapping[str, Any], from_row: int) -> None:
    del older, from_row
    found = connection.execute(f"SELECT * FROM {table} ORDER BY seq DESC LIMIT 1".encode())
    columns = [column.name for column in found.description or ()]
    row = dict(zip(columns, found.fetchone() or (), strict=True))
    row["seq"] += 1
    marks = ", ".join(["%s"] * len(row))
    connection.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})".encode(), list(row.values())
    )


def forge(connection: psycopg.Connection[Any], table: str, older: Mapping[str, Any], from_row: int) -> None:
    """One row less, and a record that says so, under a seal that is not its own."""
    del older
    cut_off(connection, table, {}, from_row)
    connection.execute(
        b"UPDATE meta SET value = replace(value, ':4:', ':3:') WHERE key = %s", (TABLES[table][0],)
    )


def take_record(
    connection: psycopg.Connection[Any], table: str, older: Mapping[str, Any], from_row: int
) -> None:
    del older, from_row
    connection.execute(b"DELETE FROM meta WHERE key = %s", (TABLES[table][0],))


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize("table", ["audit", "movements"])
@pytest.mark.parametrize("tampering", [put_back, cut_off, insert, forge, take_record])
async def test_whoever_writes_next_notices_what_was_done_between_two_turns(
    postgres_database: dict[str, str], tampering: Callable[..., None], table: str, first: str
) -> None:
    """`a` has written last, and `b` before it: both know better than the older state that is put back."""
    async with node(postgres_database) as a, node(postgres_database) as b:
        for number in (1, 2):
            await a.write(partial(both, name="a", number=number))
        names = {name: record for name, (record, _) in TABLES.items()}
        older = {name: await a.read(partial(meta_rows.get, key=record)) for name, record in names.items()}
        (was,) = await rows(a, f"SELECT max(seq) AS seq FROM {table}")
        await b.write(partial(both, name="b", number=3))
        await a.write(partial(both, name="a", number=4))
        assert await alarms(a) == []
        with attacker(postgres_database) as connection:
            tampering(connection, table, older, was["seq"])
        one, other = (a, b) if first == "a" else (b, a)
        await one.write(partial(both, name=first, number=5))
        found = await alarms(one)
        assert any(TABLES[table][1] in reason for reason in found), found
        assert await broken(one, table) is not None
        # It goes on, and the alarm stays; the other one has nothing new to say in the end.
        await other.write(partial(both, name="c", number=6))
        settled = len(await alarms(a))
        for _ in range(2):
            await a.write(partial(both, name="a", number=7))
            await b.write(partial(both, name="b", number=8))
        assert len(await alarms(a)) == settled
        assert await broken(other, table) is not None


async def test_an_older_state_is_noticed_by_who_knew_better_also_when_others_wrote_on_top_of_it(
    postgres_database: dict[str, str],
) -> None:
    """`b` is new and knows nothing: what it adds makes the chain as long as it was, with other rows."""
    async with node(postgres_database) as a:
        await a.write(partial(both, name="a", number=1))
        older = await a.read(partial(meta_rows.get, key=meta_rows.AUDIT_CHAIN))
        (was,) = await rows(a, "SELECT max(seq) AS seq FROM audit")
        await a.write(partial(both, name="a", number=2))
        with attacker(postgres_database) as connection:
            put_back(connection, "audit", {"audit": older}, was["seq"])
        async with node(postgres_database) as b:
            for number in range(3, 6):
                await b.write(partial(both, name="b", number=number))
            assert await alarms(b) == []
            await a.write(partial(both, name="a", number=6))
            assert "was written once, and is not in this trail" in (await alarms(a))[0]
            # For ever: also for who did not know.
            await b.write(partial(both, name="b", number=7))
            assert (await broken(b)) == Break(seq=(await rows(a, "SELECT seq FROM audit WHERE event = 'audit.altered'"))[0]["seq"], what="record altered")  # fmt: skip


async def test_what_was_noticed_cannot_be_made_unnoticed_with_the_record_of_before(
    postgres_database: dict[str, str],
) -> None:
    async with node(postgres_database) as a, node(postgres_database) as b:
        await a.write(partial(both, name="a", number=1))
        with attacker(postgres_database) as connection:
            take_record(connection, "audit", {}, 0)
            await b.write(partial(both, name="b", number=2))
            await a.write(partial(both, name="a", number=3))
            noticed = await a.read(partial(meta_rows.get, key=meta_rows.AUDIT_CHAIN))
            assert noticed is not None
            said = len(await alarms(a))
            assert said >= 1
            # What `b` made of it after that is sealed and of an age with it, but as if nothing had been noticed.
            forgotten = AuditChain(KEY)
            record = forgotten.opened(noticed)
            assert record is not None
            assert record.noticed
            unnoticed = forgotten.sealed(replace(record, noticed=0))
            connection.execute(b"UPDATE meta SET value = %s WHERE key = 'audit_chain'", (unnoticed,))
        await a.write(partial(both, name="a", number=4))
        assert len(await alarms(a)) == said + 1
        assert await broken(b) is not None


async def test_what_the_other_one_swept_is_no_alarm(postgres_database: dict[str, str]) -> None:
    stranger = AuditEntry(NOW, "token.refused", "anonymous", None, None, None, None, "refused", "")
    async with node(postgres_database) as a, node(postgres_database) as b:
        for _ in range(3):
            await a.write(lambda db: db.audit(stranger))
        # The last row that `a` knows of is swept out of the middle, and then all of it from the beginning.
        await b.write(partial(both, name="b", number=1))
        assert await b.write(lambda db: db.sweep_refusals(before=NOW, at_most=2)) == 2
        assert await b.write(lambda db: db.sweep_refusals(before=NOW, at_most=5)) == 1
        await a.write(partial(both, name="a", number=2))
        await b.write(lambda db: [db.audit(stranger), db.audit(stranger)])
        await a.write(lambda db: db.audit(stranger))
        await b.write(partial(both, name="b", number=3))
        assert await b.write(lambda db: db.sweep_refusals(before=NOW, at_most=5)) == 3
        await a.write(partial(both, name="a", number=4))
        assert await b.write(lambda db: db.sweep_audit(before=NOW, at_most=50)) > 0
        await a.write(partial(both, name="a", number=5))
        assert await alarms(a) == []
        assert await broken(a) is None


def wait_for_end_of(connection: psycopg.Connection[Any], pid: int) -> None:
    """Until the server has ended that connection, however long it takes."""
    while connection.execute(b"SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone():
        pass


async def test_whoever_holds_the_turn_and_falls_silent_loses_it_and_does_its_work_again(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_SILENT_WRITER_MILLIS", 200)
    runs: list[int] = []

    def silent(db: StoreDb) -> str:
        db.execute("INSERT INTO meta (key, value) VALUES ('silent', 'x')")
        row = db.fetch_one("SELECT pg_backend_pid() AS pid")
        assert row is not None
        runs.append(row["pid"])
        if len(runs) == 1:
            with attacker(postgres_database) as looking:
                wait_for_end_of(looking, row["pid"])
        db.execute("INSERT INTO meta (key, value) VALUES ('spoke again', 'x')")
        return "done"

    async with node(postgres_database) as a, node(postgres_database) as b:
        done: list[str] = []

        async def slow() -> None:
            done.append(await a.write(silent))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow)
            while not runs:
                await trio.lowlevel.checkpoint()
            await b.write(partial(both, name="b", number=1))
        assert (done, len(runs)) == (["done"], 2)
        kept = {row["key"] for row in await rows(b, "SELECT key FROM meta")}
        assert {"silent", "spoke again"} <= kept
        assert a.report().refused == b.report().refused == {}


def test_a_turn_that_was_lost_before_the_commit_is_not_in_doubt(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_SILENT_WRITER_MILLIS", 200)
    access = PostgresAccess(parameters=postgres_database, job_seconds=10)
    transactions = Transactions(PostgresConnection(access, writes=True), job_seconds=10, engine=POSTGRES)
    pids: list[int] = []

    def job(db: StoreDb) -> int:
        row = db.fetch_one("SELECT pg_backend_pid() AS pid")
        assert row is not None
        pids.append(row["pid"])
        return db.execute("INSERT INTO meta (key, value) VALUES ('once', 'x')")

    def works(work: PendingJob[int]) -> Iterator[PendingJob[int]]:
        yield work
        with attacker(postgres_database) as looking:
            wait_for_end_of(looking, pids[0])

    with closing(transactions):
        work = PendingJob(job)
        transactions.run_batch(works(work), at=NOW)
        assert (work.result(), len(pids)) == (1, 2)


async def test_a_write_that_does_not_get_its_turn_is_refused_with_words_and_counted(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_LOCK_MILLIS", 100)
    async with node(postgres_database) as a:
        with attacker(postgres_database) as holder:
            holder.execute(b"BEGIN")
            holder.execute(b"LOCK TABLE writers_turn IN EXCLUSIVE MODE")
            with pytest.raises(StoreBusy, match="not this one's turn"):
                await a.write(partial(both, name="a", number=1))
            assert await rows(a, "SELECT * FROM movements") == []  # who reads waits for nobody
            holder.execute(b"ROLLBACK")
        assert await a.write(partial(both, name="a", number=2)) == 1
        assert a.report().refused == {"busy": 1}


NEXT = Migration(version=len(packaged_migrations()) + 1, name="later", sql="CREATE TABLE later (a INTEGER);")


async def test_two_that_start_on_a_bare_database_bring_it_up_once(postgres_server: PostgresServer) -> None:
    with postgres_server.bare_database() as parameters:
        opened: list[int] = []

        async def start() -> None:
            async with open_postgres_store(dict(parameters), clock=lambda: NOW) as store:
                (found,) = await rows(store, "SELECT count(*) AS n FROM schema_version")
                opened.append(found["n"])

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(start)
        assert opened == [len(packaged_migrations())] * 3


async def test_whoever_starts_waits_for_another_who_brings_the_schema_up_but_not_for_ever(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    with attacker(postgres_database) as alone:
        alone.execute(postgres_connection.ALONE)
        monkeypatch.setattr(postgres_connection, "time", SimpleNamespace(sleep=looked.append))
        with pytest.raises(CannotOpen, match="in use by another process"):
            async with open_postgres_store(postgres_database, clock=lambda: NOW):
                pass
        assert round(sum(looked)) == 15

        def pause(seconds: float) -> None:
            looked.append(seconds)
            if len(looked) == 50:
                alone.execute(postgres_connection.NOT_ALONE)

        looked.clear()
        monkeypatch.setattr(postgres_connection, "time", SimpleNamespace(sleep=pause))
        async with open_postgres_store(postgres_database, clock=lambda: NOW):
            assert len(looked) == 50, "longer than for one who was killed"


async def test_the_schema_is_not_changed_while_others_use_it_and_nobody_goes_on_with_another_one(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_SCHEMA_SECONDS", 0.1)
    newer = (*packaged_migrations(), NEXT)
    with postgres_server.bare_database() as parameters:
        async with open_postgres_store(dict(parameters), clock=lambda: NOW) as old:
            with pytest.raises(CannotOpen, match="an older schema"):
                async with open_postgres_store(dict(parameters), clock=lambda: NOW, migrations=newer):
                    pass
            await old.write(lambda db: db.execute("INSERT INTO meta (key, value) VALUES ('a', 'x')"))
            # It loses its connection; before it has another, the newer one is there.
            row = await old.write(lambda db: db.fetch_one("SELECT pg_backend_pid() AS pid"))
            assert row is not None
            with attacker(parameters) as connection:
                connection.execute(b"SELECT pg_terminate_backend(%s)", (row["pid"],))
                wait_for_end_of(connection, row["pid"])
            async with open_postgres_store(dict(parameters), clock=lambda: NOW, migrations=newer):
                pass
            for _ in range(3):  # also between two tries, whatever asks
                with pytest.raises(StoreUnreachable, match="changed by another version") as refused:
                    await old.write(lambda db: db.execute("INSERT INTO meta (key, value) VALUES ('b', 'x')"))
                assert "start this process anew" in (refused.value.hint or "")
            with attacker(parameters) as connection:
                connection.execute(
                    b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    b" WHERE datname = current_database() AND application_name LIKE 'ostiary %'"
                )
            with trio.fail_after(10):
                while "changed by another version" not in await why_nothing_is_read(old):
                    await trio.sleep(0.01)
            assert "changed by another version" in old.report().problem


async def why_nothing_is_read(store: ThreadedStore) -> str:
    try:
        await rows(store, "SELECT 1 AS one")
    except StoreUnreachable as problem:
        return str(problem)
    return ""


async def test_versions_that_were_alone_and_these_keep_each_other_out(
    postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "_PREDECESSOR_MILLIS", 50)
    lock = b"SELECT pg_try_advisory_lock(%s)"
    with attacker(postgres_database) as older:
        assert older.execute(lock, (postgres_connection.WRITER_LOCK,)).fetchone() == (True,)
        with pytest.raises(CannotOpen, match="in use by another process"):
            async with open_postgres_store(postgres_database, clock=lambda: NOW):
                pass
        older.execute(b"SELECT pg_advisory_unlock(%s)", (postgres_connection.WRITER_LOCK,))
        async with open_postgres_store(postgres_database, clock=lambda: NOW):
            assert older.execute(lock, (postgres_connection.WRITER_LOCK,)).fetchone() == (False,)
