"""Bringing a database to the schema of this version: numbered SQL files, each in one transaction, never backwards.

The files are package data (`migrations/0001_name.sql`). An existing database is copied before it is changed. One that a newer version has
changed is refused, because an older program would read it wrongly; but a file whose first line is `-- additive` only adds what a program of
the schema before need not know (a table, an index, a column with a default), so that one goes on, and starts, with it. The database remembers
which were so.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from server.store.database_snapshot import BackupFailed, copy_database, stamp
from server.store.jobs import CannotOpen, NewerSchema
from server.store.meta_rows import KEY_FINGERPRINT
from server.store.sqlite_connect import APPLICATION_ID
from server.store.sqlite_errors import translate

_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")

_VERSIONS_TABLE: Final = """
CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)
"""

# What each migration was when it was applied: a number alone would take another file's schema for this one's.
_CHECKSUM_COLUMN: Final = "ALTER TABLE schema_version ADD COLUMN sha256 TEXT"
# And whether a program that does not know it may serve all the same.
_ADDITIVE_COLUMN: Final = "ALTER TABLE schema_version ADD COLUMN additive BIGINT"
_ADDITIVE: Final = "-- additive\n"

# The oldest schema that is taken up: nobody can read the audit trail of one before it, which would seem tampered with for ever. No release
# had any of those. A test has a database of each from here on, made by the program of then. On PostgreSQL there never were older ones.
OLDEST_SCHEMA: Final = 6
_SERVED: Final = "SELECT 1 FROM meta WHERE key = ?"


class OtherSchema(CannotOpen):
    """The database was made by migrations of the same numbers and another content."""

    lasting = True


class OlderSchema(CannotOpen):
    """The database is of a version whose trail nobody can read any more."""

    lasting = True


class Migration(msgspec.Struct, frozen=True):
    version: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def is_additive(self) -> bool:
        return self.sql.startswith(_ADDITIVE)


def packaged_migrations() -> tuple[Migration, ...]:
    """The migrations of this version, in order."""
    entries = (Path(__file__).parent / "migrations").iterdir()
    found = [
        Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8"))
        for entry in entries
        if (match := _FILE_NAME.fullmatch(entry.name))
    ]
    found.sort(key=lambda migration: migration.version)
    check_numbering(found)
    return tuple(found)


def check_numbering(migrations: Sequence[Migration]) -> None:
    """Two branches that both took the next number would each be right alone; together they would skip one."""
    if not migrations or [migration.version for migration in migrations] != list(
        range(1, len(migrations) + 1)
    ):
        raise CannotOpen("this build's migrations are incomplete", hint="reinstall ostiary")


def schema_version(connection: sqlite3.Connection) -> int:
    """The newest migration applied; 0 for an empty database."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone():
        return 0
    return connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0]


def oldest_served(connection: sqlite3.Connection) -> int:
    """The oldest schema whose program may serve this database: the newest migration that was not additive."""
    found = schema_version(connection)
    if not found or not _has_column(connection, "additive"):
        return found
    sql = "SELECT coalesce(max(version), 0) FROM schema_version WHERE coalesce(additive, 0) = 0"
    return connection.execute(sql).fetchone()[0]


def refuse_newer(found: int, known: int) -> None:
    """`found`: the oldest schema that may be served."""
    if found > known:
        raise NewerSchema(
            f"the database was written by a newer version (schema {found}; this one knows {known})",
            hint="run the newer version; to go back for good, restore a back-up that was made before the upgrade",
        )


def _refuse_older(connection: sqlite3.Connection, found: int) -> None:
    """A database that never served is none of those: a start was cut off while it was being made."""
    if 0 < found < OLDEST_SCHEMA and connection.execute(_SERVED, (KEY_FINGERPRINT,)).fetchone() is not None:
        raise OlderSchema(
            f"the database was made before the first release (schema {found}; this version takes up {OLDEST_SCHEMA} and later): its audit"
            " trail can no longer be read",
            hint="keep it with the build that made it, and start this one with a new data directory: ostiary serve --data-dir DIR",
        )


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Migration], *, now: int, backups: Path | None
) -> Path | None:
    """Apply what is missing; where the copy made beforehand is, if there was anything to copy.

    Raises `NewerSchema`, `OtherSchema`, `OlderSchema`, or `CannotOpen` when a copy cannot be made or a migration fails, which then left no trace.
    The caller holds the data directory's lock, so nobody else migrates. `backups` is None only for databases in memory.
    """
    found = schema_version(connection)
    refuse_newer(oldest_served(connection), len(migrations))
    if found:
        _check_applied(connection, migrations[:found])
    if len(migrations) >= OLDEST_SCHEMA:
        _refuse_older(connection, found)
    missing = migrations[found:]
    if not missing:
        return None
    copy: Path | None = None
    if found == 0:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    elif backups is not None:
        copy = backups / f"before-schema-{len(migrations)}-from-{found}-{stamp(now)}.db"
        try:
            copy_database(connection, copy)
        except BackupFailed as error:
            raise CannotOpen(
                f"the database must be copied before it is migrated: {error}", hint=error.hint
            ) from error
    for migration in missing:
        _apply(connection, migration, now=now)
    return copy


def _check_applied(connection: sqlite3.Connection, applied: Sequence[Migration]) -> None:
    """Raises `OtherSchema`. A database of before checksums were kept is held against the schema itself, and gets them."""
    if not _keeps_checksums(connection):
        if _tables(connection) != _tables_after(applied):
            raise _other(applied[-1])
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_CHECKSUM_COLUMN)
        for migration in applied:
            connection.execute(
                "UPDATE schema_version SET sha256 = ? WHERE version = ?",
                (migration.sha256, migration.version),
            )
        connection.execute("COMMIT")
    kept = dict(connection.execute("SELECT version, sha256 FROM schema_version").fetchall())
    for migration in applied:
        if kept.get(migration.version) != migration.sha256:
            raise _other(migration)


def _other(migration: Migration) -> OtherSchema:
    return OtherSchema(
        f"the database was not made by a release: its schema {migration.version} is another than this version's",
        hint="use the build that made it, or a new data directory",
    )


def _keeps_checksums(connection: sqlite3.Connection) -> bool:
    return _has_column(connection, "sha256")


def _has_column(connection: sqlite3.Connection, name: str) -> bool:
    return any(row[1] == name for row in connection.execute("PRAGMA table_info(schema_version)"))


def _tables_after(applied: Sequence[Migration]) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as fresh:
        for migration in applied:
            for statement in statements(migration.sql):
                fresh.execute(statement)
        return _tables(fresh)


def _tables(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Names and columns of all there is, as SQLite itself keeps them."""
    found = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE name <> 'schema_version' AND name NOT LIKE 'sqlite%'"
    )
    return set(found.fetchall())


def _apply(connection: sqlite3.Connection, migration: Migration, *, now: int) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_VERSIONS_TABLE)
        if not _keeps_checksums(connection):
            connection.execute(_CHECKSUM_COLUMN)
        if not _has_column(connection, "additive"):
            connection.execute(_ADDITIVE_COLUMN)
        for statement in statements(migration.sql):
            connection.execute(statement)
        row = (migration.version, migration.name, now, migration.sha256, int(migration.is_additive))
        connection.execute(
            "INSERT INTO schema_version (version, name, applied_at, sha256, additive) VALUES (?, ?, ?, ?, ?)",
            row,
        )
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        reason = translate(error)
        raise CannotOpen(f"migration {migration.version:04} failed: {reason}", hint=reason.hint) from error


def statements(script: str) -> Iterator[str]:
    """The script's statements one by one: `executescript` would commit before the first and leave half behind an error."""
    pending = ""
    for piece in re.split(r"(?<=;)", script):
        pending += piece
        if sqlite3.complete_statement(pending):  # knows strings, comments and trigger bodies
            yield pending
            pending = ""
    if re.sub(r"--[^\n]*|\s", "", pending):
        raise CannotOpen(
            "a migration of this build ends in the middle of a statement", hint="reinstall ostiary"
        )
