"""The database that a test is given: SQLite, or with `--store postgres` one of the tests' own PostgreSQL (postgres_plugin.py)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from auth.values.database import Row
from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_connection import POSTGRES
from server.cluster.postgres.postgres_transaction import BEGIN_READ, BEGIN_WRITE
from server.store.migrate import Migration, migrate, packaged_migrations
from server.store.sqlite import open_store
from server.store.sqlite_connect import connect_writer
from server.store.sqlite_engine import SQLITE
from server.store.store_engine import EngineConnection, StoreEngine
from server.store.threaded_store import ThreadedStore
from tests.postgres_server import KEY_OF, MADE_AT, ORDER, ORDERED_TEMPLATE, Loans

# Where rows are: a file, or what libpq needs.
Place: TypeAlias = "Path | Mapping[str, str]"

_OF_TYPE = {
    "text": "x",
    "integer": 0,
    "bigint": 0,
    "real": 0.0,
    "double precision": 0.0,
    "blob": b"x",
    "bytea": b"x",
}
_ALL = 1_000_000


@dataclass
class UnderTest:
    """Which engine it is. SQLite, unless there is somebody who lends databases of PostgreSQL."""

    loans: Callable[[], Loans] | None = None


UNDER_TEST = UnderTest()


class FakesDatabase(Protocol):
    """What the fakes stand on: a connection that begins and ends its transactions when it is told to."""

    engine: StoreEngine

    @property
    def connection(self) -> EngineConnection: ...

    def begin(self) -> None: ...

    def reading(self) -> AbstractContextManager[None]:
        """In a transaction in which nothing can be written."""
        ...

    def made(self, table: str) -> str:
        """What rows of this table are ordered by, so that the one made first comes first."""
        ...

    def required(self, table: str) -> Mapping[str, object]:
        """The columns that must have a value, each with one."""
        ...

    def dump(self) -> list[str]:
        """All there is, in words."""
        ...

    def reopened(self) -> FakesDatabase:
        """What a new process finds after this one ended."""
        ...

    def close(self) -> None: ...


class SqliteInMemory:
    engine = SQLITE

    def __init__(self, content: bytes | None = None) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.deserialize(_schema() if content is None else content)
        self.connection.execute("PRAGMA foreign_keys = ON")

    def begin(self) -> None:
        self.connection.execute("BEGIN")

    @contextmanager
    def reading(self) -> Generator[None]:
        before = self.connection.total_changes
        yield
        assert self.connection.total_changes == before, "a reading job wrote"

    def made(self, table: str) -> str:
        del table
        return "rowid"

    def required(self, table: str) -> Mapping[str, object]:
        sql = 'SELECT name, type FROM pragma_table_info(?) WHERE "notnull"'
        return {name: _OF_TYPE[kind.lower()] for name, kind in self.connection.execute(sql, (table,))}

    def dump(self) -> list[str]:
        return list(self.connection.iterdump())

    def reopened(self) -> SqliteInMemory:
        successor = SqliteInMemory(self.connection.serialize())
        self.close()
        return successor

    def close(self) -> None:
        self.connection.close()


class PostgresOnLoan:
    """Given back when it is closed, or else when the test has ended."""

    engine = POSTGRES

    def __init__(self, loans: Loans) -> None:
        self._loans = loans
        self.connection = loans.writer(ORDERED_TEMPLATE)

    def begin(self) -> None:
        self.connection.execute(BEGIN_WRITE)

    @contextmanager
    def reading(self) -> Generator[None]:
        self.connection.execute(BEGIN_READ)
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def made(self, table: str) -> str:
        ((key,),) = self._all(KEY_OF, table)
        return f"(SELECT made FROM {ORDER} WHERE of = '{table}' AND {ORDER}.key = concat({key}))"

    def required(self, table: str) -> Mapping[str, object]:
        return {name: _OF_TYPE[kind.lower()] for name, kind, must in self._columns(table) if must}

    def dump(self) -> list[str]:
        tables = self._all("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [
            f"{table}{row}"
            for (table,) in tables
            if table != ORDER
            for (row,) in self._all(f"SELECT t::text FROM {table} AS t ORDER BY 1")
        ]

    def reopened(self) -> PostgresOnLoan:
        self.connection.forget()
        return self

    def close(self) -> None:
        self._loans.give_back(self.connection)

    def _columns(self, table: str) -> Sequence[Sequence[Any]]:
        sql = (
            "SELECT attname, atttypid::regtype::text, attnotnull FROM pg_attribute"
            " WHERE attrelid = ?::regclass AND attnum > 0 AND NOT attisdropped"
        )
        return self._all(sql, table)

    def _all(self, sql: str, *parameters: object) -> Sequence[Sequence[Any]]:
        return self.connection.execute(sql, parameters).fetchmany(_ALL)


def put_in(database: FakesDatabase, sql: str, parameters: Sequence[object]) -> None:
    """As the store does it: where nothing is gained by putting it off, at once."""
    if database.engine.later is None or not database.connection.in_transaction:
        database.connection.execute(sql, parameters)
    else:
        database.engine.later(database.connection, sql, parameters)


def foresee(database: FakesDatabase, sql: str, parameters: Sequence[object]) -> None:
    if database.engine.foresee is not None and database.connection.in_transaction:
        database.engine.foresee(database.connection, sql, parameters)


def fetched(database: FakesDatabase, sql: str, parameters: Sequence[object]) -> list[Row]:
    cursor = database.connection.execute(sql, parameters)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(_ALL)]


def fetched_one(database: FakesDatabase, sql: str, parameters: Sequence[object]) -> Row | None:
    cursor = database.connection.execute(sql, parameters)
    row = cursor.fetchone()
    names = [column[0] for column in cursor.description or ()]
    cursor.close()
    return None if row is None else dict(zip(names, row, strict=True))


def fakes_database() -> FakesDatabase:
    """Of this version's schema, and empty."""
    return SqliteInMemory() if UNDER_TEST.loans is None else PostgresOnLoan(UNDER_TEST.loans())


def place_of(file: Path) -> Place:
    """The same one whenever a test asks for the same file."""
    return file if UNDER_TEST.loans is None else UNDER_TEST.loans().in_place_of(file)


def open_at(place: Place, *, clock: Callable[[], int]) -> AbstractAsyncContextManager[ThreadedStore]:
    """With the threads that a server has."""
    if isinstance(place, Path):
        return open_store(place, clock=clock, backups=place.parent)
    return open_postgres_store(place, clock=clock)


def written(place: Place) -> str:
    """For the command line of a process that is to open it."""
    return str(place) if isinstance(place, Path) else json.dumps(dict(place))


def read_place(word: str) -> Place:
    return json.loads(word) if word.startswith("{") else Path(word)


def writer_in_memory() -> sqlite3.Connection:
    """Return a connection of the store's to a database of this version's schema, in memory and empty."""
    connection = connect_writer(None)
    connection.deserialize(_schema())
    return connection


def migrate_by_copy(
    connection: sqlite3.Connection, migrations: Sequence[Migration], *, now: int, backups: Path | None
) -> Path | None:
    """Do as `migrate` does; but for a new database these migrations run once, and then what they made is copied."""
    (file,) = connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        return migrate(connection, migrations, now=now, backups=backups)
    image = _image(tuple(migrations))
    if file:
        try:
            with closing(sqlite3.connect(":memory:")) as made:
                made.deserialize(image)
                made.backup(connection)
        except sqlite3.Error:  # on a disk that is full, for one: what is said of that is `migrate`'s
            return migrate(connection, migrations, now=now, backups=backups)
    else:
        connection.deserialize(image)
    connection.execute("UPDATE schema_version SET applied_at = ?", (now,))
    return None


@cache
def _schema() -> bytes:
    return _image(packaged_migrations())


@cache
def _image(migrations: tuple[Migration, ...]) -> bytes:
    connection = connect_writer(None)
    migrate(connection, migrations, now=MADE_AT, backups=None)
    content = connection.serialize()
    connection.close()
    return content
