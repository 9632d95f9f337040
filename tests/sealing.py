"""Rows that a test writes by itself, sealed as the program would have sealed them. What somebody alters without the key is written to the
connection, past this."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from auth.audit import audit_trail
from auth.values import sealed_rows
from auth.values.database import Db
from server.store import keyfile
from server.store.sqlite_connect import connect_writer
from server.store.transactions import JOB_SECONDS, PendingJob, Transactions

_WRITES: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE)\s+(\w+)")
_TABLES: Final = {table.name: table for table in sealed_rows.TABLES}


def seal_written(db: Db, sql: str) -> None:
    """Seal what is in the table that this statement wrote to."""
    written = _WRITES.match(sql)
    table = None if written is None else _TABLES.get(written[1])
    if table is None:
        return
    for row in db.fetch_all(f"SELECT * FROM {table.name}"):
        if table.counts(row):
            sealed_rows.reseal(db, table, row)


def by_hand(sql: str, *params: object) -> Callable[[Db], int]:
    """Return the job that runs this statement, and seals what it wrote."""

    def job(db: Db) -> int:
        touched = db.execute(sql, *params)
        seal_written(db, sql)
        return touched

    return job


def write_to_file(data_dir: Path, sql: str, *params: object) -> None:
    """Run a statement on the database of a program, and seal what it wrote with the program's key."""
    key = keyfile.parse((data_dir / "master.key").read_text("utf-8"), "master.key")
    with closing(connect_writer(data_dir / "ostiary.db")) as connection:
        transactions = Transactions(connection, job_seconds=JOB_SECONDS)
        transactions.chain_audit(key.subkey(f"{audit_trail.KEY_PURPOSE}/1"), ())
        work = PendingJob(by_hand(sql, *params))
        transactions.run_batch([work], at=0)
        work.result()
