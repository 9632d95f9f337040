"""What goes to PostgreSQL and comes back: the types that jobs use, in binary, and the outcome of a statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.types.bool import BoolBinaryLoader
from psycopg.types.none import NoneDumper
from psycopg.types.numeric import (
    Float8BinaryLoader,
    FloatBinaryDumper,
    Int2BinaryLoader,
    Int4BinaryLoader,
    Int8BinaryDumper,
    Int8BinaryLoader,
    NumericBinaryLoader,
)
from psycopg.types.string import ByteaBinaryLoader, BytesBinaryDumper, StrBinaryDumper, TextBinaryLoader

from server.cluster.postgres.postgres_trips import PostgresTrips


class _Whole(NumericBinaryLoader):
    """What PostgreSQL adds up of whole numbers is a decimal there. No column is one."""

    def load(self, data: Any) -> Any:
        value = super().load(data)
        return int(value) if value == value.to_integral_value() else float(value)


class _Truth(Int8BinaryDumper):
    """Columns for yes and no are numbers."""

    def dump(self, obj: Any) -> Any:
        return super().dump(int(obj))


def adapters() -> AdaptersMap:
    """The types that jobs use, and no other: a list would become an array, where SQLite refuses it."""
    found = AdaptersMap(None, psycopg.adapters.types)
    for kind, dumper in (
        (type(None), NoneDumper), (str, StrBinaryDumper), (int, Int8BinaryDumper), (bool, _Truth),
        (float, FloatBinaryDumper), (bytes, BytesBinaryDumper), (bytearray, BytesBinaryDumper), (memoryview, BytesBinaryDumper),
    ):  # fmt: skip
        found.register_dumper(kind, dumper)
    for name, loader in (
        ("text", TextBinaryLoader), ("varchar", TextBinaryLoader), ("name", TextBinaryLoader), (0, TextBinaryLoader),
        ("bool", BoolBinaryLoader), ("bytea", ByteaBinaryLoader), ("float8", Float8BinaryLoader), ("int2", Int2BinaryLoader),
        ("int4", Int4BinaryLoader), ("int8", Int8BinaryLoader), ("numeric", _Whole),
    ):  # fmt: skip
        found.register_loader(name, loader)
    return found


class PostgresCursor:
    """A statement's outcome."""

    __slots__ = ("_result", "_seen", "_trips", "description")

    def __init__(
        self, trips: PostgresTrips, result: PGresult, description: Sequence[tuple[str]] | None
    ) -> None:
        self._trips = trips
        self._result = result
        self._seen = 0
        self.description = description

    @property
    def rowcount(self) -> int:
        if self.description is not None:
            return self._result.ntuples
        changed = self._result.command_tuples
        return -1 if changed is None else changed

    def fetchone(self) -> Sequence[Any] | None:
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int, /) -> Sequence[Sequence[Any]]:
        first, self._seen = self._seen, min(self._seen + size, self._result.ntuples)
        return self._trips.rows(self._result, first, self._seen) if first < self._seen else []

    def fetchall(self) -> Sequence[Sequence[Any]]:
        return self.fetchmany(self._result.ntuples)

    def close(self) -> None:
        self._seen = self._result.ntuples


def names_of(result: PGresult) -> Sequence[tuple[str]] | None:
    if result.status != ExecStatus.TUPLES_OK:
        return None
    return tuple(((result.fname(column) or b"").decode(),) for column in range(result.nfields))
