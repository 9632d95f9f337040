"""What is PostgreSQL's alone: its schema, its connections that are lost, and what it says (server/cluster/postgres/)."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import trio
from store_engines import NOW, keys, put

from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_connection import BEGIN_WRITE, PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_errors import PostgresRefused
from server.cluster.postgres.postgres_transaction import numbered
from server.store.jobs import (
    CannotOpen,
    Change,
    ConstraintFailed,
    ForeignDatabase,
    JobTooSlow,
    NewerSchema,
    StatementFailed,
    StoreBroken,
    StoreDb,
    StoreUnreachable,
)
from server.store.migrate import OtherSchema, migrate, packaged_migrations
from server.store.sqlite_connect import connect_writer
from server.store.threaded_store import StoreLimits, ThreadedStore
from tests.postgres_server import PostgresServer

# A transaction that wrote such a row cannot be committed: its connection ends as it tries.
ENDS_AT_COMMIT = """
CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.key LIKE 'ends%' THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(9); END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON meta DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ends();
"""


def opened(parameters: dict[str, str], **other: Any):  # noqa: ANN201  the context manager's type is long and says nothing
    return open_postgres_store(parameters, clock=lambda: NOW, **other)


@pytest.fixture
def engine() -> str:
    return "postgres"


def columns_of_postgres(db: StoreDb) -> dict[str, set[tuple[str, str, bool]]]:
    rows = db.fetch_all(
        "SELECT table_name, column_name, data_type, is_nullable, collation_name FROM information_schema.columns"
        " WHERE table_schema = 'public'"
    )
    found: dict[str, set[tuple[str, str, bool]]] = {}
    for row in rows:
        assert row["collation_name"] == ("C" if row["data_type"] == "text" else None) or row[
            "table_name"
        ] == ("schema_version")
        found.setdefault(row["table_name"], set()).add(
            (row["column_name"], row["data_type"], row["is_nullable"] == "YES")
        )
    return found


def indexes_of_postgres(db: StoreDb) -> set[str]:
    rows = db.fetch_all("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")
    return {row["indexname"] for row in rows if not row["indexname"].endswith(("_pkey", "_key"))}


async def test_both_engines_have_the_same_tables_columns_and_indexes(store: ThreadedStore) -> None:
    spelled = {
        "TEXT": "text",
        "BIGINT": "bigint",
        "INTEGER": "bigint",
        "REAL": "double precision",
        "BLOB": "bytea",
    }
    with closing(connect_writer(None)) as lite:
        migrate(lite, packaged_migrations(), now=0, backups=None)
        tables = {
            name: {
                (column[1], spelled[column[2]], not (column[3] or column[5]))
                for column in lite.execute(f"PRAGMA table_info({name})")
            }
            for (name,) in lite.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
        }
        indexes = {
            name
            for (name,) in lite.execute(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
            )
        }
    found = await store.read(columns_of_postgres)
    del found["schema_version"], tables["schema_version"]
    assert found == tables
    assert await store.read(indexes_of_postgres) == indexes


async def test_a_bare_database_is_brought_to_the_schema_once(postgres_server: PostgresServer) -> None:
    with postgres_server.bare_database() as parameters:
        for number in range(2):
            async with opened(dict(parameters)) as store:
                await store.write(partial(put, key=f"a{number}"))
        async with opened(dict(parameters)) as store:
            assert await store.read(keys) == ["a0", "a1"]
            await store.write(
                lambda db: db.execute("UPDATE schema_version SET sha256 = 'x' WHERE version = 3")
            )
        with pytest.raises(OtherSchema):
            async with opened(dict(parameters)):
                pass
        with pytest.raises(NewerSchema):
            async with opened(dict(parameters), migrations=packaged_migrations()[:2]):
                pass


async def test_a_database_of_another_program_is_left_alone(postgres_server: PostgresServer) -> None:
    with postgres_server.bare_database() as parameters:
        postgres_server.said_in(parameters["dbname"], "CREATE TABLE theirs (a int)")
        with pytest.raises(ForeignDatabase):
            async with opened(dict(parameters)):
                pass


async def test_a_connection_that_is_lost_before_the_commit_is_made_again_and_the_batch_runs_again(
    store: ThreadedStore, postgres_server: PostgresServer
) -> None:
    runs: list[str] = []

    def job(db: StoreDb) -> None:
        put(db, "late")
        runs.append("late")
        if len(runs) == 1:
            row = db.fetch_one("SELECT pg_backend_pid() AS pid")
            assert row is not None
            postgres_server.said(f"SELECT pg_terminate_backend({row['pid']})")
        put(db, "later")

    async with trio.open_nursery() as nursery:
        for work in (partial(put, key="first"), job, partial(put, key="last")):
            nursery.start_soon(store.write, work)
    assert await store.read(keys) == ["first", "last", "late", "later"]
    assert len(runs) == 2
    assert store.report().problem == ""


async def test_a_commit_that_nobody_saw_is_said_to_be_open_and_its_changes_are_told(
    store: ThreadedStore, postgres_server: PostgresServer, postgres_database: dict[str, str]
) -> None:
    postgres_server.said_in(postgres_database["dbname"], ENDS_AT_COMMIT)
    told: list[Change] = []
    store.on_changes(told.extend)

    def job(db: StoreDb) -> None:
        put(db, "ends")
        db.changed("grant", "g")

    try:
        with pytest.raises(StoreBroken, match="may or may not"):
            await store.write(job)
        assert [change.entity_id for change in told] == ["g"]
        assert await store.write(partial(put, key="next")) == "next"
        assert await store.read(keys) == ["next"]
    finally:
        postgres_server.said_in(postgres_database["dbname"], "DROP FUNCTION ends CASCADE")


async def test_without_its_server_all_is_refused_soon_and_goes_on_when_it_is_back(
    store: ThreadedStore, postgres_server: PostgresServer
) -> None:
    await store.write(partial(put, key="before"))
    postgres_server.stop(how="immediate")
    try:
        with trio.fail_after(20):
            for _ in range(3):
                with pytest.raises(StoreUnreachable):
                    await store.write(partial(put, key="lost"))
                with pytest.raises(StoreUnreachable):
                    await store.read(keys)
        assert store.report().refused == {"unreachable": 3}
        assert "cannot be reached" in store.report().problem or "cannot connect" in store.report().problem
    finally:
        postgres_server.start()
    with trio.fail_after(30):
        while True:
            try:
                await store.write(partial(put, key="after"))
            except StoreUnreachable:
                await trio.sleep(0.05)  # its pause between two tries is by the real clock
            else:
                break
        while True:
            try:
                assert await store.read(keys) == ["after", "before"]
            except StoreUnreachable:
                await trio.sleep(0.05)
            else:
                break


async def test_no_value_is_shown_by_what_it_says(store: ThreadedStore) -> None:
    await store.write(partial(put, key="hunter2"))
    with pytest.raises(ConstraintFailed) as caught:
        await store.write(partial(put, key="hunter2"))
    assert "hunter2" not in _all_of(caught.value)
    for value in ("hunter2\0", "hunter2"):
        with pytest.raises(StatementFailed) as failed:
            await store.write(
                lambda db, value=value: db.execute(
                    "DELETE FROM changes WHERE kind = ? OR at = CAST(? AS BIGINT)", value, value
                )
            )
        assert "hunter2" not in _all_of(failed.value)


def _all_of(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error, chain=True)).replace('"hunter2', "")


async def test_a_wrong_password_or_address_says_where_and_shows_no_secret(
    postgres_server: PostgresServer,
) -> None:
    for wrong in ({"host": "/nowhere"}, {"dbname": "missing"}, {"host": "127.0.0.1", "port": "1"}):
        parameters = {**postgres_server.parameters("postgres"), "password": "hunter2", **wrong}
        with pytest.raises(CannotOpen, match="cannot connect to the database") as caught:
            async with opened(parameters):
                pass
        assert "hunter2" not in _all_of(caught.value)


async def test_readers_are_as_many_as_are_asked_for(postgres_database: dict[str, str]) -> None:
    def count(db: StoreDb) -> int:
        row = db.fetch_one("SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()")
        assert row is not None
        return row["n"]

    async with opened(postgres_database, limits=StoreLimits(readers=5)) as store:
        assert await store.read(count) >= 6


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("SELECT ?, ?", "SELECT $1, $2"),
        ("SELECT '?', ? -- ?\n, ?", "SELECT '?', $1 -- ?\n, $2"),
        ("SELECT 'it''s ?' || ? /* ? */", "SELECT 'it''s ?' || $1 /* ? */"),
        ('SELECT "a?" FROM t WHERE b % ? = 0', 'SELECT "a?" FROM t WHERE b % $1 = 0'),
        ("SELECT 1", "SELECT 1"),
        ("SELECT instr(a, ?), 'instr(?' FROM reinstr(?)", "SELECT strpos(a, $1), 'instr(?' FROM reinstr($2)"),
    ],
)
def test_statements_are_put_as_postgres_has_them_and_texts_in_them_are_left_alone(
    asked: str, said: str
) -> None:
    assert numbered(asked) == said.encode()


def test_nothing_of_it_is_loaded_for_a_store_in_a_file() -> None:
    code = "import sys, server.run.app, server.cli.this_program.serve; print([name for name in sys.modules if 'psycopg' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_whoever_stood_still_until_its_connection_was_ended_has_not_been_slow(
    postgres_server: PostgresServer, postgres_database: dict[str, str]
) -> None:
    """As a machine that is moved while it works: its jobs run again, on a connection that is made anew."""
    access = PostgresAccess(parameters=postgres_database, job_seconds=10)
    with closing(PostgresConnection(access, writes=True)) as connection:
        connection.execute(BEGIN_WRITE)
        pid = connection.execute("SELECT pg_backend_pid() AS pid").fetchone()[0]
        connection.is_late = lambda: True
        with pytest.raises(PostgresRefused) as caught:
            connection.execute("SELECT 1")
        assert caught.value.kind is JobTooSlow
        postgres_server.said(f"SELECT pg_terminate_backend({pid}, 60000)")  # and waits until it is gone
        with pytest.raises(PostgresRefused) as caught:
            connection.execute("SELECT 1")
        assert caught.value.kind is StoreUnreachable
        connection.is_late = lambda: False
        connection.execute(BEGIN_WRITE)
        assert connection.execute("SELECT pg_backend_pid() AS pid").fetchone()[0] != pid
