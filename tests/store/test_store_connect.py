"""How the database is opened (server/store/sqlite_connect.py), and what SQLite's errors become (server/store/sqlite_errors.py)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.errors import lookup

from server.cluster.postgres.postgres_errors import refused
from server.store import jobs
from server.store.jobs import CannotOpen
from server.store.sqlite_connect import connect_reader, connect_writer
from server.store.sqlite_errors import translate
from tests.snapshots import Snapshot


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_commit_is_synced_to_the_disk_and_constraints_are_on(directory: Path) -> None:
    full = 2
    with closing(connect_writer(directory / "a.db")) as writer:
        assert pragma(writer, "journal_mode") == "wal"
        assert pragma(writer, "synchronous") == full
        assert pragma(writer, "foreign_keys") == 1
        assert pragma(writer, "busy_timeout") == 5000


def test_a_readers_connection_cannot_write_whatever_it_is_told(directory: Path) -> None:
    path = directory / "a#?%20 b.db"  # characters that mean something in the URI by which it is opened
    with closing(connect_writer(path)) as writer:
        writer.execute("CREATE TABLE t (a)")
        with closing(connect_reader(path)) as reader:
            reader.execute("PRAGMA query_only = OFF")
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reader.execute("INSERT INTO t VALUES (1)")


def test_a_reader_makes_no_database_where_there_is_none(directory: Path) -> None:
    with pytest.raises(CannotOpen, match=r"missing\.db"):
        connect_reader(directory / "missing.db")
    assert not (directory / "missing.db").exists()


def test_a_directory_that_is_missing_is_an_error_by_name(directory: Path) -> None:
    with pytest.raises(CannotOpen, match="nowhere"):
        connect_writer(directory / "nowhere" / "a.db")


def test_an_sqlite_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(CannotOpen, match="too old"):
        connect_writer(None)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, jobs.DiskFull),
        (sqlite3.SQLITE_IOERR_WRITE, jobs.DiskFull),
        (sqlite3.SQLITE_IOERR_FSYNC, jobs.StoreBroken),
        (sqlite3.SQLITE_IOERR_READ, jobs.DiskError),
        (sqlite3.SQLITE_READONLY_DBMOVED, jobs.StoreReadOnly),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, jobs.StoreBusy),
        (sqlite3.SQLITE_CORRUPT_INDEX, jobs.StoreDamaged),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, jobs.ConstraintFailed),
        (sqlite3.SQLITE_ERROR, jobs.StatementFailed),
        (None, jobs.StatementFailed),
    ],
)
def test_each_of_sqlites_errors_becomes_one_of_ours(code: int | None, kind: type[jobs.StoreError]) -> None:
    error = sqlite3.OperationalError("text")
    if code is not None:
        error.sqlite_errorcode = code
    assert type(translate(error)) is kind
    assert translate(error) is not translate(error)


SQLITE = (
    "FULL", "IOERR_WRITE", "IOERR_SHMSIZE", "IOERR_FSYNC", "IOERR", "READONLY", "BUSY", "LOCKED", "INTERRUPT", "CORRUPT",
    "NOTADB", "CANTOPEN",
)  # fmt: skip
POSTGRES = (
    "57014", "25006", "42501", "53100", "53200", "53300", "55P03", "08006", "57P01", "25P03", "53000", "58030", "XX001", "XX002",
    "40001", "23505", "22001",
)  # fmt: skip


def test_the_faults_of_a_database_as_an_operator_reads_them(snapshot: Snapshot) -> None:
    lines: list[str] = []
    for name in SQLITE:
        error = sqlite3.OperationalError("text")
        error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
        lines.append(f"SQLite says {name}\n  {_told(translate(error))}")
    for state in POSTGRES:
        found = refused(lookup(state)(), is_lost=False).as_store_error()
        lines.append(f"PostgreSQL says {state}\n  {_told(found)}")
    snapshot("store", "\n".join(lines))


def _told(error: jobs.StoreError) -> str:
    return f"{error}" if error.hint is None else f"{error}\n  hint: {error.hint}"
