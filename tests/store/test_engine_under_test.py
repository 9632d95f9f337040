"""Databases that tests are given: a copy in memory is as migrations make it, and a run with `--store postgres` stands on PostgreSQL and says so
where it does not (postgres_plugin.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from server.store import inline
from server.store.connect import connect_writer
from server.store.migrate import Migration, migrate, packaged_migrations, schema_version
from tests.engine_under_test import migrate_by_copy, writer_in_memory

CHECKOUT = Path(__file__).parents[2]
TESTS = """
import sqlite3
import pytest
from server.store import inline
from server.store.jobs import StoreClosed
from server.store.postgres_connection import PostgresConnection
from tests.engine_under_test import PostgresOnLoan, fakes_database, place_of

def test_that_opens_sqlite():
    sqlite3.connect(":memory:").close()

def test_that_looks_away_from_what_it_is_told():
    with pytest.raises(ZeroDivisionError):
        sqlite3.connect(":memory:").close()
        1 / 0

@pytest.fixture
def at_its_end():
    yield
    sqlite3.connect(":memory:").close()

def test_whose_fixture_opens_sqlite(at_its_end):
    pass

@pytest.mark.sqlite_only("it is about SQLite")
def test_that_says_so():
    sqlite3.connect(":memory:").close()

@pytest.mark.parametrize("end", ["kept", "lost", "new"])
async def test_of_a_store(end):
    async with inline.open_inline_store(clock=lambda: 1) as store:
        assert isinstance(store._connection, PostgresConnection)
        assert await store.read(lambda db: db.fetch_one("SELECT value FROM meta WHERE key = 'a'")) is None
        await store.write(lambda db: db.execute("INSERT INTO meta VALUES ('a', 'left behind')"))
        if end == "lost":
            store._connection._connection.close()
    with pytest.raises(StoreClosed):
        await store.read(lambda db: None)

async def test_of_a_file(tmp_path):
    for found in (None, {"value": "is kept"}):
        async with inline.open_inline_store(tmp_path / "a.db", clock=lambda: 1) as store:
            assert await store.read(lambda db: db.fetch_one("SELECT value FROM meta WHERE key = 'a'")) == found
            await store.write(lambda db: db.execute("INSERT INTO meta VALUES ('a', 'is kept') ON CONFLICT DO NOTHING"))
    assert "dbname" in place_of(tmp_path / "a.db")

@pytest.mark.parametrize("time", ["first", "second"])
def test_of_fakes(time):
    database = fakes_database()
    assert isinstance(database, PostgresOnLoan)
    assert not [line for line in database.dump() if line.startswith("meta")]
    database.begin()
    database.connection.execute("INSERT INTO meta VALUES ('a', 'left behind')")
    database.connection.execute("INSERT INTO meta VALUES ('Z', 'made after it')")
    database.connection.execute("UPDATE meta SET value = 'and changed' WHERE key = 'a'")
    database.connection.execute("COMMIT")
    rows = database.connection.execute(f"SELECT key FROM meta ORDER BY {database.made('meta')}").fetchmany(9)
    assert [key for key, in rows] == ["a", "Z"]
    assert [line for line in database.reopened().dump() if line.startswith("meta")]
"""

KNOWN = packaged_migrations()
# Those of a connection, and those that go with a database.
PRAGMAS = (
    "application_id", "auto_vacuum", "cache_size", "foreign_keys", "journal_mode", "locking_mode", "max_page_count", "page_size", "synchronous",
    "temp_store", "trusted_schema", "user_version",
)  # fmt: skip


about_sqlite = pytest.mark.sqlite_only("it is about copies of what was migrated in SQLite")


@about_sqlite
@pytest.mark.parametrize("migrations", [KNOWN, KNOWN[:3]], ids=["all", "the first three"])
def test_a_database_in_memory_is_the_same_copied_as_migrated(migrations: Sequence[Migration]) -> None:
    def made(by: Callable[..., object], now: int) -> tuple[list[str], list[object]]:
        with closing(connect_writer(None)) as connection:
            by(connection, migrations, now=now, backups=None)
            pragmas = [connection.execute(f"PRAGMA {name}").fetchone() for name in PRAGMAS]
            return list(connection.iterdump()), pragmas

    for now in (1, 2):
        assert made(migrate_by_copy, now) == made(migrate, now)


@about_sqlite
def test_nobody_writes_into_anothers_copy() -> None:
    with closing(writer_in_memory()) as one, closing(writer_in_memory()) as other:
        one.execute("INSERT INTO meta VALUES ('a', 'of one')")
        assert other.execute("SELECT count(*) FROM meta").fetchone() == (0,)


@about_sqlite
def test_a_file_and_a_database_that_has_something_in_it_are_migrated(tmp_path: Path) -> None:
    with closing(connect_writer(tmp_path / "a.db")) as file, closing(connect_writer(None)) as begun:
        migrate(begun, KNOWN[:3], now=1, backups=None)
        begun.execute("INSERT INTO meta VALUES ('a', 'is kept')")
        for connection in (file, begun):
            migrate_by_copy(connection, KNOWN, now=1, backups=tmp_path)
        assert begun.execute("SELECT count(*) FROM meta").fetchone() == (1,)
        assert schema_version(begun) == len(KNOWN)
    with closing(connect_writer(tmp_path / "a.db")) as file:
        assert schema_version(file) == len(KNOWN)


@about_sqlite
async def test_a_store_in_memory_is_opened_on_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing is wrong, only slow."""
    async with inline.open_inline_store(clock=lambda: 1):  # so that there is one
        pass
    monkeypatch.setattr("tests.engine_under_test.migrate", None)
    async with inline.open_inline_store(clock=lambda: 1) as store:
        assert await store.read(
            lambda db: db.fetch_one("SELECT max(version) AS newest FROM schema_version")
        ) == {"newest": len(KNOWN)}


def run_of_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    where = ("-c", str(CHECKOUT / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *where, *options, str(folder)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_where_postgresql_cannot_start_a_run_says_so_once(store: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.postgres_server import PostgresServer\n"
        "def make(self): raise RuntimeError('initdb: one moment\\nthe disk is on fire\\n')\n"
        "PostgresServer.make = make\n"
    )
    (tmp_path / "test_each.py").write_text(
        "from server.store import inline\n"
        "def test_that_stands_on_it(postgres_server): pass\n"
        "async def test_in_trio():\n"
        "    async with inline.open_inline_store(clock=lambda: 1): pass\n"
    )
    done = run_of_pytest(tmp_path, "--store", store)
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count("the disk is on fire") == 1
    assert "no tests ran" in done.stdout


def test_whatever_opens_sqlite_in_a_run_on_postgresql_has_failed_unless_it_says_why(tmp_path: Path) -> None:
    (tmp_path / "test_each.py").write_text(TESTS)
    done = run_of_pytest(tmp_path, "-rA", "--store", "postgres")
    outcomes = {
        name: outcome
        for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) .*::test_(\S+)", done.stdout, re.M)
    }
    assert outcomes == {
        "that_opens_sqlite": "FAILED",
        "that_looks_away_from_what_it_is_told": "FAILED",
        "whose_fixture_opens_sqlite": "ERROR",
        "of_a_store[kept]": "PASSED",
        "of_a_store[lost]": "PASSED",
        "of_a_store[new]": "PASSED",
        "of_a_file": "PASSED",
        "of_fakes[first]": "PASSED",
        "of_fakes[second]": "PASSED",
    }, done.stdout
    assert "1 deselected" in done.stdout
