"""The sealed rows of a whole database (`auth/values/sealed_rows.py`): whether it was sealed at all, going through all of them, sealing those of before.

A database that is new is sealed from its first row on. One of an older version is not, and no server runs on it: whoever is at the machine
with the key looks at who is in it, and has it sealed. That it was is a record in `meta`, which lets a server start and nobody in. Jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from auth.values import sealed_rows
from auth.values.database import Db, Row
from auth.values.sealed_rows import TABLES, SealedTable
from server.store import meta_rows
from server.store.jobs import CannotOpen, StoreDb

_BEGUN: Final = b"begun"
PIECE: Final = 500
DIGEST_DIGITS: Final = 16


class RightsNotSealed(CannotOpen):
    """The database is of a version that sealed nothing, or its record was taken away."""

    lasting = True

    def __init__(self) -> None:
        super().__init__(
            "who may do what is not sealed in this database: it comes from an older version, or somebody has altered it",
            hint="stop every node; then, at the machine with the key: ostiary store seal, which shows who is in it",
        )


class SealPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the next piece begins: after this row of this table."""

    table: int = 0
    after: tuple[str, ...] = ()


class SealPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of one table, as they are, and those of them that are not as they were sealed."""

    table: SealedTable
    rows: Sequence[Row]
    unsealed: Sequence[Row]
    next: SealPlace | None  # None: these were the last


class UnsealedSum:
    """The sum of all that unsealed rows say, under the key: nobody else can put in other rows that come to the same."""

    def __init__(self) -> None:
        self._rows = hashlib.sha256()

    def add(self, piece: SealPiece) -> None:
        for row in piece.unsealed:
            self._rows.update(sealed_rows.said(piece.table, row) + b"\n")

    def digest(self, db: Db) -> str:
        return db.seal(b"unsealed " + self._rows.digest())[:DIGEST_DIGITS]


def begin(db: StoreDb) -> None:
    """Note that what is in this database is sealed."""
    meta_rows.put(db, meta_rows.SEALS, db.seal(_BEGUN))


def is_begun(db: StoreDb) -> bool:
    return meta_rows.get(db, meta_rows.SEALS) == db.seal(_BEGUN)


def piece(db: Db, place: SealPlace) -> SealPiece:
    """Look at the next rows."""
    table = TABLES[place.table]
    keys, marks = ", ".join(table.keys), ", ".join("?" * table.named_by)
    beyond = f" WHERE ({keys}) > ({marks})" if place.after else ""
    sql = f"SELECT * FROM {table.name}{beyond} ORDER BY {keys} LIMIT ?"
    rows = db.fetch_all(sql, *place.after, PIECE)
    if len(rows) == PIECE:
        go_on = SealPlace(table=place.table, after=tuple(rows[-1][name] for name in table.keys))
    else:
        go_on = SealPlace(table=place.table + 1) if place.table + 1 < len(TABLES) else None
    unsealed = [row for row in rows if not sealed_rows.fits(db, table, row)]
    return SealPiece(table=table, rows=rows, unsealed=unsealed, next=go_on)


def seal_piece(db: Db, place: SealPlace) -> SealPiece:
    """Seal the next rows as they are."""
    found = piece(db, place)
    for row in found.unsealed:
        sealed_rows.reseal(db, found.table, row)
    return found
