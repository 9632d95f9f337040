"""Databases that tests are given: a copy in memory is as migrations make it, and a run with `--store postgres` stands on PostgreSQL and says so
where it does not (postgres_plugin.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from server.store import inline_store
from server.store.jobs import CannotOpen
from server.store.migrate import Migration, migrate, packaged_migrations, schema_version
from server.store.sqlite_connect import connect_reader, connect_writer
from tests.engine_under_test import migrate_by_copy, writer_in_memory

CHECKOUT = Path(__file__).parents[2]
TESTS = """
import sqlite3
import pytest
from server.store import inline_store as inline
from server.store.jobs import StoreClosed
from server.cluster.postgres.postgres_connection import PostgresConnection
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
@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("migrations", [KNOWN, KNOWN[:3]], ids=["all", "the first three"])
def test_a_database_is_the_same_copied_as_migrated(
    migrations: Sequence[Migration], where: str, tmp_path: Path
) -> None:
    names = count()

    def made(by: Callable[..., object], now: int) -> tuple[list[str], list[object]]:
        path = tmp_path / f"{next(names)}.db"
        with closing(connect_writer(path if where == "file" else None)) as connection:
            by(connection, migrations, now=now, backups=tmp_path)
            if where == "file":  # and as somebody else finds it
                with closing(connect_reader(path)) as reader:
                    assert list(reader.iterdump()) == list(connection.iterdump())
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
def test_what_has_something_in_it_is_migrated(tmp_path: Path) -> None:
    for now, path in enumerate((tmp_path / "a.db", None)):
        with closing(connect_writer(path)) as begun:
            migrate(begun, KNOWN[:3], now=1, backups=tmp_path)
            begun.execute("INSERT INTO meta VALUES ('a', 'is kept')")
            migrate_by_copy(begun, KNOWN, now=now, backups=tmp_path)
            assert begun.execute("SELECT count(*) FROM meta").fetchone() == (1,)
            assert schema_version(begun) == len(KNOWN)


@about_sqlite
def test_what_a_full_disk_refuses_to_copy_is_said_by_the_migration(tmp_path: Path) -> None:
    with closing(connect_writer(tmp_path / "a.db")) as full:
        full.execute("PRAGMA max_page_count = 20")
        with pytest.raises(CannotOpen, match="migration 0"):
            migrate_by_copy(full, KNOWN, now=1, backups=tmp_path)


@about_sqlite
async def test_a_store_in_memory_is_opened_on_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing is wrong, only slow."""
    async with inline_store.open_inline_store(clock=lambda: 1):  # so that there is one
        pass
    monkeypatch.setattr("tests.engine_under_test.migrate", None)
    async with inline_store.open_inline_store(clock=lambda: 1) as store:
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
        "from server.store import inline_store as inline\n"
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
