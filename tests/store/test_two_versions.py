"""A program and the one before it on the same database, while nodes are replaced one by one (server/store/migrate.py)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any, Final

import pytest
from store_engines import NOW

from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_schema import bring_up
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import NewerSchema, StoreDb
from server.store.migrate import Migration, migrate, oldest_served, packaged_migrations
from tests.cluster.moving.filled import fill
from tests.inline_postgres import open_inline_postgres_store
from tests.postgres_server import PostgresServer

NOW_KNOWN: Final = packaged_migrations()
NEXT: Final = len(NOW_KNOWN) + 1
ADDING: Final = Migration(
    NEXT,
    "more",
    "-- additive\nCREATE TABLE colours (name TEXT PRIMARY KEY);"
    " ALTER TABLE users ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'; CREATE INDEX users_by_colour ON users (colour);",
)
CHANGING: Final = Migration(
    NEXT + 1, "less", "DROP INDEX users_by_colour; ALTER TABLE users DROP COLUMN colour;"
)

Open = Callable[[Sequence[Migration]], AbstractAsyncContextManager[InlineStore]]


class Engines:
    """One database: opened by programs that know so many migrations, and migrated by another process meanwhile."""

    def __init__(self, folder: Path, database: Mapping[str, str] | None) -> None:
        self.folder, self.database = folder, database

    def open(self, known: Sequence[Migration]) -> AbstractAsyncContextManager[InlineStore]:
        if self.database is not None:
            return open_inline_postgres_store(self.database, clock=lambda: NOW, migrations=known)
        return open_inline_store(
            self.folder / "a.db", clock=lambda: NOW, backups=self.folder, migrations=known
        )

    def migrate_beside(self, known: Sequence[Migration]) -> None:
        if self.database is not None:
            access = PostgresAccess(parameters=self.database, job_seconds=60)
            with closing(PostgresConnection(access, writes=True)) as connection:
                bring_up(connection, known, now=NOW)
            return
        with closing(sqlite3.connect(self.folder / "a.db", isolation_level=None)) as connection:
            migrate(connection, known, now=NOW, backups=self.folder)


@pytest.fixture(params=["sqlite", "postgres"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        yield Engines(tmp_path, None)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.bare_database() as parameters:
        yield Engines(tmp_path, dict(parameters))


def people(db: StoreDb) -> list[str]:
    return [row["name"] for row in db.fetch_all("SELECT * FROM users ORDER BY name")]


def add(db: StoreDb, name: str) -> int:
    sql = "INSERT INTO users (id, name, role, state, scope, created_at) VALUES (?, ?, 'user', 'enabled', '*', 0)"
    return db.execute(sql, name, name)


async def test_the_older_program_goes_on_while_and_after_the_newer_one_adds_to_the_schema(
    engines: Engines,
) -> None:
    newer = [*NOW_KNOWN, ADDING]
    async with engines.open(NOW_KNOWN) as older:
        await fill(older)  # a statement for each table
        there = await older.read(people)
        engines.migrate_beside(newer)
        assert await older.write(lambda db: add(db, "anna")) == 1
        assert await older.read(people) == sorted([*there, "anna"])
    async with engines.open(newer) as new:
        colours = await new.read(lambda db: db.fetch_all("SELECT DISTINCT colour FROM users"))
        assert colours == [{"colour": "blue"}]
        await new.write(lambda db: db.execute("INSERT INTO colours (name) VALUES ('red')"))
        await new.write(lambda db: db.execute("UPDATE users SET colour = 'red' WHERE id = 'anna'"))
    async with engines.open(NOW_KNOWN) as older:  # started again meanwhile
        assert await older.write(lambda db: add(db, "ben")) == 1
        assert (
            await older.write(lambda db: db.execute("UPDATE users SET state = 'locked' WHERE id = 'anna'"))
            == 1
        )
    async with engines.open(newer) as new:
        row = await new.read(lambda db: db.fetch_one("SELECT colour, state FROM users WHERE id = 'anna'"))
        assert row == {"colour": "red", "state": "locked"}


async def test_an_older_program_refuses_what_more_than_adds_and_says_so(engines: Engines) -> None:
    async with engines.open([*NOW_KNOWN, ADDING, CHANGING]):
        pass
    for known in (NOW_KNOWN, [*NOW_KNOWN, ADDING]):
        with pytest.raises(NewerSchema, match=rf"schema {NEXT + 1}; this one knows {len(known)}") as refused:
            async with engines.open(known):
                pass
        assert "run the newer version" in (refused.value.hint or "")
    async with engines.open([*NOW_KNOWN, ADDING, CHANGING]) as store:
        assert await store.read(people) == []


async def test_an_addition_after_a_change_does_not_bring_an_older_program_back(engines: Engines) -> None:
    later = Migration(NEXT + 2, "later", "-- additive\nCREATE TABLE sizes (name TEXT PRIMARY KEY);")
    async with engines.open([*NOW_KNOWN, ADDING, CHANGING, later]):
        pass
    with pytest.raises(NewerSchema):
        async with engines.open([*NOW_KNOWN, ADDING]):
            pass
    async with engines.open([*NOW_KNOWN, ADDING, CHANGING]):
        pass


def test_a_database_of_before_additions_were_kept_says_nothing_is_one(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        migrate(connection, NOW_KNOWN, now=NOW, backups=tmp_path)
        newest = max(each.version for each in NOW_KNOWN if not each.is_additive)
        assert oldest_served(connection) == newest
        connection.execute("ALTER TABLE schema_version DROP COLUMN additive")
        assert oldest_served(connection) == len(NOW_KNOWN)
        with pytest.raises(NewerSchema):
            migrate(connection, NOW_KNOWN[:-1], now=NOW, backups=tmp_path)


def test_what_says_that_it_only_adds_does() -> None:
    for migration in NOW_KNOWN:
        if migration.is_additive:
            statements = [line for line in migration.sql.upper().split(";") if line.strip()]
            assert not [
                each for each in statements if "DROP " in each or "RENAME " in each or "UPDATE " in each
            ]


def test_a_migration_that_only_makes_tables_and_indexes_says_that_it_is_additive() -> None:
    """Or nodes could not be replaced one by one, for nothing. Beside a node that writes no letters (0015) there can be none that does."""
    only_adds = re.compile(r"CREATE (TABLE|INDEX|UNIQUE INDEX)\b")
    for migration in NOW_KNOWN[15:]:
        text = re.sub(r"--.*", "", migration.sql)
        statements = [each.strip() for each in text.split(";") if each.strip()]
        if all(map(only_adds.match, statements)):
            assert migration.is_additive, migration.name
