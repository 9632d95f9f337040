"""One connection to PostgreSQL that is made again when it was lost, for `server/store/transactions.py`.

The server restarts, a network is cut. Before a commit nothing was written, so the transaction is run again on a new connection; during
a commit nobody knows, which is said (`CommitInDoubt`). Between two tries to connect there is a pause that grows, in which whoever asks
is refused at once. `postgres_transaction.py` says what is sent.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import psycopg
from psycopg.errors import LockNotAvailable

from server.cluster.postgres.postgres_errors import STANDS_BY, PostgresRefused, refused
from server.cluster.postgres.postgres_session import set_up, timeline_of
from server.cluster.postgres.postgres_transaction import (
    BEGIN_READ,
    BEGIN_WRITE,
    COMMIT_TELLING,
    PostgresTransactions,
)
from server.cluster.postgres.postgres_trips import PostgresTrips
from server.cluster.postgres.postgres_values import adapters
from server.cluster.postgres.postgres_wire import (
    GRACE_SECONDS,
    Outage,
    ServerSilent,
    Timeline,
    WireConnection,
    connected,
    first_line,
    without,
)
from server.store.jobs import (
    CANNOT_BE_REACHED,
    CannotOpen,
    Collided,
    StoreError,
    StoreReadOnly,
    StoreUnreachable,
)
from server.store.store_engine import Begun, StoreEngine

# The newest step, and the newest that only programs that know it can go on with (`server/store/migrate.py`).
_SCHEMA_NOW: Final = b"SELECT max(version), coalesce(max(version) FILTER (WHERE coalesce(additive, 0) = 0), 0) FROM schema_version"
# Whatever else a connection waits for (`postgres_wire.py`).
_LOCK_MILLIS: Final = 5_000
_PREDECESSOR_MILLIS: Final = 2_000
# Of the number of a lock, which has a sign there.
_LOCK_BITS: Final = 62
# Whoever reads holds nobody up. Whoever has the turn to write and says nothing more loses it, before those who wait have waited too long.
_SILENT_READER_MILLIS: Final = 30_000
_SILENT_WRITER_MILLIS: Final = 3_000

# Whoever writes holds this together with the others, for as long as its connection stands: "OSTY", of the schema that its tables are in. Alone
# it is held by who changes that. Without a schema it was held by versions of before, which were alone altogether.
WRITER_LOCK: Final = 0x4F535459
_OF_SCHEMA: Final = f"{WRITER_LOCK}, hashtext(current_schema())"
TOGETHER: Final = f"SELECT pg_advisory_lock_shared({_OF_SCHEMA})".encode()
NOT_TOGETHER: Final = f"SELECT pg_advisory_unlock_shared({_OF_SCHEMA})".encode()
ALONE: Final = f"SELECT pg_advisory_lock({_OF_SCHEMA})".encode()
TRY_ALONE: Final = f"SELECT pg_try_advisory_lock({_OF_SCHEMA})".encode()
TRY_TOGETHER: Final = f"SELECT pg_try_advisory_lock_shared({_OF_SCHEMA})".encode()
NOT_ALONE: Final = f"SELECT pg_advisory_unlock({_OF_SCHEMA})".encode()
# While others have the schema and are about to go. Tries are counted, so that a pause of this process is one; of who changes it, there is no end.
_SCHEMA_SECONDS: Final = 5.0
_SCHEMA_PAUSE_SECONDS: Final = 0.05
# As long as whoever starts waits for another one that brings the schema up. On a busy machine that takes a while.
_START_SECONDS: Final = 15.0


class ChangedSchema(CannotOpen):
    """The database can be reached, and is another version's meanwhile."""


class OldPrimary(CannotOpen):
    """A server whose standby has taken its place, as this process knows because it was there."""


class PostgresAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The way to reach the database."""

    parameters: Mapping[str, str]  # of libpq
    job_seconds: float
    outage: Outage = msgspec.field(default_factory=Outage)

    def __repr__(self) -> str:  # there is a password in it
        return "PostgresAccess(…)"


class PostgresConnection(PostgresTransactions):
    """An `EngineConnection`. `writes`: in its turn, with the connections of others; or, `alone`, while there are none."""

    role = "reader"  # as whoever administrates the database sees it

    def __init__(self, access: PostgresAccess, *, writes: bool, alone: bool = False) -> None:
        super().__init__()
        self._access = access
        self._writes = writes
        self._alone = alone
        self.role = "writer" if writes else self.role
        self.generation = 0  # another one with each connection that is made after one was lost
        # Held alone. The end of a transaction of which nobody was told how it ended: as long as the old connection lives at the server, the
        # new one does not get it.
        self._own_lock = secrets.randbits(_LOCK_BITS)
        self._schema = 0  # that it was opened with; 0: not known yet
        self._adapters = adapters()
        self._closed = False
        self._timeline: Timeline | None = None
        self._connection = self._connect()
        self._trips = PostgresTrips(self._connection)

    @property
    def is_out_of_reach(self) -> bool:
        """Return whether there is no connection, and no try due, or another one has found what holds for all. Any thread may ask."""
        outage = self._access.outage
        return isinstance(outage.because, ChangedSchema) or (outage.refuses and self._connection.closed)

    @property
    def is_replaced(self) -> bool:
        return self._timeline is not None and self._access.outage.is_over(self._timeline)

    def unreachable(self) -> PostgresRefused:
        """Return the refusal of whoever asks meanwhile."""
        because = self._access.outage.because
        if because is None:
            return PostgresRefused(StoreUnreachable, CANNOT_BE_REACHED)
        return PostgresRefused(StoreUnreachable, str(because), hint=because.hint)

    def begin_without_end(self, how: str) -> None:
        """Begin a transaction that is no job's: old tables may be long. Locks of others are waited for no longer than usual.

        Never on a new connection, which would not be alone with the schema.
        """
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
        """Put many rows at once, in the transaction that is under way."""
        sql = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        self._settle()
        try:
            with self._connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
                copy.set_types(types)
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def alone_with_schema(self, is_done: Callable[[], bool]) -> bool:
        """Let nobody else write until `together_with_schema`. False: it was done by others meanwhile, who write already.

        Raises `CannotOpen` if others go on writing, and it is not done. While somebody else is alone with it, that is waited for.
        """
        tries = 0
        self._ask(NOT_TOGETHER)
        while not self._ask(TRY_ALONE):
            if is_done():
                self._ask(TOGETHER)
                return False
            tries += 1
            if tries * _SCHEMA_PAUSE_SECONDS > _SCHEMA_SECONDS:
                if self._ask(TRY_TOGETHER):
                    self._ask(NOT_TOGETHER)
                    raise CannotOpen(
                        "the database has an older schema, and other processes are using it",
                        hint="stop them first: they do not know the schema of this version",
                    )
                tries = 0
            time.sleep(_SCHEMA_PAUSE_SECONDS)
        return True

    def together_with_schema(self) -> None:
        self._ask(TOGETHER)
        self._ask(NOT_ALONE)

    def note_schema(self, version: int) -> None:
        """Go on with this schema only, also on another connection."""
        self._schema = version

    def close(self) -> None:
        self._closed = True
        self._connection.close()

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
        """Connect again. Raises `PostgresRefused`."""
        outage = self._access.outage
        if self._closed or not outage.begin_try():
            raise self.unreachable()
        self._connection.close()
        self._descriptions.clear()
        self.generation += 1
        try:
            self._connection = self._connect()
            self._trips = PostgresTrips(self._connection)
        except BaseException as trouble:
            outage.failed(trouble if isinstance(trouble, ChangedSchema | OldPrimary) else None)
            if isinstance(trouble, CannotOpen):
                raise PostgresRefused(StoreUnreachable, str(trouble), hint=trouble.hint) from None
            raise
        outage.succeeded()

    def _connect(self) -> WireConnection:
        """Connect. Raises `CannotOpen`."""
        parameters = self._access.parameters
        passed_by: OldPrimary | None = None
        while True:
            try:
                connection = connected(parameters, context=self._adapters, outage=self._access.outage)
            except CannotOpen as trouble:
                raise passed_by or trouble from None
            try:
                self._set_up(connection)
                break
            except OldPrimary as old:
                others = without(parameters, connection)
                connection.close()
                if others is None:
                    raise
                parameters, passed_by = others, old
            except BaseException as error:
                connection.close()
                if isinstance(error, psycopg.Error):
                    raise CannotOpen(f"cannot use the database: {first_line(error, parameters)}") from None
                raise
        connection.patience = self._patience
        if not self._writes:  # of what was written nobody would know
            connection.watch_network()
        return connection

    @property
    def _patience(self) -> float:
        return self._access.job_seconds + GRACE_SECONDS

    def _set_up(self, connection: WireConnection) -> None:
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
        timeline = timeline_of(connection)
        if not self._access.outage.meet(timeline):
            raise OldPrimary(
                "the database server that answers is an old primary: its standby has taken its place, and was used already",
                hint="stop it, and make it a standby of the new one; or start this process anew, if it is the one to go on with",
            )
        self._timeline = timeline
        if self._writes:
            # Whoever was killed just now still holds it for a moment.
            connection.execute(f"SET lock_timeout = {_PREDECESSOR_MILLIS}".encode())
            try:
                connection.execute(b"SELECT pg_advisory_lock_shared($1)", (WRITER_LOCK,), binary=True)
                if self._alone:
                    connection.execute(ALONE, binary=True)
                else:
                    self._join(connection)
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
                raise ChangedSchema(
                    "the schema of the database was changed by another version",
                    hint="start this process anew, with that version",
                )

    def _join(self, connection: WireConnection) -> None:
        """Write together with others, once nobody is alone with the schema. Raises `LockNotAvailable`."""
        tries, seconds = 0, _PREDECESSOR_MILLIS / 1000 if self._schema else _START_SECONDS
        while connection.execute(TRY_TOGETHER, binary=True).fetchone() != (True,):
            tries += 1
            if tries * _SCHEMA_PAUSE_SECONDS > seconds:
                raise LockNotAvailable
            time.sleep(_SCHEMA_PAUSE_SECONDS)

    def _ask(self, sql: bytes) -> Any:
        """Return the first value of a row. Raises `CannotOpen`."""
        try:
            row = self._connection.execute(sql, binary=True).fetchone()
        except psycopg.Error as error:
            raise CannotOpen(
                f"cannot use the database: {first_line(error, self._access.parameters)}"
            ) from None
        return None if row is None else row[0]


def _watch(connection: PostgresConnection, is_late: Callable[[], bool], note_begun: Begun) -> None:
    connection.is_late, connection.note_begun = is_late, note_begun


def _out_of_reach(connection: PostgresConnection) -> StoreError | None:
    return connection.unreachable().as_store_error() if connection.is_out_of_reach else None


POSTGRES: Final = StoreEngine(
    errors=(PostgresRefused,),
    translate=PostgresRefused.as_store_error,
    lost=(Collided, StoreUnreachable),
    shared=True,
    begin_write=BEGIN_WRITE,
    begin_read=BEGIN_READ,
    commit_telling=COMMIT_TELLING,
    out_of_reach=_out_of_reach,
    only_reading=None,
    watch=_watch,
    # Asked of the connection itself, which may be one that stands for another.
    foresee=lambda connection, sql, parameters: connection.foresee(sql, parameters),
    foresee_for_all=lambda connection, sql, parameters: connection.foresee(sql, parameters, lasting=True),
    later=lambda connection, sql, parameters: connection.later(sql, parameters),
    one_row_later=lambda connection, sql, parameters: connection.one_row_later(sql, parameters),
)
