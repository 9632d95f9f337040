"""Rows that a test writes by itself, sealed as the program would have sealed them. What somebody alters without the key is written to the
connection, past this."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from auth.values import sealed
from auth.values.db import Db

_WRITES: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE)\s+(\w+)")
_TABLES: Final = {table.name: table for table in sealed.TABLES}


def seal_written(db: Db, sql: str) -> None:
    """Seal what is in the table that this statement wrote to."""
    written = _WRITES.match(sql)
    table = None if written is None else _TABLES.get(written[1])
    if table is None:
        return
    for row in db.fetch_all(f"SELECT * FROM {table.name}"):
        if table.counts(row):
            sealed.reseal(db, table, row)


def by_hand(sql: str, *params: object) -> Callable[[Db], int]:
    """Return the job that runs this statement, and seals what it wrote."""

    def job(db: Db) -> int:
        touched = db.execute(sql, *params)
        seal_written(db, sql)
        return touched

    return job
