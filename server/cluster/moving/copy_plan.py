"""Which tables are copied from one store to another, in which order, and by which columns.

Told by the migrations themselves, so that a new table is copied without being named here. Both databases have it as SQLite says it: a test
holds their schemas together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

import msgspec

from server.store.migrate import Migration, statements

# What the other store has of its own, or is to begin without.
LEFT_BEHIND: Final = frozenset({
    "schema_version",  # it is brought to the same schema, at a time of its own
    "nodes",           # processes that serve: while rows are copied there are none
    "silent_nodes",    # of the other database
    "writers_turn",    # nothing is ever in it
    "acme_known",      # by processes that serve
})  # fmt: skip

# Rows that are read at once. Those with bytes may be megabytes each.
ROWS_AT_ONCE: Final = 2_000
LARGE_ROWS_AT_ONCE: Final = 8

KINDS: Final[Mapping[str, type]] = {"TEXT": str, "BIGINT": int, "INTEGER": int, "REAL": float, "BLOB": bytes}


class CopiedTable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    columns: Mapping[str, type]
    key: tuple[str, ...]
    numbered: str | None  # the column whose numbers the database gives

    @property
    def at_once(self) -> int:
        return LARGE_ROWS_AT_ONCE if bytes in self.columns.values() else ROWS_AT_ONCE


def tables(migrations: Sequence[Migration]) -> tuple[CopiedTable, ...]:
    """Those that others refer to come before them."""
    with closing(sqlite3.connect(":memory:")) as shape:
        for migration in migrations:
            for statement in statements(migration.sql):
                shape.execute(statement)
        names = [
            (name, "AUTOINCREMENT" in sql.upper())
            for name, sql in shape.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
            )
            if name not in LEFT_BEHIND
        ]
        found = {name: _table(shape, name, is_numbered=is_numbered) for name, is_numbered in names}
        refers = {
            name: {row[2] for row in shape.execute(f"PRAGMA foreign_key_list({name})")} - {name}
            for name in found
        }
    ordered: list[CopiedTable] = []
    while refers:
        ready = sorted(name for name, others in refers.items() if not others & refers.keys())
        if not ready:
            raise AssertionError(f"tables that refer to each other: {sorted(refers)}")
        for name in ready:
            del refers[name]
            ordered.append(found[name])
    return tuple(ordered)


def _table(shape: sqlite3.Connection, name: str, *, is_numbered: bool) -> CopiedTable:
    rows = shape.execute(f"PRAGMA table_info({name})").fetchall()
    key = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
    return CopiedTable(
        name=name,
        columns={row[1]: KINDS[row[2]] for row in rows},
        key=key,
        numbered=key[0] if is_numbered else None,
    )
