"""One connection to PostgreSQL that is made again when it was lost, for `transactions.py`.

It is lost at any moment: the server restarts, a network is cut. Before a commit nothing was written, so the transaction is run again on
a new one; during a commit nobody knows, which is said (`CommitInDoubt`). Between two tries to connect there is a pause that grows, in which
whoever asks is refused at once.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
import psycopg
from psycopg import RawCursor
from psycopg.conninfo import make_conninfo
from psycopg.errors import LockNotAvailable, error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, TransactionStatus

from server.store.engine import CommitInDoubt, StoreEngine
from server.store.jobs import CannotOpen, Collided, JobTooSlow, StoreBusy, StoreUnreachable
from server.store.placeholders import numbered
from server.store.postgres_errors import PostgresRefused, refused
from server.store.postgres_values import PostgresCursor, adapters, names_of

# Nobody sees anything before it is this one's turn: locking a table takes no snapshot. So all writes of all processes follow one another,
# none fails because of another's, and what a transaction sees is what those before it have left.
BEGIN_WRITE: Final = (
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; LOCK TABLE writers_turn IN EXCLUSIVE MODE"
)
BEGIN_MIGRATION: Final = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"
# Also to those on the other end of a database: a word, which says only that there is something to read.
COMMIT_TELLING: Final = "NOTIFY ostiary_changes; COMMIT"
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# RETURNING, ON CONFLICT and identity columns are older; `client_connection_check_interval` is not.
MINIMUM_SERVER: Final = 140_000

# Whatever else a connection waits for. A peer that is gone is noticed in half a minute, on both sides.
_CONNECT_SECONDS: Final = 5
_LOCK_MILLIS: Final = 5_000
_PREDECESSOR_MILLIS: Final = 2_000
# Whoever reads holds nobody up. Whoever has the turn to write and says nothing more loses it, before those who wait have waited too long.
_SILENT_READER_MILLIS: Final = 30_000
_SILENT_WRITER_MILLIS: Final = 3_000
_KEEPALIVE: Final[Mapping[str, int]] = MappingProxyType(
    {
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
)
# The same for the server's end, which would hold locks of a client that is gone.
_SERVER_KEEPALIVE: Final[Mapping[str, str]] = MappingProxyType(
    {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3", "tcp_user_timeout": "20000",
     "client_connection_check_interval": "5000"}
)  # fmt: skip

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0

# Statements are constants of the program, some hundreds.
_PREPARED: Final = 1_000

# Whoever writes holds this together with the others, for as long as its connection stands: "OSTY". Alone it is held by who changes the
# schema, and by versions of before, which were alone altogether.
WRITER_LOCK: Final = 0x4F535459
# While others are at the schema, or have it and are about to go.
_SCHEMA_SECONDS: Final = 5.0
_SCHEMA_PAUSE_SECONDS: Final = 0.05


class PostgresAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the database."""

    parameters: Mapping[str, str]  # of libpq
    job_seconds: float

    def __repr__(self) -> str:  # there is a password in it
        return "PostgresAccess(…)"


class PostgresConnection:
    """An `EngineConnection`. `writes`: in its turn, with the connections of others."""

    role = "reader"  # as whoever administrates the database sees it

    def __init__(self, access: PostgresAccess, *, writes: bool) -> None:
        self._access = access
        self._writes = writes
        self.role = "writer" if writes else self.role
        self.generation = 0  # another one with each connection that is made after one was lost
        # Held alone. The end of a transaction of which nobody was told how it ended: as long as the old connection lives at the server, the
        # new one does not get it.
        self._own_lock = secrets.randbits(62)
        self._schema = 0  # that it was opened with; 0: not known yet
        self._adapters = adapters()
        self._descriptions: dict[str, Sequence[tuple[str]] | None] = {}
        self._released = False
        self._pause = 0.0
        self._tries_at = 0.0
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

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        control = self._controls.get(sql)
        if control is not None:
            return control()
        if self.is_late():
            raise PostgresRefused(JobTooSlow, "the database work took too long and was stopped")
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

    def script(self, sql: str) -> None:
        """Run statements that are no job's: of a migration."""
        self._plain(sql)

    def alone_with_schema(self, is_done: Callable[[], bool]) -> bool:
        """Let nobody else write until `together_with_schema`. False: it was done by others meanwhile, who write already.

        Raises `CannotOpen` if others go on writing, and it is not done.
        """
        until = time.monotonic() + _SCHEMA_SECONDS
        self._ask(b"SELECT pg_advisory_unlock_shared($1)", WRITER_LOCK)
        while not self._ask(b"SELECT pg_try_advisory_lock($1)", WRITER_LOCK):
            if is_done():
                self._ask(b"SELECT pg_advisory_lock_shared($1)", WRITER_LOCK)
                return False
            if time.monotonic() > until:
                raise CannotOpen(
                    "the database has an older schema, and other processes are using it",
                    hint="stop them first: they do not know the schema of this version",
                )
            time.sleep(_SCHEMA_PAUSE_SECONDS)
        return True

    def together_with_schema(self) -> None:
        self._ask(b"SELECT pg_advisory_lock_shared($1)", WRITER_LOCK)
        self._ask(b"SELECT pg_advisory_unlock($1)", WRITER_LOCK)

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
                if not self._connection.closed:
                    raise self._without_turn(trouble) from None
                if trouble.kind is not StoreUnreachable:
                    raise
            else:
                return
        self._reconnect()
        try:
            self._plain(how)
        except PostgresRefused as trouble:
            raise self._without_turn(trouble) from None

    def _without_turn(self, trouble: PostgresRefused) -> PostgresRefused:
        """The transaction was begun and is good for nothing."""
        if self.in_transaction:
            self._roll_back()
        if trouble.kind is StoreBusy and self._writes:
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
            self._each_result(how)
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
        """Without parameters, rows and preparation."""
        try:
            result = self._connection.pgconn.exec_(sql.encode())
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise error_from_result(result)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _each_result(self, sql: str) -> None:
        """The same, and the first that is refused counts: why a connection was ended is said before its end."""
        try:
            self._connection.pgconn.send_query(sql.encode())
            for result in self._connection.wait(execute(self._connection.pgconn)):
                if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                    raise error_from_result(result)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _refused(self, error: psycopg.Error) -> PostgresRefused:
        # What has no state was not said by the server: there was none to say it.
        is_silent = error.sqlstate is None and type(error) in (
            psycopg.OperationalError,
            psycopg.DatabaseError,
        )
        found = refused(error, is_lost=self._connection.closed or is_silent)
        if found.kind is StoreUnreachable:
            self._connection.close()  # what the server says as it goes
        return found

    def _reconnect(self) -> None:
        """Raises `PostgresRefused`."""
        now = time.monotonic()
        if self._closed or now < self._tries_at:
            raise PostgresRefused(StoreUnreachable, "the database cannot be reached")
        self._connection.close()
        self._descriptions.clear()
        self.generation += 1
        try:
            self._connection = self._connect()
        except CannotOpen as trouble:
            self._pause = min(_LONGEST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, 2 * self._pause))
            self._tries_at = time.monotonic() + self._pause * (0.5 + random.random() / 2)
            raise PostgresRefused(StoreUnreachable, str(trouble)) from None
        self._pause = 0.0

    def _connect(self) -> psycopg.Connection[Any]:
        """Raises `CannotOpen`."""
        try:
            asked = {"connect_timeout": _CONNECT_SECONDS, **_KEEPALIVE, **self._access.parameters}
            connection: psycopg.Connection[Any] = psycopg.connect(
                make_conninfo("", **asked), autocommit=True, context=self._adapters, cursor_factory=RawCursor
            )
        except psycopg.Error as error:
            raise CannotOpen(
                f"cannot connect to the database: {_first_line(error)}", hint=StoreUnreachable.hint
            ) from None
        try:
            self._set_up(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise CannotOpen(f"cannot use the database: {_first_line(error)}") from None
            raise
        return connection

    def _set_up(self, connection: psycopg.Connection[Any]) -> None:
        connection.prepared_max = _PREPARED
        if connection.info.server_version < MINIMUM_SERVER:
            raise CannotOpen(
                f"the database server is too old (version {connection.info.server_version // 10_000})",
                hint=f"use PostgreSQL {MINIMUM_SERVER // 10_000} or newer",
            )
        if connection.info.parameter_status("server_encoding") != "UTF8":
            raise CannotOpen("the database is not in UTF-8", hint="make one with ENCODING 'UTF8'")
        settings = {
            "application_name": f"ostiary {self.role}",
            "statement_timeout": str(max(1, round(self._access.job_seconds * 1000))),
            "lock_timeout": str(_LOCK_MILLIS),
            "idle_in_transaction_session_timeout": str(
                _SILENT_WRITER_MILLIS if self._writes else _SILENT_READER_MILLIS
            ),
            "default_transaction_read_only": "off" if self._writes else "on",
            **_SERVER_KEEPALIVE,
        }
        asked = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        # What was acknowledged must survive a power cut of the database server; stricter settings are left as they are.
        durable = "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"
        connection.pgconn.exec_(f"SELECT {asked}, {durable}".encode())
        if self._writes:
            # Whoever was killed just now still holds it for a moment.
            connection.execute(f"SET lock_timeout = {_PREDECESSOR_MILLIS}".encode())
            try:
                connection.execute(b"SELECT pg_advisory_lock_shared($1)", (WRITER_LOCK,), binary=True)
                connection.execute(b"SELECT pg_advisory_lock($1)", (self._own_lock,), binary=True)
            except LockNotAvailable:
                raise CannotOpen(
                    "the database is in use by another process",
                    hint="stop it first: it is bringing the schema up, or is of a version that shares with nobody",
                ) from None
            connection.execute(f"SET lock_timeout = {_LOCK_MILLIS}".encode())
        if self._schema:
            row = connection.execute(b"SELECT max(version) FROM schema_version", binary=True).fetchone()
            if row is None or row[0] != self._schema:
                raise CannotOpen(
                    "the schema of the database was changed by another version",
                    hint="start this process anew, with that version",
                )

    def _ask(self, sql: bytes, lock: int) -> Any:
        """Raises `CannotOpen`."""
        try:
            row = self._connection.execute(sql, (lock,), binary=True).fetchone()
        except psycopg.Error as error:
            raise CannotOpen(f"cannot use the database: {_first_line(error)}") from None
        return None if row is None else row[0]


def _first_line(error: psycopg.Error) -> str:
    """Names a host, a user and a database, never a password."""
    return (str(error).strip().splitlines() or ["it does not answer"])[0]


def _watch(connection: PostgresConnection, is_late: Callable[[], bool]) -> None:
    connection.is_late = is_late


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
    only_reading=None,
    watch=_watch,
)
