"""The store's contract: what a job is, what it is handed, what it may raise, and what a store promises.

A *job* is a plain function of a `StoreDb`. Returning commits, raising rolls back. A job may run twice, so it does no I/O of its own,
reads no clock, draws no randomness, logs nothing and changes nothing outside; `now` and secrets are its arguments. A refusal
that must persist is returned, not raised. Once a statement of a job has failed the job is lost: it is rolled back whatever it
returns, because not every engine could go on.

The engines are opened by `sqlite.py`, `inline_store.py` and `server/cluster/postgres/postgres.py`; no SQL of any entity is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from auth.values.database import AuditEntry, NotStored

Row: TypeAlias = Mapping[str, Any]
# What a movement of the ledger may be the only one of its kind for.
Cause: TypeAlias = Literal["charge_id", "payment_id"]
T = TypeVar("T")

# What `changed` may name. A kind that nobody listens for would be a revocation that nobody applies, so others are refused.
CHANGE_KINDS: Final = frozenset(
    {"grant", "user", "client", "key", "api_key", "epoch", "upstream", "certificate"}
)


class StoreDb(Protocol):
    """A connection as a job sees it: one portable statement at a time, `?` placeholders, no way to end the transaction."""

    def execute(self, sql: str, *params: object) -> int:
        """Run one INSERT, UPDATE or DELETE; how many rows it touched."""
        ...

    def put_in(self, sql: str, *params: object) -> None:
        """Run one INSERT or UPDATE of which nobody asks what came of it: its row is known not to be there yet, or it says itself what to do
        if it is, or if there is none.
        An engine may do it with the next statement or the commit, which then fail if it does."""
        ...

    def fetch_one(self, sql: str, *params: object) -> Row | None: ...

    def fetch_all(self, sql: str, *params: object) -> list[Row]: ...

    def foresee(self, sql: str, *params: object) -> None:
        """Say what will be fetched soon, if nothing is written before: an engine may ask it together with the next statement."""
        ...

    def changed(self, kind: str, *entity_ids: str) -> None:
        """Append to `changes`, so that every process drops what it caches of these entities (`CHANGE_KINDS`).

        The store stamps the time itself, from its clock, once per batch: the stamp only decides how long the row is kept.
        """
        ...

    def wake_others(self) -> None:
        """Have the other processes on this database look for `letters` once this is committed."""
        ...

    def takes_away(self) -> None:
        """Say that this job takes a right away from somebody, before its first statement that writes: it must come through on a full
        disk as well, and is lent the room that is held for that."""
        ...

    def audit(self, entry: AuditEntry) -> None:
        """Append to `audit`, chained with a MAC. Refused while the store has no key for it (`Store.chain_audit`)."""
        ...

    def seal(self, said: bytes) -> str:
        """Return the MAC of what a row says, under a key that the database does not hold (`auth/values/sealed_rows.py`). Refused while the store has
        no key for it (`Store.chain_audit`)."""
        ...

    def altered(self, table: str, key: str) -> None:
        """Note that this row is not as it was sealed: somebody is told, once."""
        ...

    def begin_audit(self) -> None:
        """Look at the end of the chain now, not only with the first row; a database that belongs to no key yet gets its record.

        Any harm to the chain becomes a row of its own (`audit_chain.ALTERED`), and nobody is refused for it.
        """
        ...

    def post(self, values: Sequence[object], *, once: Cause | None = None) -> int:
        """Append to `movements`, numbered and chained with a MAC; the number. With `once`, 0 if there is one of the same kind for the
        same cause, and nothing is written. Refused while the store has no key for it (`AuditedStore.chain_ledger`).
        """
        ...

    def begin_ledger(self) -> None:
        """Look at the end of the ledger now, not only with the first movement; one that is new gets its record, and that of the trail
        tells from then on that there is a ledger."""
        ...

    def compare_heads(self, audit: Sequence[Position], ledger: Sequence[Position]) -> None:
        """Compare both chains with where each is known to have ended once. Missing rows are told as by `begin_audit`."""
        ...

    def sweep_audit(self, *, before: int, at_most: int) -> int:
        """Delete the oldest audit rows, as far as they are from `before` or earlier; how many. The chain stays whole."""
        ...

    def sweep_refusals(self, *, since: int = 0, before: int, at_most: int) -> int:
        """Delete refusals of nobody in particular from `since` on in the same way: neighbours become one row with their number."""
        ...


class Change(msgspec.Struct, frozen=True):
    """One row of `changes`: a process that caches this entity forgets it."""

    seq: int
    kind: str
    entity_id: str


class ChangeInDoubt(Change, frozen=True):
    """A change of which nobody knows whether it was committed: told at once, and again when it turns out that it was."""


OnChanges: TypeAlias = Callable[[Sequence[Change]], None]
OnAudit: TypeAlias = Callable[[Sequence[AuditEntry]], None]
OnTrust: TypeAlias = Callable[[bool], None]


class Wake(Enum):
    """News for other processes alone."""

    OTHERS = "others"


# What a job leaves for others to hear of, in order.
Effect: TypeAlias = Change | AuditEntry | Wake


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a chain of rows: the number of a row, and its MAC. That of the newest row is the chain's head."""

    seq: int
    mac: str


BEGINNING: Final = Position(seq=0, mac="")


class Store(Protocol):
    """The place where jobs are handed in, by any number of tasks of the trio run that opened it."""

    async def write(self, job: Callable[[StoreDb], T]) -> T:
        """Run the job in a transaction; what it returned, once that is durable.

        A caller that is already cancelled submits nothing. From submission on, cancellation is ignored until the outcome is
        known: the true result is returned or raised, and the cancellation strikes at the caller's next checkpoint. Raises what
        the job raised, `JobError`, or `StoreUnavailable`: nothing was written, and it may be tried again. Only `StoreBroken`
        leaves it open; it is also raised when the disk does not answer for a minute, so that no caller waits for ever.
        """
        ...

    async def read(self, job: Callable[[StoreDb], T]) -> T:
        """Run the job on one consistent snapshot that holds every write that has returned. Cancellation may strike at any time."""
        ...

    def on_changes(self, listener: OnChanges) -> None:
        """Have `listener` called in the trio thread with each batch's committed changes, before its writers are answered; also with those
        of other processes, each once, soon after their commit.

        A listener is synchronous and must not fail: a cache that may not have dropped a revoked grant must not go on being asked, so
        an error stops the store.
        """
        ...

    def on_audit(self, listener: OnAudit) -> None:
        """Have `listener` called in the trio thread with each batch's committed audit rows, after the changes and before the
        writers are answered. An error in a listener stops nothing: the rows are in the table.
        """
        ...

    def on_trust(self, listener: OnTrust) -> None:
        """Have `listener` called in the trio thread with False when changes of other processes may not be known here: what is cached is
        forgotten, and nothing is cached until it is called with True. As with `on_changes`, an error in it stops the store."""
        ...

    def on_letters(self, listener: Callable[[], None]) -> None:
        """Have `listener` called in the trio thread when other processes may have sent letters. A listener must not fail."""
        ...

    def chain_audit(self, key: bytes) -> None:
        """Take the key of the audit chain (`audit_chain.py`), from which that of the seals comes (`row_seals.py`).

        The store is opened before the key file can be; nothing audits until then, and nothing that is sealed can be read.
        """
        ...


class AuditedStore(Store, Protocol):
    """A store whose audit trail is compared with what was written down elsewhere."""

    def chain_audit(self, key: bytes, heads: Sequence[Position] = ()) -> None:
        """Set the key of the trail. One of `heads`, written down outside the database (`audit_head.py`), must be in it.

        Given a second time, the same key changes nothing.
        """
        ...

    def take_altered(self) -> Sequence[tuple[str, str]]:
        """Return the rows that were found not to be as they were sealed, by table and key: each once in the life of the process."""
        ...

    def audit_head(self) -> Position | None:
        """Return the newest audit row that this process committed, or found when it began; None before that."""
        ...

    def chain_ledger(self, key: bytes, heads: Sequence[Position] = ()) -> None:
        """Set the key of the movements of money in the same way. Nothing can be posted before."""
        ...

    def ledger_head(self) -> Position | None: ...


def apart(effects: Sequence[Effect]) -> tuple[list[Change], list[AuditEntry]]:
    """Return the changes and the audit rows of a batch, each in order."""
    changes: list[Change] = []
    entries: list[AuditEntry] = []
    for effect in effects:
        if isinstance(effect, Change):
            changes.append(effect)
        elif isinstance(effect, AuditEntry):
            entries.append(effect)
    return changes, entries


class StoreError(Exception):
    """Root of everything the store raises by itself. `str(error)` is fit for a user; `hint` says what to do, if anything."""

    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class StoreUnavailable(StoreError, NotStored):
    """The store cannot do this now (503). Nothing was written, except where `StoreBroken` says otherwise."""


class StoreFull(StoreUnavailable):
    """The queue is full."""


class DiskFull(StoreUnavailable):
    """The disk has no room, or a quota or limit refuses more. Reads go on."""

    hint = "free some space; nothing else needs to be done"


class StoreReadOnly(StoreUnavailable):
    """The database cannot be written to: the file or its file system is read-only."""

    hint = "check the permissions of the data directory, and whether its file system was remounted read-only"


class StoreBusy(StoreUnavailable):
    """Another process held the database's lock for too long."""


class Collided(StoreBusy):
    """Others wrote the same at the same moment, again and again."""

    def __init__(self) -> None:
        super().__init__("others are writing the same at this moment")


CANNOT_BE_REACHED: Final = "the database cannot be reached"


class StoreUnreachable(StoreUnavailable):
    """A missing connection to the database server, or one lost before anything was committed."""

    hint = "is the database server running, and does the network reach it?"


class DiskError(StoreUnavailable):
    """The disk refused a read or write for another reason than room."""


class StoreClosed(StoreUnavailable):
    """The store is closing or closed."""


class StoreBroken(StoreUnavailable):
    """The store stopped because of a fault, or does not answer; a write that was under way may or may not have happened."""


class StoreDamaged(StoreUnavailable):
    """The database file is damaged. Nothing mends it but a back-up, so nothing is tried again by itself."""

    hint = "stop the server and restore a back-up: ostiary restore FILE"


class JobError(StoreError):
    """The job is at fault. Rolled back; running it again would not help."""


class StatementRefused(JobError):
    """A statement that the facade lets no job run, or a facade used after its job has ended."""


class StatementFailed(JobError):
    """The database did not accept the statement."""


class ConstraintFailed(StatementFailed):
    """A unique key, foreign key, NOT NULL or CHECK was violated. Single-use rules use ON CONFLICT and the row count instead."""


class JobTooSlow(JobError):
    """The job's statements ran for longer than any job may."""


# A machine that stood still makes any job slow. One that is slow by itself is so each time: whoever must come through tries so often.
MOST_SLOW: Final = 3


class CannotOpen(StoreError):
    """The server must not start on this data; the message says why, the hint what to do."""

    lasting = False  # it stays so until somebody does something: a supervisor need not try again


class NewerSchema(CannotOpen):
    """The database was written by a newer version."""

    lasting = True


class ForeignDatabase(CannotOpen):
    """The file is no database of ours."""

    lasting = True
