"""Rows of calls that cost nothing and are made once: those that run, and those whose answers are kept. Everything here runs inside jobs.

The row is inserted before the tool runs: of any number who come at once with one key, one has it. A row that its process did not end is
a call that was interrupted, and nobody knows how far it came.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from server.store import node_rows
from server.store.idempotency.kept_answers import KeptRows
from server.store.jobs import Row, StoreDb
from server.store.task_leases import gone

# How long a key is remembered, from when its call began or ended.
KEY_KEPT_MS: Final = 24 * 3_600_000

# A key that is forgotten to make room: the call would be made again. Oldest first, and never one that runs.
KEPT_CALLS: Final = KeptRows(
    table="kept_calls",
    stranger="anonymous:",
    drop="DELETE FROM kept_calls WHERE id = ? AND state <> 'running'",
)


class KeptCall(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    call_key: str
    fingerprint: str
    keyed: bool
    state: str
    server: str
    tool: str
    caller: str
    owner: str | None
    created_at: int
    expires_at: int

    @classmethod
    def of(cls, row: Row) -> KeptCall:
        values: dict[str, Any] = {name: row[name] for name in cls.__struct_fields__}
        values["keyed"] = bool(row["keyed"])
        return cls(**values)

    def runs(self, boot_id: str) -> bool:
        """In this process."""
        return self.state == "running" and self.owner == boot_id

    def runs_elsewhere(self, boot_id: str) -> bool:
        """In another process, which lives: `found` has looked."""
        return self.state == "running" and self.owner != boot_id


# All but the answer, which may be large: whoever looks at a call does not read it.
_COLUMNS: Final = ", ".join(KeptCall.__struct_fields__)


class CallEnding(msgspec.Struct, frozen=True, kw_only=True):
    """How a call that ran here has ended. `state` None: it is as if it had never been made."""

    id: str
    state: str | None
    answer: bytes | None = None
    expires_at: int = 0


def claim(db: StoreDb, *, wanted: KeptCall, room: bool, now: int) -> KeptCall | None:
    """The row that stands for the call: an earlier one, or the wanted one. None: there is no room for another."""
    row = db.fetch_one(f"SELECT {_COLUMNS} FROM kept_calls WHERE call_key = ?", wanted.call_key)
    if row is not None:
        found = _as_it_is(db, KeptCall.of(row), wanted.owner)
        # Nobody asked for one without a key to be made once whatever happens.
        lost = found.owner != row["owner"] and not found.keyed
        if found.state == "running" or not (lost or found.expires_at <= now):
            return found
        db.execute("DELETE FROM kept_calls WHERE id = ?", found.id)
    if not room:
        return None
    db.execute(
        "INSERT INTO kept_calls (id, call_key, fingerprint, keyed, state, server, tool, caller, owner, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?)",
        wanted.id,
        wanted.call_key,
        wanted.fingerprint,
        int(wanted.keyed),
        wanted.server,
        wanted.tool,
        wanted.caller,
        wanted.owner,
        wanted.created_at,
        wanted.expires_at,
    )
    return wanted


def _as_it_is(db: StoreDb, found: KeptCall, boot_id: str | None) -> KeptCall:
    """One whose process is gone was interrupted."""
    if found.state != "running" or found.owner == boot_id or node_rows.is_alive(db, found.owner):
        return found
    return replace(found, state="interrupted", owner=None)


def take_up(db: StoreDb, call_id: str, *, owner: str, expires_at: int) -> bool:
    """Make one again that was interrupted. False: somebody else does."""
    return (
        db.execute(
            "UPDATE kept_calls SET state = 'running', owner = ?, answer_bytes = 0, answered_at = NULL, expires_at = ?"
            " WHERE id = ? AND (state = 'interrupted' OR (state = 'running' AND owner <> ?"
            f" AND {gone('kept_calls.owner')}))",
            owner,
            expires_at,
            call_id,
            owner,
        )
        == 1
    )


def end(db: StoreDb, *, ended: CallEnding, owner: str, now: int) -> None:
    if ended.state is None:
        db.execute("DELETE FROM kept_calls WHERE id = ? AND state = 'running' AND owner = ?", ended.id, owner)
        return
    db.execute(
        "UPDATE kept_calls SET state = ?, owner = NULL, answer = ?, answer_bytes = ?, answered_at = ?, expires_at = ?"
        " WHERE id = ? AND state = 'running' AND owner = ?",
        ended.state,
        ended.answer,
        max(len(ended.answer or b""), 1),
        now,
        ended.expires_at,
        ended.id,
        owner,
    )


def find(db: StoreDb, call_id: str, *, boot_id: str) -> tuple[KeptCall, bytes | None] | None:
    """With its answer as it is kept."""
    row = db.fetch_one(f"SELECT {_COLUMNS}, answer FROM kept_calls WHERE id = ?", call_id)
    return None if row is None else (_as_it_is(db, KeptCall.of(row), boot_id), row["answer"])
