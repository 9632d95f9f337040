"""The trips of a transaction on PostgreSQL: what is sent, and what of it goes together.

A trip to the server and back costs more than the work there. So whatever nobody waits for goes along with something that is waited for:
a transaction begins with its first statement, a savepoint with the first of its job, an insert without an answer (`later`) goes with the
next one or the commit. A failure that is found late counts as one found in time: nobody was told of anything, and the transaction is
lost.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, Final

import psycopg
from psycopg.errors import DivisionByZero, error_from_result
from psycopg.generators import execute
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from server.cluster.postgres.postgres_errors import STANDS_BY, PostgresRefused, refused_by_standby
from server.cluster.postgres.postgres_trips import PostgresTrips, Statement, TripFailed
from server.cluster.postgres.postgres_values import PostgresCursor, names_of
from server.cluster.postgres.postgres_wire import WireConnection
from server.store.jobs import Collided, JobTooSlow, StoreBusy, StoreUnreachable
from server.store.store_engine import Begun, CommitInDoubt

# Nobody sees anything before it is this one's turn: locking a table takes no snapshot. So all writes of all processes follow one another,
# none fails because of another's, and what a transaction sees is what those before it have left.
BEGIN_WRITE: Final = (
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; LOCK TABLE writers_turn IN EXCLUSIVE MODE"
)
BEGIN_MIGRATION: Final = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"
# Also to those on the other end of a database: a word, which says only that there is something to read.
COMMIT_TELLING: Final = "NOTIFY ostiary_changes; COMMIT"
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# Of a connection that was ended: looks at what came of it. It is read in pieces, and its end by itself.
_LAST_WORDS: Final = 3

_SAVE: Final = Statement(b"SAVEPOINT job")
_RELEASE: Final = Statement(b"RELEASE job")
_ROLL_BACK: Final = Statement(b"ROLLBACK")
_COMMIT: Final = Statement(b"COMMIT")
# Fails where another number of rows than one is touched.
_ONE_ROW: Final = "WITH touched AS ({sql} RETURNING 1) SELECT 1 / (count(*) = 1)::int FROM touched"
# They are constants of the program.
_STATEMENTS_KNOWN: Final = 1024
# What may hold a question mark that is none of ours: texts, quoted names, comments. Then what is put in another way.
_PIECES: Final = re.compile(
    r"""('(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/) | \? | \binstr(?=\()""",
    re.VERBOSE | re.DOTALL,
)


class Foreseen:
    """A question that will be asked, and the answer that came with that to another."""

    __slots__ = ("lasting", "outcome", "parameters", "statement")

    def __init__(self, parameters: tuple[Any, ...], statement: Statement, *, lasting: bool) -> None:
        self.parameters = parameters
        self.lasting = lasting  # nothing that a job writes makes it another
        self.statement = statement
        self.outcome: PGresult | None = None


class PostgresTransactions(ABC):
    """The transactions of one connection, one after the other. How it is made, and made again, whoever extends this says."""

    _connection: WireConnection
    _trips: PostgresTrips
    _writes: bool

    def __init__(self) -> None:
        self._descriptions: dict[str, Sequence[tuple[str]] | None] = {}
        self._put_off: list[Statement] = []  # goes along with the next
        self._beginning = 0  # so many of them begin the transaction
        self._foreseen: dict[str, Foreseen] = {}
        self._saved = False  # there is a savepoint, or will be
        self._controls: Mapping[str, Callable[[], None]] = {
            BEGIN_WRITE: lambda: self._begin(BEGIN_WRITE),
            BEGIN_MIGRATION: lambda: self._begin(BEGIN_MIGRATION),
            BEGIN_READ: lambda: self._begin(BEGIN_READ),
            "COMMIT": lambda: self._commit("COMMIT"),
            COMMIT_TELLING: lambda: self._commit(COMMIT_TELLING),
            "ROLLBACK": self._roll_back,
            "SAVEPOINT job": self._save,
            "ROLLBACK TO job": self._undo,
            "RELEASE job": self._release,
        }
        self.is_late: Callable[[], bool] = lambda: False
        self.note_begun: Begun = _nobody

    @property
    @abstractmethod
    def is_replaced(self) -> bool:
        """Return whether the server that answers is not the database any more."""

    @abstractmethod
    def _reconnect(self) -> None:
        """Connect again. Raises `PostgresRefused`."""

    @abstractmethod
    def _refused(self, error: psycopg.Error) -> PostgresRefused:
        """Return an error in our words; a connection of no more use is closed."""

    @property
    def in_transaction(self) -> bool:
        return self._beginning > 0 or self._trips.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        )

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        control = self._controls.get(sql)
        if control is not None:
            return control()
        result = self._foresaid(sql, parameters) if self._foreseen else None
        if result is None:
            (result,) = self._go(self._stated(sql, parameters))
            if self._foreseen and not (result.command_status or b"").startswith(b"SELECT"):
                self._forget_foreseen()
        try:
            description = self._descriptions[sql]
        except KeyError:
            description = self._descriptions[sql] = names_of(result)
        return PostgresCursor(self._trips, result, description)

    def later(self, sql: str, parameters: Sequence[Any]) -> None:
        """Run with the next statement that is waited for. A failure is the job's, if that goes on, else the transaction's."""
        self._put_off.append(self._stated(sql, parameters))
        self._forget_foreseen()

    def foresee(self, sql: str, parameters: Sequence[Any], *, lasting: bool = False) -> None:
        """Ask along with the next statement; whoever asks then has the answer at once."""
        statement = self._stated(sql, parameters)
        self._foreseen[sql] = Foreseen(tuple(parameters), statement, lasting=lasting)

    def one_row_later(self, sql: str, parameters: Sequence[Any]) -> None:
        """Run later a statement that must touch exactly one row: else nothing of the transaction may stay."""
        self.later(_ONE_ROW.format(sql=sql), parameters)
        self._put_off[-1].touches_one_row = True

    def _begin(self, how: str) -> None:
        if self._connection.closed or self.is_replaced:
            self._reconnect()
        self._foreseen.clear()
        self._put_off = _parts(how)
        self._beginning = len(self._put_off)
        self._saved = False

    def _foresaid(self, sql: str, parameters: Sequence[Any]) -> PGresult | None:
        """Take a foreseen answer, once: another time it may differ."""
        found = self._foreseen.get(sql)
        if found is None or found.parameters != tuple(parameters):
            return None
        del self._foreseen[sql]
        return found.outcome

    def _forget_foreseen(self) -> None:
        self._foreseen = {sql: each for sql, each in self._foreseen.items() if each.lasting}

    def _stated(self, sql: str, parameters: Sequence[Any]) -> Statement:
        if self.is_late():
            raise self._too_late()
        try:
            # Prepared also because several statements in one are refused then.
            return self._trips.statement(numbered(sql), parameters)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _go(self, *statements: Statement) -> Sequence[PGresult]:
        """Send statements with all that was put off, and return what came of them."""
        foreseen = [each for each in self._foreseen.values() if each.outcome is None]
        whole = (*self._put_off, *statements, *(each.statement for each in foreseen))
        beginning, self._put_off, self._beginning = self._beginning, [], 0
        if beginning:
            outcomes = self._go_first(whole, beginning)
        else:
            try:
                outcomes = self._trips.go(whole)
            except TripFailed as failed:
                raise self._found(failed, whole) from None
        own = len(outcomes) - len(foreseen)
        for each, outcome in zip(foreseen, outcomes[own:], strict=True):
            each.outcome = outcome
        return outcomes[own - len(statements) : own]

    def _go_first(self, whole: Sequence[Statement], beginning: int) -> Sequence[PGresult]:
        """Make the first trip. The connection may have been lost unnoticed: until there is an answer nothing was done."""
        asked, refused = time.monotonic(), None
        try:
            try:
                return self._trips.go(whole)[beginning:]
            except TripFailed as failed:
                refused, trouble = self._refused_at_first(failed, whole, beginning)
                may_be_stale = trouble.kind is StoreUnreachable or trouble.state in STANDS_BY
                if not (self._connection.closed and may_be_stale):
                    raise trouble from None
            refused = trouble
            self._reconnect()
            try:
                refused, outcomes = None, self._trips.go(whole)[beginning:]
            except TripFailed as failed:
                refused, trouble = self._refused_at_first(failed, whole, beginning)
                raise trouble from None
            return outcomes
        except PostgresRefused as trouble:
            refused = refused and trouble
            raise
        finally:
            self.note_begun(time.monotonic() - asked, refused)

    def _refused_at_first(
        self, failed: TripFailed, whole: Sequence[Statement], beginning: int
    ) -> tuple[PostgresRefused | None, PostgresRefused]:
        """Return why a first trip was refused; tried twice if the transaction did not even begin."""
        trouble = self._found(failed, whole)
        if failed.at >= beginning and not self._connection.closed:
            return None, trouble
        if trouble.state in STANDS_BY:
            self._connection.close()
            trouble = refused_by_standby()
        elif self.in_transaction:
            self._roll_back()
        # Nothing of a job was run: a server that took too long to begin is no fault of one.
        if trouble.kind in (StoreBusy, JobTooSlow) and self._writes:
            trouble = PostgresRefused(
                StoreBusy, "others have been writing for too long, it was not this one's turn"
            )
        return trouble, trouble

    def _too_late(self) -> PostgresRefused:
        """Return the loss of a process that stood still too long (its machine was moved, say): no fault of the job."""
        with suppress(psycopg.Error):
            for _ in range(_LAST_WORDS):  # why it was ended, and then its end
                self._connection.pgconn.consume_input()
        if self._connection.pgconn.status == ConnStatus.OK:
            return PostgresRefused(JobTooSlow, "the database work took too long and was stopped")
        self._connection.close()
        return PostgresRefused(
            StoreUnreachable, "the database has ended a connection that was silent for too long"
        )

    def _found(self, failed: TripFailed, whole: Sequence[Statement]) -> PostgresRefused:
        """Return why a trip failed. A failure that a job before left to be found now is the loss of the transaction."""
        trouble = self._refused(failed.error)
        # PostgreSQL names the function that refused; what speaks in its place, in between, may not know how far it came.
        if failed.at >= 0 and _COMMIT in whole[failed.at + 1 :] and failed.error.diag.source_function:
            trouble.is_undone = True
        if failed.at < 0 or trouble.kind in (Collided, StoreUnreachable):
            return trouble
        missed = whole[failed.at].touches_one_row and isinstance(failed.error, DivisionByZero)
        return PostgresRefused(Collided, "") if missed or _SAVE in whole[failed.at :] else trouble

    def _settle(self) -> None:
        """Leave nothing put off, and nothing under way."""
        self._foreseen.clear()
        if self._put_off:
            self._go()
        try:
            self._trips.settle()
        except TripFailed as failed:
            raise self._refused(failed.error) from None

    def _save(self) -> None:
        self._forget_foreseen()
        self._put_off.append(_SAVE)
        self._saved = True

    def _undo(self) -> None:
        self._forget_foreseen()
        if _SAVE in self._put_off:  # and nothing was asked since
            while self._put_off.pop() is not _SAVE:
                pass
            self._saved = False
        else:
            self._put_off.clear()
            self._plain("ROLLBACK TO job")

    def _release(self) -> None:
        if not self._saved:
            return
        self._saved = False
        if not self._beginning and self._trips.transaction_status != TransactionStatus.INTRANS:
            raise self._no_transaction()
        if self._put_off and self._put_off[-1] is _SAVE:
            self._put_off.pop()
        else:
            self._put_off.append(_RELEASE)

    def _commit(self, how: str) -> None:
        if self._beginning:  # what nothing was asked of cannot be lost unnoticed
            self._go()
        if self.is_replaced:  # found by another connection meanwhile; what is committed here now is lost
            self._connection.close()
        # A transaction in which a statement failed would be rolled back by this, and the server would call it a success.
        if self._trips.transaction_status != TransactionStatus.INTRANS:
            raise self._no_transaction()
        if self._put_off and self._put_off[-1] is _RELEASE:
            self._put_off.pop()
        self._foreseen.clear()
        try:
            self._go(*_parts(how))
        except PostgresRefused as trouble:
            if self._connection.closed and not trouble.is_undone:
                raise CommitInDoubt from None
            raise

    def _no_transaction(self) -> PostgresRefused:
        return PostgresRefused(
            StoreUnreachable if self._connection.closed else Collided, "there is no transaction any more"
        )

    def _roll_back(self) -> None:
        """End the transaction without waiting: a lost connection rolls it back as well."""
        begun, self._put_off, self._beginning, self._saved = not self._beginning, [], 0, False
        if not begun:
            return
        try:
            self._trips.go_without_waiting(_ROLL_BACK)
        except TripFailed:
            self._connection.close()

    def _plain(self, sql: str) -> None:
        """Run SQL without parameters, rows and preparation. The first refusal counts: a server says why before it ends a connection."""
        self._settle()
        try:
            self._connection.pgconn.send_query(sql.encode())
            for result in self._connection.wait(execute(self._connection.pgconn)):
                if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                    raise error_from_result(result)
        except psycopg.Error as error:
            raise self._refused(error) from None


def _nobody(seconds: float, refused: Exception | None) -> None:
    del seconds, refused


def _parts(how: str) -> list[Statement]:
    return [_COMMIT if each == "COMMIT" else Statement(each.encode()) for each in how.split("; ")]


@lru_cache(maxsize=_STATEMENTS_KNOWN)
def numbered(sql: str) -> bytes:
    """Return a statement of a job as PostgreSQL has it: with numbered parameters, and its name for the function called otherwise."""
    number = count(1)

    def spelled(match: re.Match[str]) -> str:
        if match[0] == "?":
            return f"${next(number)}"
        return match[1] or "strpos"

    return _PIECES.sub(spelled, sql).encode()
