"""The check whether all that gives rights is as it was sealed, of the running server or of a database: a part of `ostiary verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from server.cli import local, terminal

if TYPE_CHECKING:
    from server.cli.manage.unserved_store import UnservedStore

# Rows that are named; the number of the rest is told.
TOLD: Final = 20


def of_server() -> dict[str, Any]:
    return _together(local.pieces("rights.verify"))


def of_database(opened: UnservedStore) -> dict[str, Any] | None:
    """Check one that no server is asked about; None: it is older than the seals."""
    from auth.audit.audit_rights import TrailOfRights
    from server.admin.rights_check import RightsCheck
    from server.store.sealed_rows import SealPlace

    if not opened.has_seals:
        return None

    def pieces() -> Iterator[Mapping[str, Any]]:
        check = RightsCheck(SealPlace(), TrailOfRights())
        while check.at is not None:
            yield check.judge(opened.reading(check.look()))

    return _together(pieces())


def _together(pieces: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    checked, more, found = 0, 0, list[Mapping[str, Any]]()
    for piece in pieces:
        checked += piece["checked"]
        found += piece["found"][: TOLD - len(found)]
        more += len(piece["found"])
    return {"sound": not more, "checked": checked, "altered": more, "rows": found}


def tell(rights: Mapping[str, Any] | None, speak: Callable[[str], None]) -> None:
    if rights is None:
        terminal.say("who may do what is not sealed in this database: it is of an older version")
        return
    if rights["sound"]:
        speak(f"rights: {rights['checked']} rows are as they were sealed")
        return
    for row in rights["rows"]:
        name = f" ({terminal.clean(row['name'])})" if row["name"] else ""
        terminal.error(f"{row['table']} {terminal.clean(row['key'])}{name}: {row['why']}")
    if rights["altered"] > len(rights["rows"]):
        terminal.say(f"and {rights['altered'] - len(rights['rows'])} more")
    terminal.say_hint("such a row lets nobody in; remove it, or restore a back-up: docs/security.md")
