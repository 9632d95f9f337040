"""One connection to PostgreSQL that is made again when it was lost, for `transactions.py`.

It is lost at any moment: the server restarts, a network is cut. Before a commit nothing was written, so the transaction is run again on
a new one; during a commit nobody knows, which is said (`CommitInDoubt`). Between two tries to connect there is a pause that grows, in which
whoever asks is refused at once.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import psycopg
from psycopg.errors import LockNotAvailable, error_from_result
from psycopg.generators import execute
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from server.store.engine import CommitInDoubt, StoreEngine
from server.store.jobs import (
    CannotOpen,
    Collided,
    JobTooSlow,
    StoreBusy,
    StoreError,
    StoreReadOnly,
    StoreUnreachable,
)
from server.store.placeholders import numbered
from server.store.postgres_errors import STANDS_BY, PostgresRefused, refused, refused_by_standby
from server.store.postgres_session import set_up
from server.store.postgres_values import PostgresCursor, adapters, names_of
from server.store.postgres_wire import (
    GRACE_SECONDS,
    Outage,
    ServerSilent,
    WireConnection,
    connected,
    first_line,
)

# Nobody sees anything before it is this one's turn: locking a table takes no snapshot. So all writes of all processes follow one another,
# none fails because of another's, and what a transaction sees is what those before it have left.
BEGIN_WRITE: Final = (
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; LOCK TABLE writers_turn IN EXCLUSIVE MODE"
)
BEGIN_MIGRATION: Final = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"
# The newest step, and the newest that only programs that know it can go on with (`migrate.py`).
_SCHEMA_NOW: Final = b"SELECT max(version), coalesce(max(version) FILTER (WHERE coalesce(additive, 0) = 0), 0) FROM schema_version"
# Also to those on the other end of a database: a word, which says only that there is something to read.
COMMIT_TELLING: Final = "NOTIFY ostiary_changes; COMMIT"
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# Whatever else a connection waits for (`postgres_wire.py`).
_LOCK_MILLIS: Final = 5_000
_PREDECESSOR_MILLIS: Final = 2_000
# Whoever reads holds nobody up. Whoever has the turn to write and says nothing more loses it, before those who wait have waited too long.
_SILENT_READER_MILLIS: Final = 30_000
_SILENT_WRITER_MILLIS: Final = 3_000

# Of a connection that was ended: looks at what came of it. It is read in pieces, and its end by itself.
_LAST_WORDS: Final = 3

# Statements are constants of the program, some hundreds.
_PREPARED: Final = 1_000

# Whoever writes holds this together with the others, for as long as its connection stands: "OSTY", of the schema that its tables are in. Alone
# it is held by who changes that. Without a schema it was held by versions of before, which were alone altogether.
WRITER_LOCK: Final = 0x4F535459
_OF_SCHEMA: Final = f"{WRITER_LOCK}, hashtext(current_schema())"
TOGETHER: Final = f"SELECT pg_advisory_lock_shared({_OF_SCHEMA})".encode()
NOT_TOGETHER: Final = f"SELECT pg_advisory_unlock_shared({_OF_SCHEMA})".encode()
ALONE: Final = f"SELECT pg_advisory_lock({_OF_SCHEMA})".encode()
TRY_ALONE: Final = f"SELECT pg_try_advisory_lock({_OF_SCHEMA})".encode()
NOT_ALONE: Final = f"SELECT pg_advisory_unlock({_OF_SCHEMA})".encode()
# While others are at the schema, or have it and are about to go.
_SCHEMA_SECONDS: Final = 5.0
_SCHEMA_PAUSE_SECONDS: Final = 0.05

CANNOT_BE_REACHED: Final = "the database cannot be reached"


class PostgresAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the database."""

    parameters: Mapping[str, str]  # of libpq
    job_seconds: float
    outage: Outage = msgspec.field(default_factory=Outage)

    def __repr__(self) -> str:  # there is a password in it
        return "PostgresAccess(…)"


class PostgresConnection:
    """An `EngineConnection`. `writes`: in its turn, with the connections of others; or, `alone`, while there are none."""

    role = "reader"  # as whoever administrates the database sees it

    def __init__(self, access: PostgresAccess, *, writes: bool, alone: bool = False) -> None:
        self._access = access
        self._writes = writes
        self._alone = alone
        self.role = "writer" if writes else self.role
        self.generation = 0  # another one with each connection that is made after one was lost
        # Held alone. The end of a transaction of which nobody was told how it ended: as long as the old connection lives at the server, the
        # new one does not get it.
        self._own_lock = secrets.randbits(62)
        self._schema = 0  # that it was opened with; 0: not known yet
        self._adapters = adapters()
        self._descriptions: dict[str, Sequence[tuple[str]] | None] = {}
        self._released = False
        self._controls: Mapping[str, Callable[[], None]] = {
            BEGIN_WRITE: lambda: self._begin(BEGIN_WRITE),
            BEGIN_MIGRATION: lambda: self._begin(BEGIN_MIGRATION),
            BEGIN_READ: lambda: self._begin(BEGIN_READ),
            "COMMIT": lambda: self._commit("COMMIT"),
            COMMIT_TELLING: lambda: self._commit(COMMIT_TELLING),
            "ROLLBACK": self._roll_back,
            "SAVEPOINT job": self._save,
            "ROLLBACK TO job": lambda: self._plain("ROLLBACK TO job"),
            "RELEASE job": self._release,
        }
        self.is_late: Callable[[], bool] = lambda: False
        self._closed = False
        self._connection = self._connect()

    @property
    def in_transaction(self) -> bool:
        return self._connection.pgconn.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        )

    @property
    def is_out_of_reach(self) -> bool:
        """There is none, and nobody is to try again now. May be asked from any thread."""
        return self._access.outage.refuses and self._connection.closed

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        control = self._controls.get(sql)
        if control is not None:
            return control()
        if self.is_late():
            raise self._too_late()
        cursor = self._connection.cursor()
        try:
            # Prepared also because several statements in one are refused then.
            cursor.execute(numbered(sql), parameters, prepare=True, binary=True)
        except psycopg.Error as error:
            raise self._refused(error) from None
        try:
            description = self._descriptions[sql]
        except KeyError:
            description = self._descriptions[sql] = names_of(cursor)
        return PostgresCursor(cursor, description)

    def begin_without_end(self, how: str) -> None:
        """A transaction that is no job's: old tables may be long. For what others hold it waits no longer than any. Not on a new connection,
        which would not be alone with the schema."""
        self._plain(how)
        self._connection.patience = None
        self._plain("SET LOCAL statement_timeout = 0")

    def with_an_end(self) -> None:
        self._connection.patience = self._patience

    def script(self, sql: str) -> None:
        """Run statements that are no job's: of a migration."""
        self._plain(sql)

    def copy_in(
        self, table: str, columns: Sequence[str], types: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> None:
        """Many rows at once, in the transaction that is under way."""
        sql = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        try:
            with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                copy.set_types(types)
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def alone_with_schema(self, is_done: Callable[[], bool]) -> bool:
        """Let nobody else write until `together_with_schema`. False: it was done by others meanwhile, who write already.

        Raises `CannotOpen` if others go on writing, and it is not done.
        """
        until = time.monotonic() + _SCHEMA_SECONDS
        self._ask(NOT_TOGETHER)
        while not self._ask(TRY_ALONE):
            if is_done():
                self._ask(TOGETHER)
                return False
            if time.monotonic() > until:
                raise CannotOpen(
                    "the database has an older schema, and other processes are using it",
                    hint="stop them first: they do not know the schema of this version",
                )
            time.sleep(_SCHEMA_PAUSE_SECONDS)
        return True

    def together_with_schema(self) -> None:
        self._ask(TOGETHER)
        self._ask(NOT_ALONE)

    def note_schema(self, version: int) -> None:
        """It goes on with this one only, also on another connection."""
        self._schema = version

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    def _begin(self, how: str) -> None:
        self._released = False
        if not self._connection.closed:
            try:
                self._plain(how)
            except PostgresRefused as trouble:
                if trouble.state in STANDS_BY:
                    self._connection.close()
                if not self._connection.closed:
                    raise self._without_turn(trouble) from None
                if trouble.kind is not StoreUnreachable and trouble.state not in STANDS_BY:
                    raise
            else:
                return
        self._reconnect()
        try:
            self._plain(how)
        except PostgresRefused as trouble:
            if trouble.state in STANDS_BY:
                self._connection.close()
                trouble = refused_by_standby()
            raise self._without_turn(trouble) from None

    def _without_turn(self, trouble: PostgresRefused) -> PostgresRefused:
        """The transaction was begun and is good for nothing."""
        if self.in_transaction:
            self._roll_back()
        # Nothing of a job was run: a server that took too long to begin is no fault of one.
        if trouble.kind in (StoreBusy, JobTooSlow) and self._writes:
            return PostgresRefused(
                StoreBusy, "others have been writing for too long, it was not this one's turn"
            )
        return trouble

    def _save(self) -> None:
        self._plain("RELEASE job; SAVEPOINT job" if self._released else "SAVEPOINT job")
        self._released = False

    def _release(self) -> None:
        """With the next savepoint, in one trip to the server and back, or with the end of the transaction."""
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise PostgresRefused(
                StoreUnreachable if self._connection.closed else Collided, "there is no transaction"
            )
        self._released = True

    def _commit(self, how: str) -> None:
        # A transaction in which a statement failed would be rolled back by this, and the server would call it a success.
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise PostgresRefused(
                StoreUnreachable if self._connection.closed else Collided, "there is nothing to commit"
            )
        try:
            self._plain(how)
        except PostgresRefused as trouble:
            if self._connection.closed and not trouble.is_undone:
                raise CommitInDoubt from None
            raise

    def _roll_back(self) -> None:
        try:
            self._plain("ROLLBACK")
        except PostgresRefused:  # without its connection it is rolled back as well
            self._connection.close()

    def _plain(self, sql: str) -> None:
        """Without parameters, rows and preparation. The first that is refused counts: why a connection was ended is said before its end."""
        try:
            self._connection.pgconn.send_query(sql.encode())
            for result in self._connection.wait(execute(self._connection.pgconn)):
                if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                    raise error_from_result(result)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _too_late(self) -> PostgresRefused:
        """A process that stood still for so long (its machine was moved, say) has lost its turn and its connection, and the job is not at fault."""
        with suppress(psycopg.Error):
            for _ in range(_LAST_WORDS):  # why it was ended, and then its end
                self._connection.pgconn.consume_input()
        if self._connection.pgconn.status == ConnStatus.OK:
            return PostgresRefused(JobTooSlow, "the database work took too long and was stopped")
        self._connection.close()
        return PostgresRefused(
            StoreUnreachable, "the database has ended a connection that was silent for too long"
        )

    def _refused(self, error: psycopg.Error) -> PostgresRefused:
        if isinstance(error, ServerSilent):
            return PostgresRefused(StoreUnreachable, str(error))
        # What has no state was not said by the server: there was none to say it.
        is_silent = error.sqlstate is None and type(error) in (
            psycopg.OperationalError,
            psycopg.DatabaseError,
        )
        found = refused(error, is_lost=self._connection.closed or is_silent)
        if found.kind is StoreUnreachable or (
            self._writes and found.kind is StoreReadOnly and found.state in STANDS_BY
        ):
            self._connection.close()  # what the server says as it goes; or who has become a standby
        return found

    def _reconnect(self) -> None:
        """Raises `PostgresRefused`."""
        outage = self._access.outage
        if self._closed or not outage.begin_try():
            raise PostgresRefused(StoreUnreachable, CANNOT_BE_REACHED)
        self._connection.close()
        self._descriptions.clear()
        self.generation += 1
        try:
            self._connection = self._connect()
        except BaseException as trouble:
            outage.failed()
            if isinstance(trouble, CannotOpen):
                raise PostgresRefused(StoreUnreachable, str(trouble)) from None
            raise
        outage.succeeded()

    def _connect(self) -> WireConnection:
        """Raises `CannotOpen`."""
        parameters = self._access.parameters
        connection = connected(parameters, context=self._adapters, outage=self._access.outage)
        try:
            self._set_up(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise CannotOpen(f"cannot use the database: {first_line(error, parameters)}") from None
            raise
        connection.patience = self._patience
        return connection

    @property
    def _patience(self) -> float:
        return self._access.job_seconds + GRACE_SECONDS

    def _set_up(self, connection: WireConnection) -> None:
        connection.prepared_max = _PREPARED
        settings = {
            "application_name": f"ostiary {self.role}",
            "statement_timeout": str(max(1, round(self._access.job_seconds * 1000))),
            "lock_timeout": str(_LOCK_MILLIS),
            "idle_in_transaction_session_timeout": str(
                _SILENT_WRITER_MILLIS if self._writes and not self._alone else _SILENT_READER_MILLIS
            ),
            "default_transaction_read_only": "off" if self._writes else "on",
        }
        self._access.outage.is_durable = set_up(connection, settings)
        if self._writes:
            # Whoever was killed just now still holds it for a moment.
            connection.execute(f"SET lock_timeout = {_PREDECESSOR_MILLIS}".encode())
            try:
                connection.execute(b"SELECT pg_advisory_lock_shared($1)", (WRITER_LOCK,), binary=True)
                connection.execute(ALONE if self._alone else TOGETHER, binary=True)
                connection.execute(b"SELECT pg_advisory_lock($1)", (self._own_lock,), binary=True)
            except LockNotAvailable:
                raise CannotOpen(
                    "the database is in use by another process",
                    hint="stop it first"
                    if self._alone
                    else "it brings the schema up, copies its rows, or is of a version that shares with nobody: try again, or stop it",
                ) from None
            connection.execute(f"SET lock_timeout = {_LOCK_MILLIS}".encode())
        if self._schema:
            row = connection.execute(_SCHEMA_NOW, binary=True).fetchone()
            # Others may have added to it meanwhile, and no more than that.
            if row is None or row[0] < self._schema or row[1] > self._schema:
                raise CannotOpen(
                    "the schema of the database was changed by another version",
                    hint="start this process anew, with that version",
                )

    def _ask(self, sql: bytes) -> Any:
        """Raises `CannotOpen`."""
        try:
            row = self._connection.execute(sql, binary=True).fetchone()
        except psycopg.Error as error:
            raise CannotOpen(
                f"cannot use the database: {first_line(error, self._access.parameters)}"
            ) from None
        return None if row is None else row[0]


def _watch(connection: PostgresConnection, is_late: Callable[[], bool]) -> None:
    connection.is_late = is_late


def _out_of_reach(connection: PostgresConnection) -> StoreError | None:
    return StoreUnreachable(CANNOT_BE_REACHED) if connection.is_out_of_reach else None


def _translate(error: PostgresRefused) -> Any:
    return error.as_store_error()


POSTGRES: Final = StoreEngine(
    errors=(PostgresRefused,),
    translate=_translate,
    lost=(Collided, StoreUnreachable),
    shared=True,
    begin_write=BEGIN_WRITE,
    begin_read=BEGIN_READ,
    commit_telling=COMMIT_TELLING,
    out_of_reach=_out_of_reach,
    only_reading=None,
    watch=_watch,
)
