"""Sweeping programs that registered themselves and that nobody uses: many do so anew with every login.

One that nobody ever let in goes early, one that was let in when it has long not been used and no login of it lives. What is left of
its logins goes with it: they are over, and rows must not refer to nobody. A client that the operator added is never swept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from server.store.jobs import StoreDb

# Clients per write: each is a handful of statements.
PIECE: Final = 50
# And per read, of those that may be over.
LOOKED_AT: Final = 500

ClientPlace: TypeAlias = tuple[int, str]  # when it registered itself, and its id
Look: TypeAlias = Literal["unused", "idle"]

# Those that may be over, by their index; what else there is of each is looked up by itself, so that no plan ever goes through all logins.
# What was let in was registered before that, so whoever came lately is not gone through; the others that are in use are, by the index.
_LOOKED_FOR: Final[Mapping[Look, str]] = MappingProxyType(
    {
        "unused": "created_at <= ? AND authorized_at IS NULL",
        "idle": "created_at <= ? AND authorized_at <= ? AND (last_used_at IS NULL OR last_used_at <= ?)",
    }
)
LOOKS: Final[Sequence[Look]] = ("unused", "idle")

_OVER: Final = (
    "kind = 'dynamic'"
    " AND ((authorized_at IS NULL AND created_at <= ?)"
    " OR (authorized_at <= ? AND (last_used_at IS NULL OR last_used_at <= ?)))"
    " AND NOT EXISTS (SELECT 1 FROM grants g WHERE g.client_id = clients.id"
    " AND g.revoked_at IS NULL AND g.expires_at > ? AND g.idle_until > ?)"
    # Somebody may be letting it in at this moment.
    " AND NOT EXISTS (SELECT 1 FROM device_codes d WHERE d.client_id = clients.id AND d.expires_at > ?)"
    " AND NOT EXISTS (SELECT 1 FROM authorization_codes a WHERE a.client_id = clients.id AND a.expires_at > ?)"
    " AND NOT EXISTS (SELECT 1 FROM pushed_requests p WHERE p.client_id = clients.id AND p.expires_at > ?)"
)


def _values(unused: int, idle: int, now: int) -> tuple[int, ...]:
    return (unused, idle, idle, now, now, now, now, now)


class FoundClients(msgspec.Struct, frozen=True):
    ids: list[str]
    after: ClientPlace | None  # where the next ones come after; None: those were all


def find(
    db: StoreDb, look: Look, *, unused: int, idle: int, now: int, after: ClientPlace | None = None
) -> FoundClients:
    """Ids of clients never let in since before `unused`, or of those not used since `idle`: the next ones by age."""
    further = "" if after is None else " AND (created_at, id) > (?, ?)"
    rows = db.fetch_all(
        f"SELECT created_at, id FROM clients WHERE kind = 'dynamic' AND {_LOOKED_FOR[look]}{further}"
        " ORDER BY created_at, id LIMIT ?",
        *((unused,) if look == "unused" else (idle, idle, idle)),
        *(after or ()),
        LOOKED_AT,
    )
    values = _values(unused, idle, now)
    ids = [
        row["id"]
        for row in rows
        if db.fetch_one(f"SELECT id FROM clients WHERE id = ? AND {_OVER}", row["id"], *values) is not None
    ]
    last = rows[-1] if len(rows) == LOOKED_AT else None
    return FoundClients(ids, None if last is None else (last["created_at"], last["id"]))


def delete(db: StoreDb, *, ids: Sequence[str], unused: int, idle: int, now: int) -> int:
    """How many of them are gone: it may be otherwise with them by now."""
    gone = 0
    for client_id in ids:
        sql = f"SELECT id FROM clients WHERE id = ? AND {_OVER}"
        if db.fetch_one(sql, client_id, *_values(unused, idle, now)) is None:
            continue
        db.execute("DELETE FROM device_codes WHERE client_id = ?", client_id)
        db.execute("DELETE FROM grants WHERE client_id = ?", client_id)
        gone += db.execute("DELETE FROM clients WHERE id = ?", client_id)
        db.changed("client", client_id)
    return gone
