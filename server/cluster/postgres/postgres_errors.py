"""From what PostgreSQL says to the store's error tree. What it says of values is left out: they may be anybody's secrets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from psycopg import Error
from psycopg.errors import lookup

from server.store.jobs import (
    Collided,
    ConstraintFailed,
    DiskError,
    DiskFull,
    JobTooSlow,
    StatementFailed,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
    StoreUnreachable,
)

# By SQLSTATE; two characters are a class of them (PostgreSQL, appendix A).
_BY_STATE: Final[Mapping[str, tuple[type[StoreError], str]]] = MappingProxyType(
    {
        "57014": (JobTooSlow, "the database work took too long and was stopped"),
        "25006": (StoreReadOnly, "the database takes no writes: it is a standby, or was made read-only"),
        "42501": (StoreReadOnly, "the database does not let this user do that"),
        "53100": (DiskFull, "the disk of the database server is full"),
        "53200": (StoreBusy, "the database server has no memory left"),
        "53300": (StoreUnreachable, "the database server takes no more connections"),
        "55P03": (StoreBusy, "another connection is using the database"),
        "08":    (StoreUnreachable, "the connection to the database was lost"),
        "57P":   (StoreUnreachable, "the database server was stopped or restarted"),
        "25P03": (StoreUnreachable, "the database server ended a transaction that stood still"),
        "53":    (StoreBusy, "the database server has run out of something"),
        "58":    (DiskError, "the database server's disk refused to be read or written"),
        "XX001": (StoreDamaged, "the database is damaged"),
        "XX002": (StoreDamaged, "an index of the database is damaged"),
    }
)  # fmt: skip

# Those of a file speak of its directory.
_HINTS: Final[Mapping[type[StoreError], str]] = MappingProxyType(
    {
        StoreReadOnly: "is it the primary, and do the tables belong to the user that the address names?",
        DiskFull: "free some space on the database server; nothing else needs to be done",
        StoreDamaged: "stop the server, and restore a back-up of the database: pg_restore",
    }
)

# Two transactions got in each other's way, and this one had to give in.
_COLLISIONS: Final = frozenset({"40001", "40P01"})

# What a connection has prepared (`SELECT *` of a table that has a column more since) is of no use any more: a new one prepares it anew.
_PLANS_ARE_OLD: Final = "RevalidateCachedQuery"

# What a transaction that is to write is told by a standby at its beginning, and later on.
STANDS_BY: Final = frozenset({"0A000", "25006"})

# It stood still for too long, and was ended before whatever was sent afterwards.
_STOOD_STILL: Final = "25P03"

_CONSTRAINTS: Final[Mapping[str, str]] = MappingProxyType(
    {"23505": "UNIQUE", "23503": "FOREIGN KEY", "23502": "NOT NULL", "23514": "CHECK"}
)


class PostgresRefused(Exception):
    """What PostgreSQL answered, in our words."""

    def __init__(
        self,
        kind: type[StoreError],
        message: str,
        *,
        is_undone: bool = False,
        state: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.hint = hint or _HINTS.get(kind)
        self.state = state  # as the server has it; "": it did not say
        self.is_undone = is_undone  # the server itself said that the transaction counts for nothing

    def as_store_error(self) -> StoreError:
        return Collided() if self.kind is Collided else self.kind(str(self), hint=self.hint)


def refused(error: Error, *, is_lost: bool) -> PostgresRefused:
    """`is_lost`: the connection is gone, whatever the error says of itself."""
    state = error.sqlstate or ""
    if error.diag.source_function == _PLANS_ARE_OLD:
        return PostgresRefused(StoreUnreachable, "a newer version has added to the tables of the database")
    if state in _COLLISIONS:
        return PostgresRefused(Collided, "", state=state)
    for length in (5, 3, 2):
        if (known := _BY_STATE.get(state[:length])) is not None:
            return PostgresRefused(*known, is_undone=state == _STOOD_STILL, state=state)
    if is_lost:
        return PostgresRefused(StoreUnreachable, "the connection to the database was lost")
    if state.startswith("23"):
        return PostgresRefused(ConstraintFailed, _constraint(error, state))
    if state.startswith("42"):  # of a statement as it was written, without its parameters
        return PostgresRefused(StatementFailed, error.diag.message_primary or state)
    return PostgresRefused(
        StatementFailed, f"the database refused a value or statement: {_name(state, error)}", state=state
    )


def refused_by_standby() -> PostgresRefused:
    return PostgresRefused(*_BY_STATE["25006"], state="25006")


def _constraint(error: Error, state: str) -> str:
    """As SQLite says it; the detail of PostgreSQL's own words has the values."""
    found = error.diag
    what = found.column_name or found.constraint_name or ""
    return f"{_CONSTRAINTS.get(state, 'a')} constraint failed: {found.table_name or ''}.{what}"


def _name(state: str, error: Error) -> str:
    if not state:  # psycopg itself refused: a type that no column has, a character that no text may have
        return type(error).__name__
    try:
        return f"{lookup(state).__name__} ({state})"
    except KeyError:
        return state
