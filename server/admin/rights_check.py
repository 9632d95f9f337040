"""The check of what gives rights: whether each row is as it was sealed, and whether the trail speaks against an account or a key.

A piece for each answer, like the check of the trail (audit_commands.py). Also of a database that no server is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec

from auth.audit import audit_rights
from auth.audit.audit_rights import TrailOfRights, TrailPage
from auth.values import sealed_rows as sealed
from auth.values.database import Row
from auth.values.sealed_rows import TABLES, SealedTable
from server.admin.bounded_arguments import number
from server.admin.control import CommandRefused, Handler
from server.store import meta_rows, sealed_rows
from server.store.jobs import Store, StoreDb
from server.store.sealed_rows import SealPiece, SealPlace

# For each answer.
LOOKS: Final = 20
NOT_SEALED: Final = "it is not as it was sealed"
# Whoever takes the record away would make a database of it that was never sealed.
NEVER_SEALED: Final = (
    "there is no record that this database was sealed: ostiary store seal shows who is in it"
)


class RightsLook(msgspec.Struct, frozen=True, kw_only=True):
    """What one job of a check has read. Without a piece of rows: there is more of the trail to read before they can be judged."""

    page: TrailPage | None = None
    piece: SealPiece | None = None
    is_sealed: bool = True  # there is a record of it


class RightsCheck:
    """The way through all that gives rights, from this place on."""

    def __init__(self, at: SealPlace, trail: TrailOfRights) -> None:
        self.at: SealPlace | None = at
        self.trail = trail

    def look(self) -> Callable[[StoreDb], RightsLook]:
        """Return the job that reads what comes next."""
        return partial(_look, place=self.at or SealPlace(), after=self.trail.read_to)

    def judge(self, look: RightsLook) -> Mapping[str, Any]:
        """Go on by what was read, and say how many rows that were, and what is wrong with which."""
        knows_all = look.page is None or self.trail.take(look.page)
        if look.piece is None or not knows_all:
            return {"checked": 0, "found": []}
        found = [*_unsealed(look.piece), *(_contradicted(look.piece, self.trail) if look.page else ())]
        if not look.is_sealed:
            found.insert(0, {"table": "meta", "key": meta_rows.SEALS, "name": "", "why": NEVER_SEALED})
        self.at = look.piece.next
        return {"checked": len(look.piece.rows), "found": found}


class RightsAdmin:
    def __init__(self, *, store: Store) -> None:
        self._store = store
        self._trail = TrailOfRights()  # of the check that goes on: its next question need not read it again

    def commands(self) -> dict[str, Handler]:
        return {"rights.verify": self.verify}

    async def verify(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`at` is that of the answer before; None: that was all."""
        if arguments.get("at") is None:
            self._trail = TrailOfRights()
        check = RightsCheck(_place(arguments), self._trail)
        checked, found = 0, list[dict[str, str]]()
        for _ in range(LOOKS):
            if check.at is None:
                break
            piece = check.judge(await self._store.read(check.look()))
            checked, found = checked + piece["checked"], found + piece["found"]
        if check.at is None:
            self._trail = TrailOfRights()
        return {"checked": checked, "found": found, "at": msgspec.to_builtins(check.at)}


def _look(db: StoreDb, place: SealPlace, after: int) -> RightsLook:
    page = audit_rights.page(db, after) if TABLES[place.table] in (sealed.USERS, sealed.API_KEYS) else None
    if page is not None and not page.is_last:
        return RightsLook(page=page)
    is_sealed = place != SealPlace() or sealed_rows.is_begun(db)
    return RightsLook(page=page, piece=sealed_rows.piece(db, place), is_sealed=is_sealed)


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


def _place(arguments: Mapping[str, Any]) -> SealPlace:
    value: object = arguments.get("at")
    if not isinstance(value, dict):
        return SealPlace()
    at = cast("dict[str, Any]", value)
    after = [str(key) for key in cast("list[object]", at.get("after") or [])]
    index = number(at, "table") or 0
    if index >= len(TABLES) or len(after) not in (0, TABLES[index].named_by):
        raise CommandRefused("at is where the answer before ended")
    return SealPlace(table=index, after=tuple(after))
