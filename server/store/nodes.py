"""Who is alive of those that use one database. Jobs.

A process has its row in `nodes` from its start to its end, and says again and again that it lives; one that did not, for ten seconds of the
database's clock, is found dead by any of the others, which take its row away. So "dead" is a fact that is committed like any other: whoever
is not in `nodes` is not there, and what it had in hand is anybody's. One that was taken for dead and is not enters again; what was taken from
it meanwhile it finds gone, because every write of a holder is conditional on being it.

Where the rows are in a file there is one process, and its row is the only one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from server.store import leases
from server.store.jobs import StoreDb

# Said every two seconds: what others take over waits for at most this long, and a look.
ALIVE_MILLIS: Final = 10_000
BEAT_SECONDS: Final = 2.0
MOST: Final = 1_000

# The clock of PostgreSQL, at the moment of the statement: theirs may differ from each other.
_NOW: Final = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"
_INSERT: Final = "INSERT INTO nodes (boot_id, name, home, address, version, started_at, alive_until) VALUES (?, ?, ?, ?, ?, ?, {until})"


class MemberNode(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    boot_id: str
    name: str  # for people: machine and process
    home: str  # of its data directory: nobody else has it at the same time
    address: str  # for people: where it is reached
    version: str
    started_at: int


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a process learns as it says that it lives."""

    alive: tuple[MemberNode, ...]  # with itself, the oldest first
    was_dead: bool = False  # the others had taken it for dead
    at: int = 0  # by the database's clock


def enter_alone(db: StoreDb, node: MemberNode) -> Beat:
    """Whoever holds the file alone: every other process is dead."""
    db.execute("DELETE FROM nodes")
    db.execute(_INSERT.format(until="?"), *msgspec.structs.astuple(node), node.started_at)
    leases.end_left(db)
    return Beat(alive=(node,))


def enter(db: StoreDb, node: MemberNode) -> Beat:
    """On a database that others may use. Who had the same data directory before is dead."""
    db.execute("DELETE FROM nodes WHERE home = ? OR boot_id = ?", node.home, node.boot_id)
    _insert(db, node)
    _bury(db)
    leases.end_left(db)
    return Beat(alive=alive(db))


def beat(db: StoreDb, node: MemberNode) -> Beat:
    known = db.execute(
        f"UPDATE nodes SET alive_until = {_NOW} + ? WHERE boot_id = ?", ALIVE_MILLIS, node.boot_id
    )
    if not known:
        _insert(db, node)
    if _bury(db):
        leases.end_left(db)
    row = db.fetch_one(f"SELECT {_NOW} AS at")
    return Beat(alive=alive(db), was_dead=not known, at=0 if row is None else row["at"])


def leave(db: StoreDb, node: MemberNode) -> None:
    """What it could not give back is anybody's now."""
    db.execute("DELETE FROM nodes WHERE boot_id = ?", node.boot_id)
    leases.end_left(db)


def alive(db: StoreDb) -> tuple[MemberNode, ...]:
    rows = db.fetch_all(
        "SELECT boot_id, name, home, address, version, started_at FROM nodes ORDER BY started_at, boot_id LIMIT ?",
        MOST,
    )
    return tuple(MemberNode(**row) for row in rows)


def is_alive(db: StoreDb, boot_id: str | None) -> bool:
    return (
        boot_id is not None
        and db.fetch_one("SELECT 1 AS one FROM nodes WHERE boot_id = ?", boot_id) is not None
    )


def _insert(db: StoreDb, node: MemberNode) -> None:
    db.execute(_INSERT.format(until=f"{_NOW} + ?"), *msgspec.structs.astuple(node), ALIVE_MILLIS)


def _bury(db: StoreDb) -> int:
    return db.execute(f"DELETE FROM nodes WHERE alive_until < {_NOW}")
