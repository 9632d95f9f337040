"""What a store says of being moved: that it is a copy which is not complete yet, or that it was copied and is not the one that counts.

Rows are served from one store at a time. Of two that both went on, each would let in what was ended in the other. Copying is
`server/cluster/moving/`; jobs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from server.store import meta_rows
from server.store.jobs import CannotOpen, StoreDb

# In the one that is copied, and in the one that it is copied to.
AWAY: Final = "copied_away"
HERE: Final = "copied_here"
MARKS: Final = (AWAY, HERE)


class CopiedAway(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    copy: str
    to: str  # as people wrote it; never an address
    at: int | None = None  # when all was there; None: it is under way


class CopiedHere(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the copy has come. It goes when all is there."""

    copy: str
    source: str
    key: str  # fingerprint of the key file that the rows belong to
    schema: int
    begun: int
    table: str = ""  # that is being copied
    after: tuple[int | str, ...] = ()  # where its next row comes after
    rows: dict[str, int] = {}  # of each table, as they were read
    sums: dict[str, str] = {}  # what they add up to


class StoreMoved(CannotOpen):
    """It is not to be served."""

    lasting = True


def away(db: StoreDb) -> CopiedAway | None:
    text = meta_rows.get(db, AWAY)
    return None if text is None else msgspec.json.decode(text, type=CopiedAway)


def here(db: StoreDb) -> CopiedHere | None:
    text = meta_rows.get(db, HERE)
    return None if text is None else msgspec.json.decode(text, type=CopiedHere)


def put(db: StoreDb, mark: CopiedAway | CopiedHere) -> None:
    meta_rows.put(db, AWAY if isinstance(mark, CopiedAway) else HERE, msgspec.json.encode(mark).decode())


def begin_serving(db: StoreDb) -> None:
    """For the start of a server. A copy of it that is under way is void from here on: what comes now is not in it. Raises `StoreMoved`."""
    look(db)
    if away(db) is not None:
        db.execute("DELETE FROM meta WHERE key = ?", AWAY)


def look(db: StoreDb) -> None:
    """Raises `StoreMoved`, as the start of a server would."""
    copied, moved = here(db), away(db)
    if copied is not None:
        raise StoreMoved(
            f"what is in this store is a copy of {copied.source} that was cut off",
            hint="go on with it: give the same `ostiary store copy` again",
        )
    if moved is not None and moved.at is not None:
        raise gone(moved)


def gone(mark: CopiedAway) -> StoreMoved:
    when = datetime.fromtimestamp((mark.at or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    return StoreMoved(
        f"this store was moved to {mark.to} on {when} UTC: what came since, and what was ended since, is there",
        hint=f"serve from {mark.to}, or move it back: ostiary store copy; docs/scale.md says what to do if it is lost",
    )
