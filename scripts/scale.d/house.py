"""A server with a data directory and a database of its own, of either kind: filled while it stands still, then served."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import psycopg
from psycopg.conninfo import make_conninfo
from targets import Running, Target, free_port, ostiary_source, running, seal_database

from server.calls.servers.agent_factory import Subkey
from server.calls.servers.server_opening import subkeys
from server.cluster.postgres.postgres_transaction import numbered
from server.store import meta_rows
from server.store.data_directory import DataDirectory
from server.store.keyfile import open_key
from server.store.sqlite_connect import connect_writer
from tests.postgres_server import PostgresServer

Kind = Literal["sqlite", "postgres"]

# Rows that one statement of SQLite's is given.
PIECE: Final = 10_000
SETTINGS: Final = """
trusted_proxies = ["127.0.0.0/8"]
{store}
{settings}
[limits]
address = ""
caller = ""
"""


class Tables:
    """A database that nobody serves, for rows by the million."""

    def __init__(self, connection: Any, *, numbered_marks: bool) -> None:
        self._connection = connection
        self._marks = numbered_marks

    def execute(self, sql: str, *values: object) -> None:
        self._execute(sql, values).close()

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        cursor = self._execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def fetch_one(self, sql: str, *values: object) -> dict[str, Any] | None:
        """As a job has it, so that what reads in jobs reads here."""
        return next(iter(self.rows(sql, *values)), None)

    def fetch_all(self, sql: str, *values: object) -> list[dict[str, Any]]:
        return self.rows(sql, *values)

    def seal(self, said: bytes) -> str:
        """Nothing: all of it is sealed in the end (`House.seal`)."""
        del said
        return ""

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        if isinstance(self._connection, sqlite3.Connection):
            marks, source = ", ".join("?" * len(columns)), iter(rows)
            while piece := list(islice(source, PIECE)):
                self._connection.executemany(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", piece
                )
            return
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def copies(
        self, table: str, row: dict[str, Any], varied: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Rows like this one but for some columns."""
        rest = [name for name, value in row.items() if name not in varied and value is not None]
        same = [row[name] for name in rest]
        self.fill(table, [*varied, *rest], ((*each, *same) for each in rows))

    def _execute(self, sql: str, values: Sequence[object]) -> Any:
        if self._marks:
            return self._connection.cursor().execute(numbered(sql), values)
        return self._connection.execute(sql, values)


class House:
    def __init__(self, folder: Path, postgres: PostgresServer | None, *, name: str, settings: str) -> None:
        """`settings`: what its file says besides where everything is."""
        self.folder = folder / name
        self.folder.mkdir()
        self.home: Final = DataDirectory(self.folder / "data")
        self.parameters: dict[str, str] | None = None
        store = ""
        if postgres is not None:
            postgres.said(f"CREATE DATABASE scale_{name}")
            self.parameters = where = postgres.parameters(f"scale_{name}")
            (self.folder / "address").write_text(
                f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}&port={where.get('port', 5432)}\n",
                "utf-8",
            )
            store = f'store = "file:{self.folder / "address"}"\n'
        self.config = self.folder / "ostiary.toml"
        self.config.write_text(SETTINGS.format(store=store, settings=settings), "utf-8")

    @contextmanager
    def serving(self, *, core: int, admin: int = 0, port: int = 0) -> Generator[Running]:
        """`admin`: the port of what is only for this machine. `port`: where it listens, if that is not what it says of itself."""
        options = ("--port", str(port), "--admin-port", str(admin), "--data-dir", str(self.home.path))
        command = (
            *ostiary_source(), "serve", "--config", str(self.config), "--log-level", "warning", *options
        )  # fmt: skip
        with running(Target(name="Ostiary", command=command), core=core) as server:
            yield replace(server, port=port or server.port)

    @contextmanager
    def by_way_of(self, port: int) -> Generator[None]:
        """The database is asked at this port of this machine, by whatever is started meanwhile."""
        address, where = self.folder / "address", self.parameters
        assert where is not None
        usual = address.read_text("utf-8")
        address.write_text(f"postgresql://{where['user']}@127.0.0.1:{port}/{where['dbname']}\n", "utf-8")
        try:
            yield
        finally:
            address.write_text(usual, "utf-8")

    def make(self, *, core: int) -> None:
        """With its schema, its keys and whoever owns it."""
        with self.serving(core=core):
            pass

    @contextmanager
    def tables(self) -> Generator[Tables]:
        """One transaction."""
        if self.parameters is None:
            connection = connect_writer(self.home.database)
            try:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA cache_size = -500000")
                connection.execute("BEGIN")
                yield Tables(connection, numbered_marks=False)
                connection.execute("COMMIT")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()
            return
        with psycopg.connect(
            make_conninfo("", **self.parameters), cursor_factory=psycopg.RawCursor
        ) as connection:
            yield Tables(connection, numbered_marks=True)
            connection.commit()
            connection.autocommit = True
            connection.execute(b"VACUUM ANALYZE")  # as it does by itself, some minutes after so many rows

    def seal(self) -> None:
        """Have what was written by hand count."""
        seal_database("--config", str(self.config), "--data-dir", str(self.home.path))

    def subkey(self, tables: Tables) -> Subkey:
        known = meta_rows.get(tables, meta_rows.KEY_FINGERPRINT)  # pyright: ignore[reportArgumentType]
        key = open_key(self.home.key_file, known_fingerprint=known, random_bytes=os.urandom, environment={})
        return subkeys(key)


@contextmanager
def database_server(kind: Kind) -> Generator[PostgresServer | None]:
    """One that syncs its disk, as it is served with."""
    if kind == "sqlite":
        yield None
        return
    from tests.postgres_server import programs

    found = programs()
    if found is None:
        raise SystemExit("error: PostgreSQL is not installed: apt-get install postgresql")
    server = PostgresServer(found, durable=True)
    server.settings |= {"shared_buffers": "512MB", "max_wal_size": "4GB", "autovacuum_naptime": "10s"}
    try:
        server.make()
        # For what stands between a server and its database, to count and to delay.
        server.stop()
        server.listen("127.0.0.1", free_port(), tls=None)
        server.start()
        yield server
    finally:
        server.remove()


Made = Callable[[str, str], House]  # a name and settings → a house
