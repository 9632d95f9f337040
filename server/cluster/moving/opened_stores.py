"""Opening the two stores of a copy, each for this process alone: a file of the data directory, or a PostgreSQL database.

Whatever is there is looked at before it is changed: what holds rows of somebody else is refused as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from server.cluster.moving.copy_ends import STATEMENT_SECONDS, CopyEnd, SqliteEnd
from server.cluster.moving.copy_plan import LEFT_BEHIND
from server.cluster.moving.row_copy import CopyRefused
from server.lib.own_files import sync_directory
from server.store import meta_rows, move_marks
from server.store.data_directory import DataDirectory
from server.store.database_snapshot import stamp
from server.store.jobs import CannotOpen
from server.store.migrate import Migration, migrate, refuse_newer
from server.store.move_marks import CopiedAway, CopiedHere
from server.store.soundness import check_before_serving
from server.store.sqlite_connect import connect_writer, opening

# How the file of the data directory is called, where an address of a database could stand.
DATA_DIR: Final = "data-dir"


class StorePlace(msgspec.Struct, frozen=True, kw_only=True):
    called: str  # as people wrote it
    parameters: Mapping[str, str] | None = None  # of libpq; None: the file

    def __repr__(self) -> str:  # there is a password in it
        return f"StorePlace({self.called!r}, …)"


class OpenedEnds(msgspec.Struct, frozen=True, kw_only=True):
    source: CopyEnd
    target: CopyEnd
    fingerprint: str  # of the key file that the source belongs to
    aside: Path | None  # where the file went that was in the target's place, and was moved itself


@contextmanager
def opened(
    home: DataDirectory,
    source: StorePlace,
    target: StorePlace,
    *,
    migrations: Sequence[Migration],
    now: int,
) -> Generator[OpenedEnds]:
    """The caller holds the data directory's lock. Raises `StoreError`."""
    if source.parameters == target.parameters:
        raise CopyRefused(
            f"{target.called} is where the rows are",
            hint="--to names where they go, --from where they come from",
        )
    with closing(open_source(home, source, migrations, now)) as left:
        fingerprint = left.reading(lambda db: meta_rows.get(db, meta_rows.KEY_FINGERPRINT))
        if fingerprint is None:
            raise CopyRefused(f"there is nothing to copy: no server has run on {source.called} yet")
        if left.reading(move_marks.here) is not None:
            raise CopyRefused(
                f"{source.called} is itself a copy that was cut off", hint="go on with that one first"
            )
        aside = _put_aside(home.database, now=now) if target.parameters is None else None
        with closing(_target(home, target, migrations, fingerprint, now)) as right:
            yield OpenedEnds(source=left, target=right, fingerprint=fingerprint, aside=aside)


def open_source(home: DataDirectory, place: StorePlace, migrations: Sequence[Migration], now: int) -> CopyEnd:
    if place.parameters is not None:
        return _postgres(place, migrations, now)
    if not home.database.exists():
        raise CopyRefused(
            f"there is no database at {home.database}",
            hint="--from says where the rows are, if the settings do not; --data-dir which data directory is meant",
        )
    return _file(home, migrations, now)


def _target(
    home: DataDirectory,
    place: StorePlace,
    migrations: Sequence[Migration],
    fingerprint: str,
    now: int,
) -> CopyEnd:
    if place.parameters is not None:
        return _postgres(place, migrations, now, of=fingerprint)
    if home.database.exists():
        with closing(connect_writer(home.database)) as there, opening(home.database):
            found = there.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
            tables = [name for (name,) in found.fetchall()]

            def one(sql: str) -> Sequence[Any] | None:
                return there.execute(sql).fetchone()

            is_old = _is_of_older(tables, one, place.called, len(migrations), fingerprint)
        if is_old:
            for suffix in ("-wal", "-shm", ""):
                home.database.with_name(home.database.name + suffix).unlink(missing_ok=True)
    return _file(home, migrations, now)


def _file(home: DataDirectory, migrations: Sequence[Migration], now: int) -> CopyEnd:
    connection = connect_writer(home.database)
    try:
        with opening(home.database):
            check_before_serving(connection, home.database)
            migrate(connection, migrations, now=now, backups=home.backups)
    except BaseException:
        connection.close()
        raise
    return SqliteEnd(connection, home.database)


def _postgres(
    place: StorePlace, migrations: Sequence[Migration], now: int, *, of: str | None = None
) -> CopyEnd:
    """`of`: the store that is to be copied here."""
    from server.cluster.moving.postgres_end import PostgresEnd
    from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
    from server.cluster.postgres.postgres_errors import PostgresRefused
    from server.cluster.postgres.postgres_schema import bring_up, tables_in

    access = PostgresAccess(parameters=place.parameters or {}, job_seconds=STATEMENT_SECONDS)
    connection = PostgresConnection(access, writes=True, alone=True)
    try:
        if of is not None:
            tables = tables_in(connection)

            def one(sql: str) -> Sequence[Any] | None:
                return connection.execute(sql).fetchone()

            if _is_of_older(tables, one, place.called, len(migrations), of):
                connection.script(f"DROP TABLE {', '.join(tables)}")
        bring_up(connection, migrations, now=now)
    except PostgresRefused as error:
        connection.close()
        raise CannotOpen(f"cannot use {place.called}: {error}") from None
    except BaseException:
        connection.close()
        raise
    return PostgresEnd(connection, place.called)


def _is_of_older(
    tables: Sequence[str],
    one: Callable[[str], Sequence[Any] | None],
    called: str,
    schema: int,
    fingerprint: str,
) -> bool:
    """Whether there is a copy that an older version has begun: it is begun anew. Raises `CopyRefused` where there is anything else."""
    if "meta" in tables:
        row = one(f"SELECT value FROM meta WHERE key = '{move_marks.HERE}'")
        if row is not None:
            mark = msgspec.json.decode(row[0], type=CopiedHere)
            refuse_newer(mark.schema, schema)
            if mark.key != fingerprint:
                raise CopyRefused(
                    f"{called} holds a copy of another store ({mark.source}) that was cut off",
                    hint="name another database, or empty that one",
                )
            return mark.schema < schema
    for table in tables:
        if table not in LEFT_BEHIND and one(f"SELECT 1 FROM {table} LIMIT 1") is not None:
            raise CopyRefused(
                f"{called} has rows already (in {table})",
                hint="name another database, or empty that one; what is there is no part of this copy",
            )
    return False


def _put_aside(database: Path, *, now: int) -> Path | None:
    """The file of the data directory, if its rows were moved away: they come back now. Its log is folded into it first."""
    if not database.exists():
        return None
    with closing(connect_writer(database)) as there, opening(database):
        if not there.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            return None
        row = there.execute("SELECT value FROM meta WHERE key = ?", (move_marks.AWAY,)).fetchone()
        if row is None or msgspec.json.decode(row[0], type=CopiedAway).at is None:
            return None
        there.execute("PRAGMA journal_mode = DELETE")
    aside = database.with_name(f"{database.stem}-moved-{stamp(now)}.db")
    os.rename(database, aside)
    sync_directory(database.parent)
    return aside
