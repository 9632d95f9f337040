"""The interface of a database for identity: a small facade that a job receives inside its transaction.

A *job* is a plain function of a `Db`. Since the store may run a job twice, a job does no I/O of its own, reads no
clock, draws no randomness and changes nothing outside; `now` and secrets are its arguments. Returning commits, raising
rolls back. The server's store implements the facade.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

Row = Mapping[str, Any]
T = TypeVar("T")


class AuditEntry(NamedTuple):
    """A row of `audit` as it is handed in; the store numbers it. `auth/audit/audit_trail.py` makes them. Never a secret in it."""

    at: int
    event: str
    actor: str
    client_id: str | None
    grant_id: str | None
    ip: str | None
    user_agent: str | None
    outcome: str
    reason: str


class NotStored(Exception):
    """The store cannot do this now: its disk is full, say. Nothing was written. Raised by `JobStore`."""


class ChangedWhileRead(NotStored):
    """An answer that is not known: each time it was read, a change overtook the read."""

    def __init__(self) -> None:
        super().__init__("the login or key changed each time it was read")


def from_row(kind: Callable[..., T], row: Row, **more: Any) -> T:
    """Make a value whose fields are the columns of their names, but for those in `more`."""
    return kind(**{name: row[name] for name in kind.__annotations__ if name not in more}, **more)


class Db(Protocol):
    def execute(self, sql: str, *params: object) -> int:
        """Run one statement with `?` placeholders; how many rows it touched."""
        ...

    def put_in(self, sql: str, *params: object) -> None:
        """Run one INSERT or UPDATE of which nobody asks what came of it: its row is known not to be there yet, or it says itself what to do if it
        is, or if there is none. An engine may do it with the next statement or the commit."""
        ...

    def fetch_one(self, sql: str, *params: object) -> Row | None: ...

    def fetch_all(self, sql: str, *params: object) -> list[Row]: ...

    def foresee(self, sql: str, *params: object) -> None:
        """Say what will be fetched soon, if nothing is written before: an engine may ask it together with the next statement."""
        ...

    def changed(self, kind: str, *entity_ids: str) -> None:
        """Append to `changes`, so that every process drops what it caches of these entities (kinds: grant, user, client, key, api_key, epoch)."""
        ...

    def takes_away(self) -> None:
        """Say that this job takes a right away from somebody, before its first statement that writes: it must come through on a full
        disk as well, and is lent the room that is held for that."""
        ...

    def audit(self, entry: AuditEntry) -> None:
        """Append to `audit`, whose rows are chained so that none is altered or missing unnoticed."""
        ...

    def seal(self, said: bytes) -> str:
        """Return the MAC of what a row says, under a key that the database does not hold (`auth/values/sealed_rows.py`)."""
        ...

    def altered(self, table: str, key: str) -> None:
        """Note that this row is not as it was sealed: somebody is told, once."""
        ...


class JobStore(Protocol):
    """The store to which jobs are submitted. A `write` is durable when it returns; the server's store has the full contract."""

    async def write(self, job: Callable[[Db], T]) -> T: ...

    async def read(self, job: Callable[[Db], T]) -> T: ...

    def chain_audit(self, key: bytes) -> None:
        """Set the key of the audit chain. No job can append to `audit` before."""
        ...
