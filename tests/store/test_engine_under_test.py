"""A run with `--store postgres` stands on PostgreSQL, and says so where it does not (postgres_plugin.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
TESTS = """
import sqlite3
import pytest
from server.store import inline
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

async def test_of_a_store():
    async with inline.open_inline_store(clock=lambda: 1) as store:
        assert isinstance(store._connection, PostgresConnection)

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


def test_whatever_opens_sqlite_in_a_run_on_postgresql_has_failed_unless_it_says_why(tmp_path: Path) -> None:
    (tmp_path / "test_each.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(CHECKOUT / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-rA", "--store", "postgres", str(tmp_path)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    outcomes = {
        name: outcome
        for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) .*::test_(\S+)", done.stdout, re.M)
    }
    assert outcomes == {
        "that_opens_sqlite": "FAILED",
        "that_looks_away_from_what_it_is_told": "FAILED",
        "whose_fixture_opens_sqlite": "ERROR",
        "of_a_store": "PASSED",
        "of_a_file": "PASSED",
        "of_fakes[first]": "PASSED",
        "of_fakes[second]": "PASSED",
    }, done.stdout
    assert "1 deselected" in done.stdout
