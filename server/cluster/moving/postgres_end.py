"""The PostgreSQL database of a copy. Loaded only where one is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from server.cluster.moving.copy_ends import CopiedRow, CopyEnd, Position
from server.cluster.moving.copy_plan import CopiedTable
from server.cluster.postgres.postgres_connection import POSTGRES, PostgresConnection

_TYPES: Final[Mapping[type, str]] = MappingProxyType(
    {str: "text", int: "int8", float: "float8", bytes: "bytea"}
)


class PostgresEnd(CopyEnd):
    """In the order of keys, which is the one that an index holds ready."""

    engine = POSTGRES

    def __init__(self, connection: PostgresConnection, called: str) -> None:
        self._database = connection
        super().__init__(connection, called)

    def read(self, table: CopiedTable, after: Position, at_most: int) -> list[tuple[Position, CopiedRow]]:
        key = ", ".join(table.key)
        beyond = f" WHERE ({key}) > ({', '.join('?' * len(table.key))})" if after else ""
        sql = f"SELECT {', '.join(table.columns)} FROM {table.name}{beyond} ORDER BY {key} LIMIT ?"
        names = list(table.columns)
        places = [names.index(name) for name in table.key]
        return [(tuple(row[place] for place in places), row) for row in self._all(sql, *after, at_most)]

    def put(self, table: CopiedTable, rows: Sequence[CopiedRow]) -> None:
        types = [_TYPES[kind] for kind in table.columns.values()]
        self._database.copy_in(table.name, tuple(table.columns), types, rows)

    def empty(self, tables: Sequence[CopiedTable]) -> None:
        self._database.script(f"TRUNCATE {', '.join(table.name for table in tables)}")

    def last_number(self, table: CopiedTable) -> int:
        sql = f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {self._sequence(table)}"
        return self._one(sql)

    def give_numbers_after(self, table: CopiedTable, number: int) -> None:
        self._one(
            "SELECT setval(?::regclass, ?, ?::int8 = 1)",
            self._sequence(table),
            max(number, 1),
            int(number > 0),
        )

    def settle(self, tables: Sequence[CopiedTable]) -> None:
        """Without figures of a table that was filled just now its plans would go through all of it, until it looks by itself."""
        for table in tables:
            self._database.script(f"ANALYZE {table.name}")

    def _sequence(self, table: CopiedTable) -> str:
        return self._one("SELECT pg_get_serial_sequence(?, ?)", table.name, table.numbered)
