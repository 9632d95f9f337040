"""A store with rows in every table: the chains as the program writes them, of everything else some rows that are as odd as their columns
allow. A table that is new is filled without being named here."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache, partial
from typing import Any, Final

from auth.values.database import AuditEntry
from server.cluster.moving.copy_plan import CopiedTable, tables
from server.payments.seller import wallets
from server.payments.seller.ledger import Books, chain_account
from server.store import meta_rows
from server.store.inline_store import InlineStore
from server.store.jobs import StoreDb
from server.store.migrate import packaged_migrations, statements
from tests.payments.seller.books_fakes import moved

NOW: Final = 1_800_000_000_000
TRAIL_KEY: Final = b"the key of this trail"
LEDGER_KEY: Final = b"and the key of this ledger"
FINGERPRINT: Final = "000102030405:abcdef"
ROWS: Final = 3
TABLES: Final = tables(packaged_migrations())

ODD_TEXTS: Final = ("", "é\N{SNOWMAN}\N{MUSICAL SYMBOL G CLEF}\n\t\\N'\"", "x" * 3_000)
ODD_NUMBERS: Final = (0, 2**63 - 1, -(2**63))
ODD_FRACTIONS: Final = (0.1, 1e-300, 3.0)
ODD_BYTES: Final = (b"", bytes(range(256)), b"\xff" * 9_000)


@cache
def shape() -> tuple[set[tuple[str, str]], Mapping[tuple[str, str], str]]:
    """Columns that may be empty; columns that refer to another table."""
    optional: set[tuple[str, str]] = set()
    refers: dict[tuple[str, str], str] = {}
    with closing(sqlite3.connect(":memory:")) as fresh:
        for migration in packaged_migrations():
            for statement in statements(migration.sql):
                fresh.execute(statement)
        for table in TABLES:
            for row in fresh.execute(f"PRAGMA table_info({table.name})"):
                if not row[3] and not row[5]:
                    optional.add((table.name, row[1]))
            for row in fresh.execute(f"PRAGMA foreign_key_list({table.name})"):
                refers[table.name, row[3]] = row[2]
    return optional, refers


async def fill(store: InlineStore) -> None:
    store.chain_audit(TRAIL_KEY)
    books = Books(LEDGER_KEY)
    books.keep(store)
    await store.write(begin)
    await store.write(partial(refusals, at_most=5))
    for number in range(ROWS):
        await store.write(partial(deposit, number=number, books=books))
    for table in TABLES:
        await store.write(partial(fill_table, table=table))
    await store.write(lambda db: db.execute("DELETE FROM changes WHERE seq = (SELECT max(seq) FROM changes)"))


def begin(db: StoreDb) -> None:
    db.begin_audit()
    meta_rows.put(db, meta_rows.KEY_FINGERPRINT, FINGERPRINT)
    db.begin_ledger()
    for number in range(4):
        db.audit(AuditEntry(NOW, f"event.{number}", "user:1", None, "grt_1", None, None, "ok", ODD_TEXTS[1]))
        db.changed("user", f"usr_{number}")


def refusals(db: StoreDb, *, at_most: int) -> None:
    """Swept out of the middle: a row stands for them, with a seal."""
    for _ in range(at_most):
        db.audit(AuditEntry(NOW - 10, "x", "anonymous", None, None, "::1", "", "refused", ""))
    db.audit(AuditEntry(NOW, "last", "user:1", None, None, None, None, "ok", ""))
    db.sweep_refusals(before=NOW - 5, at_most=at_most)


def deposit(db: StoreDb, *, number: int, books: Books) -> None:
    """Each from a chain of its own."""
    wallet = f"user:{number}"
    wallets.open_wallet(db, wallet, "USD", NOW)
    source = chain_account(f"eip155:{number}", "0xAbC")
    paid = moved("deposit", source, wallets.account_of(wallet), 7 + number, payment_id=f"pay_{number}")
    books.post(db, paid, NOW)


def fill_table(db: StoreDb, *, table: CopiedTable) -> None:
    there = db.fetch_one(f"SELECT count(*) AS count FROM {table.name}")
    assert there is not None
    if there["count"] >= ROWS:
        return
    optional, refers = shape()
    for number in range(ROWS):
        row = [_value(db, table, column, number, optional, refers) for column in table.columns]
        marks = ", ".join("?" * len(row))
        db.execute(f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})", *row)


def _value(
    db: StoreDb,
    table: CopiedTable,
    column: str,
    number: int,
    optional: set[tuple[str, str]],
    refers: Mapping[tuple[str, str], str],
) -> Any:
    other = refers.get((table.name, column))
    if other is not None:
        (key,) = next(each.key for each in TABLES if each.name == other)
        return db.fetch_all(f"SELECT {key} FROM {other} ORDER BY {key}")[number][key]
    if (table.name, column) in optional and number == 0:
        return None
    kind = table.columns[column]
    if kind is str:
        # What is unique anywhere differs; what is not is odd.
        return f"{column} {number} {ODD_TEXTS[number]}"
    if kind is int:
        return number + 1 if column in table.key or column == "amount" else ODD_NUMBERS[number]
    return (ODD_FRACTIONS if kind is float else ODD_BYTES)[number]
