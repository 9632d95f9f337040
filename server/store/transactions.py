"""Transactions on one connection, made of jobs: batches with a savepoint each, lone jobs, reads.

Synchronous and without threads: `threaded_store.py` calls it from its own threads, `inline_store.py` from the caller's. The schema has no
deferred constraints: with them a neighbour in the batch could mend, unasked, what a job alone would be refused for.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import astuple

from auth.values.database import AuditEntry
from server.store.audit_chain import AuditChain
from server.store.chain_ends import ChainEnds
from server.store.chain_tail import ChainMoved
from server.store.job_connection import Facade
from server.store.jobs import (
    Change,
    ChangeInDoubt,
    Collided,
    DiskFull,
    Effect,
    OnAudit,
    OnChanges,
    Position,
    StoreBroken,
    StoreDb,
    StoreUnreachable,
    Wake,
)
from server.store.ledger_chain import LedgerChain
from server.store.reserve_file import ReserveFile
from server.store.row_seals import Seal
from server.store.sqlite_engine import SQLITE
from server.store.store_engine import CommitInDoubt, EngineConnection, StoreEngine

T = TypeVar("T")

# No job may hold the writer for longer: it is small by design, and everybody waits for it.
JOB_SECONDS: Final = 10.0

# How often a job is run again because others wrote the same at the same moment. Each pause is longer than the one before, and drawn by
# lot, so that those who met once do not meet again: some 300 ms together.
_MOST_COLLISIONS: Final = 8
_FIRST_PAUSE_SECONDS: Final = 0.002


class _NotRun(Enum):
    NOT_RUN = "not run"


class PendingJob(Generic[T]):
    """A job on its way: then its value or its error. Every run starts it afresh."""

    __slots__ = ("_value", "ends", "error", "job")

    def __init__(self, job: Callable[[StoreDb], T]) -> None:
        self.job = job
        self.error: BaseException | None = None
        self.ends = False  # it said that it takes a right away, whether or not it came through
        self._value: T | _NotRun = _NotRun.NOT_RUN

    def succeed(self, value: T) -> None:
        self._value = value
        self.error = None

    def fail(self, error: BaseException) -> None:
        self._value = _NotRun.NOT_RUN
        self.error = error

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        if self._value is _NotRun.NOT_RUN:
            raise StoreBroken("this job has not run")
        return self._value


class _Ended(Exception):
    """A job has ended the transaction, in whatever way."""


class Transactions:
    """The only user of its connection. Not thread-safe: one thread at a time."""

    def __init__(
        self,
        connection: EngineConnection,
        *,
        job_seconds: float,
        ballast: ReserveFile | None = None,
        engine: StoreEngine = SQLITE,
    ) -> None:
        self._connection = connection
        self._engine = engine
        # At these the transaction is lost, and its jobs are not.
        self._losses = (*engine.errors, *engine.lost, ChainMoved, DiskFull, _Ended)
        self._ballast = ballast
        self._job_seconds = job_seconds
        self._deadline = math.inf
        # What the last batch took besides its jobs: until it could begin, and for its commit.
        self.turn_seconds = 0.0
        # Why the transaction was not begun, where that is found out by its first statement.
        self._not_begun: Exception | None = None
        self._began_in = 0.0
        self._ends = ChainEnds(shared=engine.shared)
        self.seal: Seal | None = None  # lent to each job
        engine.watch(connection, self._is_late, self._note_begun)
        # Why whoever asks now would only be refused, as far as that is known; from any thread. None: a file is always there.
        known = engine.out_of_reach
        self.out_of_reach = None if known is None else partial(known, connection)

    def chain_audit(self, key: bytes, heads: Sequence[Position]) -> None:
        """See `Store.chain_audit`."""
        self._ends.audit.keep(AuditChain(key), key, heads)
        if self.seal is None or not self.seal.is_of(key):
            self.seal = Seal(key)

    def chain_ledger(self, key: bytes, heads: Sequence[Position]) -> None:
        """See `AuditedStore.chain_ledger`."""
        self._ends.ledger.keep(LedgerChain(key), key, heads)

    @property
    def audit_head(self) -> Position | None:
        """The head of the last commit. Any thread may ask, also for the ledger's."""
        return self._ends.audit.head

    @property
    def ledger_head(self) -> Position | None:
        return self._ends.ledger.head

    def run_batch(self, works: Iterable[PendingJob[Any]], *, at: int) -> list[Effect]:
        """Run the jobs in one transaction and commit; then every work has its true outcome.

        Each has a savepoint. That of the first is the transaction itself: until a job has come through, undoing is rolling back.
        `works` may be lazy: it is read on while the batch runs. If the shared transaction is lost in whatever way, nothing of
        it counts, and each job that was in it runs again in a transaction of its own, as do those that were still to come.
        """
        asked = time.monotonic()
        try:
            self._connection.execute(self._engine.begin_write)
        except self._engine.errors as error:
            for work in works:
                work.fail(self._engine.translate(error))
            return []
        self._began_in = time.monotonic() - asked
        waiting = iter(works)
        started: list[PendingJob[Any]] = []
        effects: list[Effect] = []
        self._look_ahead()
        alone = True  # no other job's work is in the transaction
        try:
            for work in waiting:
                started.append(work)
                if alone:
                    effects = self._call(work, at=at, writable=True)
                    alone = work.error is not None
                    if alone:
                        self._roll_back()
                        if self._not_begun is not None:
                            for each in chain(started, waiting):
                                each.fail(self._engine.translate(self._not_begun))
                            return []
                        if isinstance(work.error, self._losses):  # which may not be the last word
                            raise work.error
                        self._connection.execute(self._engine.begin_write)
                        self._look_ahead()
                    elif not self._connection.in_transaction:
                        raise _Ended
                else:
                    effects += self._run_among_others(work, at=at)
            done = time.monotonic()
            self._commit(effects)
            self.turn_seconds = self._began_in + time.monotonic() - done
        except CommitInDoubt:
            return self._leave_open(started, effects)
        except self._losses:
            self._roll_back()
            return [effect for work in chain(started, waiting) for effect in self.run_alone(work, at=at)]
        except BaseException:  # a fault of ours, or of the iterable: leave no transaction open behind it
            self._roll_back()
            raise
        return effects

    def run_alone(self, work: PendingJob[Any], *, at: int) -> list[Effect]:
        """Run one job. On a full disk, one that takes a right away gets the room held for that: a stolen login must not live on."""
        effects = self._try_alone(work, at=at)
        if self._engine.lost and isinstance(work.error, self._engine.lost):
            effects = self._try_again(work, at=at)
        if self._ballast is not None and work.ends and isinstance(work.error, DiskFull):
            with self._ballast.lent():
                effects = self._try_alone(work, at=at)
        return effects

    def _try_alone(self, work: PendingJob[Any], *, at: int) -> list[Effect]:
        effects: list[Effect] = []
        try:
            self._connection.execute(self._engine.begin_write)
            self._ends.begin(afresh=True)
            effects = self._call(work, at=at, writable=True)
            if work.error is None:
                self._commit(effects)
                return effects
        except CommitInDoubt:
            return self._leave_open([work], effects)
        except self._engine.errors as error:
            work.fail(self._engine.translate(error))
        except ChainMoved:
            work.fail(Collided())
        self._roll_back()
        return []

    def _try_again(self, work: PendingJob[Any], *, at: int) -> list[Effect]:
        """Run again a job that met with others' writes, or, once, one whose connection was lost."""
        effects: list[Effect] = []
        pause, lost = _FIRST_PAUSE_SECONDS, 0
        for _ in range(_MOST_COLLISIONS):
            if isinstance(work.error, StoreUnreachable):
                lost += 1
                if lost > 1:
                    break
            elif isinstance(work.error, self._engine.lost):
                time.sleep(pause * random.random())
                pause *= 2
            else:
                break
            effects = self._try_alone(work, at=at)
        return effects

    def _leave_open(self, works: Sequence[PendingJob[Any]], effects: Sequence[Effect]) -> list[Effect]:
        """Say that it may have been committed; drop what it may have changed from caches all the same."""
        self._roll_back()
        for work in works:
            if work.error is None:
                work.fail(
                    StoreBroken(
                        "the connection was lost during a commit; this may or may not have been written"
                    )
                )
        return [ChangeInDoubt(*astuple(effect)) for effect in effects if isinstance(effect, Change)]

    def run_read(self, work: PendingJob[Any]) -> None:
        """Run the job on one snapshot. The connection must be unable to write (`sqlite_connect.py`), or the transaction."""
        self._read(work)
        if self._engine.lost and isinstance(work.error, self._engine.lost):
            self._read(work)

    def _read(self, work: PendingJob[Any]) -> None:
        try:
            self._connection.execute(self._engine.begin_read)
            self._call(work, at=0, writable=False)
        except self._engine.errors as error:
            work.fail(self._engine.translate(error))
        self._roll_back()

    def close(self) -> None:
        self._connection.close()

    def _run_among_others(self, work: PendingJob[Any], *, at: int) -> list[Effect]:
        self._connection.execute("SAVEPOINT job")
        undo = self._ends.mark()
        effects = self._call(work, at=at, writable=True)
        # This is also the check that the transaction still stands: if the job ended it, by whatever means, the savepoint is
        # gone, and these raise.
        if work.error is not None:
            if isinstance(work.error, self._engine.lost):
                raise work.error
            self._connection.execute("ROLLBACK TO job")
            undo()
        self._connection.execute("RELEASE job")
        return effects

    def _call(self, work: PendingJob[Any], *, at: int, writable: bool) -> list[Effect]:
        ends = self._ends if writable else None
        facade = Facade(
            self._connection, at=at, writable=writable, ends=ends, engine=self._engine, seal=self.seal
        )
        self._not_begun = None
        self._deadline = time.monotonic() + self._job_seconds
        try:
            value = work.job(facade)
            effects = facade.end()
        except BaseException as error:  # nothing is swallowed: it is raised where the job came from
            # Whatever it makes of a lost transaction, it runs again.
            lost = facade.trouble if isinstance(facade.trouble, self._engine.lost) else None
            if self._not_begun is not None:
                lost = self._engine.translate(self._not_begun)
            work.fail(lost or error)
            return []
        finally:
            self._deadline = math.inf
            work.ends = facade.ends
            facade.close()
        work.succeed(value)
        return effects

    def _commit(self, effects: Sequence[Effect]) -> None:
        self._ends.flush(self._write_record)
        telling = self._engine.shared and any(isinstance(effect, Change | Wake) for effect in effects)
        # Refused where the transaction stands no more.
        self._connection.execute(self._engine.commit_telling if telling else "COMMIT")
        self._ends.commit()

    def _look_ahead(self) -> None:
        self._ends.begin()
        if self._engine.foresee_for_all is not None:
            for sql, *parameters in self._ends.will_ask():
                self._engine.foresee_for_all(self._connection, sql, parameters)

    def _write_record(self, sql: str, *parameters: str) -> int:
        if self._engine.one_row_later is None:
            return self._connection.execute(sql, parameters).rowcount
        self._engine.one_row_later(self._connection, sql, parameters)
        return 1

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _note_begun(self, seconds: float, refused: Exception | None) -> None:
        """Put the deadline off: a job is not late because others had their turn before it."""
        self._deadline += seconds
        self._began_in, self._not_begun = seconds, refused


class StoreParts:
    """The part that all kinds of stores share: who listens, and the chains of the writer."""

    def __init__(self, writer: Transactions) -> None:
        self._transactions = writer
        self._listeners: list[OnChanges] = []
        self._audit_listeners: list[OnAudit] = []

    def on_changes(self, listener: OnChanges) -> None:
        self._listeners.append(listener)

    def on_audit(self, listener: OnAudit) -> None:
        self._audit_listeners.append(listener)

    def chain_audit(self, key: bytes, heads: Sequence[Position] = ()) -> None:
        self._transactions.chain_audit(key, heads)

    def take_altered(self) -> Sequence[tuple[str, str]]:
        seal = self._transactions.seal
        return () if seal is None else seal.take()

    def audit_head(self) -> Position | None:
        return self._transactions.audit_head

    def chain_ledger(self, key: bytes, heads: Sequence[Position] = ()) -> None:
        self._transactions.chain_ledger(key, heads)

    def ledger_head(self) -> Position | None:
        return self._transactions.ledger_head

    def _tell_of_changes(self, changes: Sequence[Change]) -> Exception | None:
        """Tell all listeners, also after one has failed: each may be what keeps a revoked login out. Return the first failure."""
        faults: list[Exception] = []
        for listener in self._listeners if changes else ():
            try:
                listener(changes)
            except Exception as error:
                faults.append(error)
        return faults[0] if faults else None

    def _tell_of_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Tell of audit rows. A log that cannot be written holds up nobody: what was decided is committed."""
        for listener in self._audit_listeners if entries else ():
            try:
                listener(entries)
            except Exception:
                continue
