"""Who is alive of those that use one database. Jobs.

A process has its row in `nodes` from its start to its end, and says again and again that it lives; one that did not, for ten seconds of the
database's clock, is found dead by any of the others, which take its row away. So "dead" is a fact that is committed like any other: whoever
is not in `nodes` is not there, and what it had in hand is anybody's. One that was taken for dead and is not enters again; what was taken from
it meanwhile it finds gone, because every write of a holder is conditional on being it. Whoever has just come, or was silent itself, finds
nobody dead before the others have had the time to say that they live: it may have been the database that was away.

For people, each says as well how it is, and who was found dead is remembered in `silent_nodes` until it is back, or for a day.

Where the rows are in a file there is one process, and its row is the only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from server.store import task_leases
from server.store.jobs import Row, StoreDb

# Said every two seconds: what others take over waits for at most this long, and a look.
ALIVE_MILLIS: Final = 10_000
BEAT_SECONDS: Final = 2.0
# Whoever says it later than this was kept from saying it, and so may the others have been; they have said it when so much time has passed.
LATE_MILLIS: Final = 4_000
PATIENCE_SECONDS: Final = 2 * BEAT_SECONDS + 1.0
MOST: Final = 1_000

# A node that is silent is spoken of for so long: whoever was asleep reads of it.
SILENT_KEPT_MILLIS: Final = 24 * 3_600_000
# Of what is wrong with one: it is for reading.
TROUBLE_CHARACTERS: Final = 500

# The clock of PostgreSQL, at the moment of the statement: theirs may differ from each other.
_NOW: Final = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"
_COLUMNS: Final = "boot_id, name, home, address, version, started_at, place, worker"
_INSERT: Final = f"INSERT INTO nodes ({_COLUMNS}, state, trouble, alive_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {{until}})"


class MemberNode(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    boot_id: str
    name: str  # for people: machine and process
    home: str  # of its data directory: nobody else has it at the same time
    address: str  # for people: where it is reached
    version: str
    started_at: int
    place: str = ""  # the same for all processes of one parent; "": a version that does not say
    worker: int = 0  # its number among them


class NodeSaid(msgspec.Struct, frozen=True):
    """How it is, as it says itself."""

    # Starting, serving, troubled (it serves nobody well) or draining; "": a version that does not say.
    state: str = "starting"
    trouble: str = ""


_SERVES: Final = NodeSaid("serving")


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One process, for people: one that lives, or that nobody has heard of."""

    node: MemberNode
    said: NodeSaid
    quiet_ms: int  # since it said last that it lives, by the database's clock
    dead: bool = False  # what it had in hand is the others'


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a process learns as it says that it lives."""

    alive: tuple[MemberNode, ...]  # with itself, the oldest first
    was_dead: bool = False  # the others had taken it for dead
    was_late: bool = False
    at: int = 0  # by the database's clock
    silent: int | None = None  # ended without a word, and neither back nor replaced; None: not counted


def enter_alone(db: StoreDb, node: MemberNode) -> Beat:
    """Whoever holds the file alone: every other process is dead."""
    db.execute("DELETE FROM nodes")
    _put(db, node, NodeSaid(), until="?", millis=node.started_at)
    task_leases.end_left(db)
    return Beat(alive=(node,))


def enter(db: StoreDb, node: MemberNode) -> Beat:
    """On a database that others may use. Who had the same data directory before is dead."""
    db.execute("DELETE FROM nodes WHERE home = ? OR boot_id = ?", node.home, node.boot_id)
    _insert(db, node, NodeSaid())
    _is_back(db, node)
    task_leases.end_left(db)
    return Beat(alive=tuple(_node(row) for row in _all(db)))


def beat(
    db: StoreDb,
    node: MemberNode,
    said: NodeSaid = _SERVES,
    *,
    buries: bool = True,
    counts_silent: bool = False,
) -> Beat:
    """`buries`: whoever was silent for too long is dead from here on."""
    rows = _all(db)
    own = next((row for row in rows if row["boot_id"] == node.boot_id), None)
    late = own is None or own["at"] - (own["alive_until"] - ALIVE_MILLIS) > LATE_MILLIS
    known = db.execute(
        f"UPDATE nodes SET alive_until = {_NOW} + ?, state = ?, trouble = ? WHERE boot_id = ?",
        ALIVE_MILLIS,
        said.state,
        said.trouble[:TROUBLE_CHARACTERS],
        node.boot_id,
    )
    if not known:
        _insert(db, node, said)
        _is_back(db, node)
    others = [row for row in rows if row is not own]
    dead = [row for row in others if row["alive_until"] < row["at"]] if buries and not late else []
    living = [_node(row) for row in others if row not in dead]
    alive = tuple(sorted((node, *living), key=lambda each: (each.started_at, each.boot_id)))
    if dead:
        _bury(db, dead, alive)
        task_leases.end_left(db)
    at = max((row["at"] for row in rows), default=0)
    silent = _count_silent(db) if counts_silent else None
    return Beat(alive=alive, was_dead=not known, was_late=late, at=at, silent=silent)


def leave(db: StoreDb, node: MemberNode) -> None:
    """What it could not give back is anybody's now."""
    db.execute("DELETE FROM nodes WHERE boot_id = ?", node.boot_id)
    task_leases.end_left(db)


def is_alive(db: StoreDb, boot_id: str | None) -> bool:
    return (
        boot_id is not None
        and db.fetch_one("SELECT 1 AS one FROM nodes WHERE boot_id = ?", boot_id) is not None
    )


def look(db: StoreDb) -> tuple[NodeSeen, ...]:
    """All of them for whoever looks after them, the oldest first, and behind them those that fell silent."""
    here = db.fetch_all(
        f"SELECT {_COLUMNS}, state, trouble, {_NOW} - (alive_until - ?) AS quiet FROM nodes ORDER BY started_at, boot_id LIMIT ?",
        ALIVE_MILLIS,
        MOST,
    )
    gone = db.fetch_all(
        f"SELECT {_COLUMNS}, {_NOW} - heard_at AS quiet FROM silent_nodes WHERE heard_at > {_NOW} - ?"
        f" AND {task_leases.gone('silent_nodes.boot_id')}"
        " ORDER BY heard_at DESC, boot_id LIMIT ?",
        SILENT_KEPT_MILLIS,
        MOST,
    )
    return (
        *(
            NodeSeen(
                node=_node(row),
                said=NodeSaid(row["state"], row["trouble"]),
                quiet_ms=max(0, row["quiet"]),
                dead=row["quiet"] > ALIVE_MILLIS,
            )
            for row in here
        ),
        *(NodeSeen(node=_node(row), said=NodeSaid(""), quiet_ms=row["quiet"], dead=True) for row in gone),
    )


def _count_silent(db: StoreDb) -> int:
    row = db.fetch_one(
        f"SELECT count(*) AS silent FROM silent_nodes WHERE heard_at > {_NOW} - ?"
        f" AND {task_leases.gone('silent_nodes.boot_id')}",
        SILENT_KEPT_MILLIS,
    )
    return 0 if row is None else row["silent"]


def _all(db: StoreDb) -> list[Row]:
    return db.fetch_all(
        f"SELECT {_COLUMNS}, alive_until, {_NOW} AS at FROM nodes ORDER BY started_at, boot_id LIMIT ?", MOST
    )


def _bury(db: StoreDb, dead: Sequence[Row], alive: Sequence[MemberNode]) -> None:
    """That they were there is remembered, unless somebody is in their place."""
    for row in dead:
        db.execute("DELETE FROM nodes WHERE boot_id = ?", row["boot_id"])
        node = _node(row)
        if not any(_replaces(other, node) for other in alive):
            db.execute(
                f"INSERT INTO silent_nodes ({_COLUMNS}, heard_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (boot_id) DO UPDATE SET heard_at = excluded.heard_at",
                *msgspec.structs.astuple(node),
                row["alive_until"] - ALIVE_MILLIS,
            )


def _is_back(db: StoreDb, node: MemberNode) -> None:
    for row in db.fetch_all(f"SELECT {_COLUMNS} FROM silent_nodes ORDER BY boot_id LIMIT ?", MOST):
        if row["boot_id"] == node.boot_id or _replaces(node, _node(row)):
            db.execute("DELETE FROM silent_nodes WHERE boot_id = ?", row["boot_id"])


def _replaces(new: MemberNode, old: MemberNode) -> bool:
    """Whether it was started where the other one was: as the same worker, or as the first or only process of all that its parent had. A
    machine that was started again is known by its name and address."""
    place = new.place == old.place != "" or (machine_of(new), new.address) == (machine_of(old), old.address)
    return place and (new.worker == old.worker or (new.worker <= 1 and new.started_at > old.started_at))


def machine_of(node: MemberNode) -> str:
    return node.name.rpartition(":")[0]


def _node(row: Row) -> MemberNode:
    return MemberNode(**{name: row[name] for name in MemberNode.__struct_fields__})


def _insert(db: StoreDb, node: MemberNode, said: NodeSaid) -> None:
    _put(db, node, said, until=f"{_NOW} + ?", millis=ALIVE_MILLIS)


def _put(db: StoreDb, node: MemberNode, said: NodeSaid, *, until: str, millis: int) -> None:
    db.execute(
        _INSERT.format(until=until),
        *msgspec.structs.astuple(node),
        said.state,
        said.trouble[:TROUBLE_CHARACTERS],
        millis,
    )
