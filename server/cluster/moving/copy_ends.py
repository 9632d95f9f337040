"""The two databases of a copy: reading rows in an order of each's own, putting many at once, and the numbers that it gives.

Both are opened by whoever copies, alone: no server runs on them.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from server.cluster.moving.copy_plan import CopiedTable
from server.store.job_connection import Facade
from server.store.jobs import StoreDb
from server.store.sqlite_engine import SQLITE
from server.store.store_engine import EngineConnection, StoreEngine
from server.store.transactions import PendingJob, Transactions

T = TypeVar("T")

Position: TypeAlias = tuple[int | str, ...]
CopiedRow: TypeAlias = tuple[Any, ...]

# A statement of a copy may go through a whole table.
STATEMENT_SECONDS: Final = 3_600.0


class CopyEnd(ABC):
    engine: StoreEngine

    def __init__(self, connection: EngineConnection, called: str) -> None:
        self._connection = connection
        self.called = called  # as people wrote it
        self.transactions = Transactions(connection, job_seconds=STATEMENT_SECONDS, engine=self.engine)

    @abstractmethod
    def read(self, table: CopiedTable, after: Position, at_most: int) -> list[tuple[Position, CopiedRow]]:
        """The next rows, with the place of each; `()`: from the beginning. Fewer than that: those were all."""

    @abstractmethod
    def put(self, table: CopiedTable, rows: Sequence[CopiedRow]) -> None:
        """In the transaction of `writing`."""

    @abstractmethod
    def last_number(self, table: CopiedTable) -> int:
        """The last one that was given, whether or not its row is there still."""

    @abstractmethod
    def give_numbers_after(self, table: CopiedTable, number: int) -> None: ...

    @abstractmethod
    def settle(self, tables: Sequence[CopiedTable]) -> None:
        """All rows are there: what the database wants to know of them."""

    def reading(self, job: Callable[[StoreDb], T]) -> T:
        work = PendingJob(job)
        self.transactions.run_read(work)
        return work.result()

    def writing(self, job: Callable[[StoreDb], T]) -> T:
        """One transaction, in which rows may be put as well. Raises `StoreError`, and then nothing of it counts."""
        try:
            self._connection.execute(self.engine.begin_write)
            try:
                facade = Facade(self._connection, at=0, writable=True, engine=self.engine)
                result = job(facade)
                facade.end()
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except self.engine.errors as error:
            raise self.engine.translate(error) from error
        return result

    def schema(self) -> int:
        return self._one("SELECT max(version) FROM schema_version")

    def count(self, table: CopiedTable) -> int:
        return self._one(f"SELECT count(*) FROM {table.name}")

    def empty(self, tables: Sequence[CopiedTable]) -> None:
        """In the transaction of `writing`."""
        for table in reversed(tables):
            self._connection.execute(f"DELETE FROM {table.name}")

    def close(self) -> None:
        self._connection.close()

    def _all(self, sql: str, *parameters: object) -> list[CopiedRow]:
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except self.engine.errors as error:
            raise self.engine.translate(error) from error

    def _one(self, sql: str, *parameters: object) -> Any:
        return self._all(sql, *parameters)[0][0]


class SqliteEnd(CopyEnd):
    """In the order in which the rows lie in the file."""

    engine = SQLITE

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._file = connection
        super().__init__(connection, str(path))

    def read(self, table: CopiedTable, after: Position, at_most: int) -> list[tuple[Position, CopiedRow]]:
        beyond = " WHERE rowid > ?" if after else ""
        sql = f"SELECT rowid, {', '.join(table.columns)} FROM {table.name}{beyond} ORDER BY rowid LIMIT ?"
        return [((row[0],), row[1:]) for row in self._all(sql, *after, at_most)]

    def put(self, table: CopiedTable, rows: Sequence[CopiedRow]) -> None:
        marks = ", ".join("?" * len(table.columns))
        self._file.executemany(
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})", rows
        )

    def last_number(self, table: CopiedTable) -> int:
        return self._one("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?", table.name)

    def give_numbers_after(self, table: CopiedTable, number: int) -> None:
        self._all("DELETE FROM sqlite_sequence WHERE name = ?", table.name)
        self._all("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", table.name, number)

    def settle(self, tables: Sequence[CopiedTable]) -> None:
        """Its plans are made without figures. What was written lies in the log still."""
        self._all("PRAGMA wal_checkpoint(TRUNCATE)")
