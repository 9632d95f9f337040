"""The check of what gives rights: whether each row is as it was sealed, and whether the trail speaks against an account or a key.

A piece for each answer, like the check of the trail (audit.py). Also of a database that no server is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec

from auth import audit_rights
from auth.audit_rights import TrailOfRights
from auth.values import sealed
from auth.values.db import Row
from auth.values.sealed import SealedTable
from server.admin.control import CommandRefused, Handler
from server.admin.reading import number
from server.store import meta, sealed_rows
from server.store.jobs import Store, StoreDb
from server.store.sealed_rows import SealPiece, SealPlace

PIECES: Final = 20
NOT_SEALED: Final = "it is not as it was sealed"
# Whoever takes the record away would make a database of it that was never sealed.
NEVER_SEALED: Final = (
    "there is no record that this database was sealed: ostiary store seal shows who is in it"
)


class RightsAdmin(msgspec.Struct, frozen=True, kw_only=True):
    store: Store

    def commands(self) -> dict[str, Handler]:
        return {"rights.verify": self.verify}

    async def verify(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`at` is that of the answer before; None: that was all."""
        at, checked, found = _place(arguments), 0, list[dict[str, str]]()
        for _ in range(PIECES):
            if at is None:
                break
            piece = await self.store.read(partial(check, place=at))
            checked, found, at = checked + piece["checked"], found + piece["found"], piece["at"]
        return {"checked": checked, "found": found, "at": None if at is None else msgspec.to_builtins(at)}


def check(db: StoreDb, place: SealPlace) -> dict[str, Any]:
    """A job that reads: the next rows, and what is wrong with which."""
    piece = sealed_rows.piece(db, place)
    trail = audit_rights.read(db) if piece.rows and piece.table in (sealed.USERS, sealed.API_KEYS) else None
    found = [*_unsealed(piece), *([] if trail is None else _contradicted(piece, trail))]
    if place == SealPlace() and not sealed_rows.is_begun(db):
        found.insert(0, {"table": "meta", "key": meta.SEALS, "name": "", "why": NEVER_SEALED})
    return {"checked": len(piece.rows), "found": found, "at": piece.next}


def _unsealed(piece: SealPiece) -> list[dict[str, str]]:
    return [_told(piece.table, row, NOT_SEALED) for row in piece.unsealed]


def _contradicted(piece: SealPiece, trail: TrailOfRights) -> list[dict[str, str]]:
    table = piece.table
    against = trail.contradicts_account if table == sealed.USERS else trail.contradicts_key
    living = [(row, against(row)) for row in piece.rows if table.counts(row) and row not in piece.unsealed]
    return [_told(table, row, why) for row, why in living if why]


def _told(table: SealedTable, row: Row, why: str) -> dict[str, str]:
    """Name a row: what people call it, and where it is."""
    return {
        "table": table.name,
        "key": " ".join(str(row[name]) for name in table.keys),
        "name": str(row["name"]) if "name" in table.columns else "",
        "why": why,
    }


def _place(arguments: Mapping[str, Any]) -> SealPlace | None:
    value: object = arguments.get("at")
    if not isinstance(value, dict):
        return SealPlace()
    at = cast("dict[str, Any]", value)
    after = [str(key) for key in cast("list[object]", at.get("after") or [])]
    index = number(at, "table") or 0
    if index >= len(sealed.TABLES) or len(after) not in (0, sealed.TABLES[index].named_by):
        raise CommandRefused("at is where the answer before ended")
    return SealPlace(table=index, after=tuple(after))
