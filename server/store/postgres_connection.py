"""One connection to PostgreSQL that is made again when it was lost, for `transactions.py`.

It is lost at any moment: the server restarts, a network is cut. Before a commit nothing was written, so the transaction is run again on
a new one; during a commit nobody knows, which is said (`CommitInDoubt`). Between two tries to connect there is a pause that grows, in which
whoever asks is refused at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
import psycopg
from psycopg import RawCursor
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import make_conninfo
from psycopg.errors import LockNotAvailable, error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.types.bool import BoolBinaryLoader
from psycopg.types.none import NoneDumper
from psycopg.types.numeric import (
    Float8BinaryLoader,
    FloatBinaryDumper,
    Int2BinaryLoader,
    Int4BinaryLoader,
    Int8BinaryDumper,
    Int8BinaryLoader,
    NumericBinaryLoader,
)
from psycopg.types.string import ByteaBinaryLoader, BytesBinaryDumper, StrBinaryDumper, TextBinaryLoader

from server.store.engine import CommitInDoubt, StoreEngine
from server.store.jobs import CannotOpen, Collided, JobTooSlow, StoreUnreachable
from server.store.placeholders import numbered
from server.store.postgres_errors import PostgresRefused, refused

BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE"
BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# RETURNING, ON CONFLICT and identity columns are older; `client_connection_check_interval` is not.
MINIMUM_SERVER: Final = 140_000

# Whatever else a connection waits for. A peer that is gone is noticed in half a minute, on both sides.
_CONNECT_SECONDS: Final = 5
_LOCK_MILLIS: Final = 5_000
_PREDECESSOR_MILLIS: Final = 2_000
_IDLE_IN_TRANSACTION_MILLIS: Final = 30_000
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

# Whoever writes holds this, for as long as its connection stands: "OSTY". Also the end of a transaction of which nobody was told how it
# ended: as long as the old connection lives at the server, the new one does not get it.
WRITER_LOCK: Final = 0x4F535459


class PostgresAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the database."""

    parameters: Mapping[str, str]  # of libpq
    job_seconds: float

    def __repr__(self) -> str:  # there is a password in it
        return "PostgresAccess(…)"


class _Whole(NumericBinaryLoader):
    """What PostgreSQL adds up of whole numbers is a decimal there. No column is one."""

    def load(self, data: Any) -> Any:
        value = super().load(data)
        return int(value) if value == value.to_integral_value() else float(value)


class _Truth(Int8BinaryDumper):
    """Columns for yes and no are numbers."""

    def dump(self, obj: Any) -> Any:
        return super().dump(int(obj))


def _adapters() -> AdaptersMap:
    """The types that jobs use, and no other: a list would become an array, where SQLite refuses it."""
    found = AdaptersMap(None, psycopg.adapters.types)
    for kind, dumper in (
        (type(None), NoneDumper), (str, StrBinaryDumper), (int, Int8BinaryDumper), (bool, _Truth),
        (float, FloatBinaryDumper), (bytes, BytesBinaryDumper), (bytearray, BytesBinaryDumper), (memoryview, BytesBinaryDumper),
    ):  # fmt: skip
        found.register_dumper(kind, dumper)
    for name, loader in (
        ("text", TextBinaryLoader), ("varchar", TextBinaryLoader), ("name", TextBinaryLoader), (0, TextBinaryLoader),
        ("bool", BoolBinaryLoader), ("bytea", ByteaBinaryLoader), ("float8", Float8BinaryLoader), ("int2", Int2BinaryLoader),
        ("int4", Int4BinaryLoader), ("int8", Int8BinaryLoader), ("numeric", _Whole),
    ):  # fmt: skip
        found.register_loader(name, loader)
    return found


class PostgresCursor:
    """A statement's outcome."""

    __slots__ = ("_cursor", "description")

    def __init__(self, cursor: psycopg.Cursor[Any], description: Sequence[tuple[str]] | None) -> None:
        self._cursor = cursor
        self.description = description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def fetchone(self) -> Sequence[Any] | None:
        return self._cursor.fetchone() if self.description is not None else None

    def fetchmany(self, size: int, /) -> Sequence[Sequence[Any]]:
        return self._cursor.fetchmany(size) if self.description is not None else []

    def fetchall(self) -> Sequence[Sequence[Any]]:
        return self._cursor.fetchall() if self.description is not None else []

    def close(self) -> None:
        self._cursor.close()


class PostgresConnection:
    """An `EngineConnection`. `exclusive`: it writes, and is the only one that does."""

    def __init__(self, access: PostgresAccess, *, exclusive: bool) -> None:
        self._access = access
        self._exclusive = exclusive
        self._adapters = _adapters()
        self._descriptions: dict[str, Sequence[tuple[str]] | None] = {}
        self._released = False
        self._pause = 0.0
        self._tries_at = 0.0
        self._controls: Mapping[str, Callable[[], None]] = {
            BEGIN_WRITE: lambda: self._begin(BEGIN_WRITE),
            BEGIN_READ: lambda: self._begin(BEGIN_READ),
            "COMMIT": self._commit,
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
            description = self._descriptions[sql] = _names(cursor)
        return PostgresCursor(cursor, description)

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
                    raise
                if trouble.kind is not StoreUnreachable:
                    raise
            else:
                return
        self._reconnect()
        self._plain(how)

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

    def _commit(self) -> None:
        # A transaction in which a statement failed would be rolled back by this, and the server would call it a success.
        if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            raise PostgresRefused(
                StoreUnreachable if self._connection.closed else Collided, "there is nothing to commit"
            )
        try:
            self._plain("COMMIT")
        except PostgresRefused:
            if self._connection.closed:
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
            "statement_timeout": str(max(1, round(self._access.job_seconds * 1000))),
            "lock_timeout": str(_LOCK_MILLIS),
            "idle_in_transaction_session_timeout": str(_IDLE_IN_TRANSACTION_MILLIS),
            "default_transaction_read_only": "off" if self._exclusive else "on",
            **_SERVER_KEEPALIVE,
        }
        asked = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        # What was acknowledged must survive a power cut of the database server; stricter settings are left as they are.
        durable = "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"
        connection.pgconn.exec_(f"SELECT {asked}, {durable}".encode())
        if self._exclusive:
            # Whoever was killed just now still holds it for a moment.
            connection.execute(f"SET lock_timeout = {_PREDECESSOR_MILLIS}".encode())
            try:
                connection.execute(b"SELECT pg_advisory_lock($1)", (WRITER_LOCK,), binary=True)
            except LockNotAvailable:
                raise CannotOpen(
                    "the database is in use by another process",
                    hint="stop it first, or give this one a database of its own",
                ) from None
            connection.execute(f"SET lock_timeout = {_LOCK_MILLIS}".encode())


def _names(cursor: psycopg.Cursor[Any]) -> Sequence[tuple[str]] | None:
    result = cursor.pgresult
    if result is None or result.status != ExecStatus.TUPLES_OK:
        return None
    return tuple(((result.fname(column) or b"").decode(),) for column in range(result.nfields))


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
    begin_write=BEGIN_WRITE,
    begin_read=BEGIN_READ,
    only_reading=None,
    watch=_watch,
)
