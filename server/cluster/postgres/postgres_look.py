"""What a PostgreSQL database is like for a server that is to run on it, looked at in the way in which it would be opened (`postgres.py`), and
with nothing changed: the connection only reads, and holds none of the locks of those who write. What it comes to in words is
`server/cli/doctor/doctor_postgres.py`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any, Final

import msgspec

from server.cluster.postgres.postgres_connection import POSTGRES, PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_errors import PostgresRefused
from server.cluster.postgres.postgres_schema import missing_of, tables_in
from server.store import meta_rows, move_marks, node_rows
from server.store.jobs import CannotOpen, NewerSchema, StoreDb, StoreError
from server.store.migrate import packaged_migrations
from server.store.node_rows import NodeSeen
from server.store.transactions import PendingJob, Transactions

# Somebody waits for it. Of one host; what else is asked takes no longer.
LOOK_SECONDS: Final = 3

_ROLE: Final = "(SELECT oid FROM pg_roles WHERE rolname = current_user)"
_DATABASE: Final = "(SELECT oid FROM pg_database WHERE datname = current_database())"
# Whoever is connected to a database as somebody; its own processes are nobody.
_CLIENTS: Final = (
    "pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL AND pid <> pg_backend_pid()"
)
_SERVER: Final = f"""
SELECT current_setting('server_version') AS version, current_database()::text AS database, current_user::text AS role,
  current_schema()::text AS place, coalesce((SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()), '') AS tls,
  current_setting('fsync') = 'on' AS durable, current_setting('synchronous_standby_names') AS awaited,
  (SELECT count(*) FROM pg_stat_replication) AS standbys,
  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS standbys_awaited,
  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NOT NULL) AS standbys_told,
  has_schema_privilege(current_schema(), 'CREATE') AS may_create,
  has_database_privilege(current_database(), 'CREATE') AS may_create_schemas,
  coalesce((SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = current_schema()), '')::text AS owner,
  current_setting('max_connections')::int8 AS most,
  current_setting('superuser_reserved_connections')::int8
    + coalesce(current_setting('reserved_connections', true), '0')::int8 AS reserved,
  (SELECT count(*) FROM {_CLIENTS}) AS taken,
  (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user)::int8 AS role_most,
  (SELECT count(*) FROM {_CLIENTS} AND usesysid = {_ROLE}) AS role_taken,
  (SELECT datconnlimit FROM pg_database WHERE datname = current_database())::int8 AS database_most,
  (SELECT count(*) FROM {_CLIENTS} AND datid = {_DATABASE}) AS database_taken,
  (SELECT count(*) FROM {_CLIENTS} AND datid = {_DATABASE} AND application_name = 'ostiary writer') AS writers
"""
# Those that somebody else made, and of these those that may not be written to.
_OF_OTHERS: Final = """
SELECT relname::text, pg_get_userbyid(relowner)::text,
  has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
  FROM pg_class
  WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    AND relkind IN ('r', 'p') AND NOT pg_has_role(relowner, 'USAGE')
  ORDER BY relname
"""


class DatabaseServer(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers, and whom it takes us for."""

    version: str
    database: str
    role: str
    place: str  # the schema that the tables are in, or will be
    tls: str  # its version; "": there is none
    durable: bool
    awaited: str  # synchronous_standby_names
    standbys: int
    standbys_awaited: int
    standbys_told: int  # of how many of them it is said whether they are waited for: of all, or of none
    may_create: bool
    may_create_schemas: bool
    owner: str  # of that schema
    most: int  # connections
    reserved: int  # for whoever administrates it
    taken: int  # without the one that looks
    role_most: int  # -1: no limit
    role_taken: int
    database_most: int
    database_taken: int
    writers: int  # processes of ours that are connected to this database

    @property
    def free(self) -> int:
        """That this role could have now."""
        found = [self.most - self.reserved - self.taken]
        if self.role_most >= 0:
            found.append(self.role_most - self.role_taken)
        if self.database_most >= 0:
            found.append(self.database_most - self.database_taken)
        return max(0, min(found))

    @property
    def bound(self) -> int:
        """Of all that this role could ever have."""
        limits = [each for each in (self.role_most, self.database_most) if each >= 0]
        return min([self.most - self.reserved, *limits])

    @property
    def bound_by(self) -> str:
        """Which setting that is."""
        if self.bound == self.role_most:
            return "its role's CONNECTION LIMIT"
        return "its database's CONNECTION LIMIT" if self.bound == self.database_most else "max_connections"


class TablesSeen(msgspec.Struct, frozen=True, kw_only=True):
    known: int  # the schema of this version
    found: int = 0  # of the database; 0: nothing was made yet
    additive: bool = True  # what is missing may be added beside others who write
    belongs_to: str = ""  # another role that made some of them
    writable: bool = True
    problem: str = ""  # why no server of this version runs on it
    hint: str = ""
    fingerprint: str | None = None  # of the key file that it belongs to

    @property
    def missing(self) -> int:
        return max(0, self.known - self.found)


class DatabaseSeen(msgspec.Struct, frozen=True, kw_only=True):
    host: str  # as the address has it
    seconds: float  # until there was a connection
    server: DatabaseServer
    tables: TablesSeen
    nodes: tuple[NodeSeen, ...] | None = None  # None: its tables do not say


class _LookingConnection(PostgresConnection):
    role = "doctor"


def look(parameters: Mapping[str, str]) -> DatabaseSeen:
    """For a thread: it waits. Raises `CannotOpen`, as opening the store would."""
    began = time.monotonic()
    access = PostgresAccess(
        parameters={"connect_timeout": str(LOOK_SECONDS), **parameters}, job_seconds=LOOK_SECONDS
    )
    with closing(_LookingConnection(access, writes=False)) as connection:
        seconds = time.monotonic() - began
        try:
            server = _server(connection)
            tables = _tables(connection)
        except PostgresRefused as error:
            raise CannotOpen(f"cannot read the database: {error}", hint=error.as_store_error().hint) from None
        asking = Transactions(connection, job_seconds=LOOK_SECONDS, engine=POSTGRES)
        found = None
        if tables.found and tables.writable:
            tables = _with_what_is_kept(tables, asking)
            with suppress(StoreError):  # of before there were any
                found = _read(asking, node_rows.look)
    return DatabaseSeen(host=_where(parameters), seconds=seconds, server=server, tables=tables, nodes=found)


def _server(connection: PostgresConnection) -> DatabaseServer:
    cursor = connection.execute(_SERVER)
    row = cursor.fetchone()
    return msgspec.convert(
        dict(zip((each[0] for each in cursor.description), row, strict=True)), DatabaseServer
    )


def _tables(connection: PostgresConnection) -> TablesSeen:
    migrations = packaged_migrations()
    known = len(migrations)
    of_others = connection.execute(_OF_OTHERS).fetchall()
    belongs_to = of_others[0][1] if of_others else ""
    if not all(writable for *_, writable in of_others):
        return TablesSeen(known=known, found=known, belongs_to=belongs_to, writable=False)
    found = 0
    try:
        missing = missing_of(connection, migrations)
        found = _newest(connection)
    except CannotOpen as refused:
        # Of another program: there is no number.
        with suppress(PostgresRefused):
            found = _newest(connection) if isinstance(refused, NewerSchema) else 0
        return TablesSeen(
            known=known, found=found, belongs_to=belongs_to, problem=str(refused), hint=refused.hint or ""
        )
    return TablesSeen(
        known=known,
        found=found,
        additive=all(each.is_additive for each in missing),
        belongs_to=belongs_to,
    )


def _newest(connection: PostgresConnection) -> int:
    if "schema_version" not in tables_in(connection):
        return 0
    return connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0]


def _with_what_is_kept(tables: TablesSeen, asking: Transactions) -> TablesSeen:
    if tables.problem:
        return tables
    fingerprint = _read(asking, lambda db: meta_rows.get(db, meta_rows.KEY_FINGERPRINT))
    try:
        _read(asking, move_marks.look)
    except CannotOpen as refused:
        return msgspec.structs.replace(
            tables, problem=str(refused), hint=refused.hint or "", fingerprint=fingerprint
        )
    return msgspec.structs.replace(tables, fingerprint=fingerprint)


def _read(asking: Transactions, job: Callable[[StoreDb], Any]) -> Any:
    work = PendingJob(job)
    asking.run_read(work)
    return work.result()


def _where(parameters: Mapping[str, str]) -> str:
    port = parameters.get("port", "")
    return f"{parameters['host']}:{port}" if port and "," not in port else parameters["host"]
