"""Databases that no server is asked about: a back-up, the server's own while it is stopped, or one of PostgreSQL. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from server.cli import database_tools, local, terminal

if TYPE_CHECKING:
    from server.settings.setting_shapes import Config
    from server.store.data_directory import DataDirectory
    from server.store.jobs import Position, Store, StoreDb
    from server.store.transactions import Transactions

T = TypeVar("T")
# Others may run elsewhere on the same database.
OWN: Final = "no server runs here: this is read from its database"


@dataclass(frozen=True, kw_only=True)
class UnservedStore:
    """A database that no server is asked about, with the keys and the heads to check it with."""

    transactions: Transactions
    has_ledger: bool  # it is not older than that
    has_seals: bool  # nor older than these
    trail_key: bytes
    ledger_key: bytes
    subkey: Callable[[str], bytes]
    trail_heads: Callable[[], tuple[Position, ...]]  # raises `HeadLost`
    ledger_heads: Callable[[], tuple[Position, ...]]

    def reading(self, job: Callable[[StoreDb], T]) -> T:
        from server.store.transactions import PendingJob

        work = PendingJob(job)
        self.transactions.run_read(work)
        return work.result()


class FoundDatabase(NamedTuple):
    transactions: Transactions
    has_ledger: bool
    has_seals: bool
    fingerprint: str  # of the key file that it belongs to
    is_own: bool  # the server's: a copy may be older than the heads by rights


# Opens a database, given the settings and the data directory.
Opening: TypeAlias = "Callable[[Config, DataDirectory], AbstractContextManager[FoundDatabase]]"


@contextmanager
def opened(opening: Opening) -> Generator[UnservedStore]:
    from auth.audit import audit_trail
    from server.calls.servers.server_opening import subkeys
    from server.settings.resolved_settings import data_directory
    from server.store import ledger_chain
    from server.store.audit_head import HeadFile
    from server.store.data_directory import DataDirectory
    from server.store.jobs import StoreError

    settings = local.settings().config
    home = DataDirectory(data_directory(settings))
    try:
        with opening(settings, home) as found:
            key = database_tools.key_of(settings, home, found.fingerprint)
            subkey = subkeys(key)
            trail_key, ledger_key = subkey(audit_trail.KEY_PURPOSE), subkey(ledger_chain.KEY_PURPOSE)
            found.transactions.chain_audit(trail_key, ())
            yield UnservedStore(
                transactions=found.transactions,
                has_ledger=found.has_ledger,
                has_seals=found.has_seals,
                trail_key=trail_key,
                ledger_key=ledger_key,
                subkey=subkey,
                trail_heads=HeadFile(home.audit_head, trail_key).read if found.is_own else _no_heads,
                ledger_heads=HeadFile(home.ledger_head, ledger_key).read if found.is_own else _no_heads,
            )
    except StoreError as error:
        raise terminal.CliError(str(error), hint=error.hint) from error


def in_file(file: Path) -> Opening:
    @contextmanager
    def opening(settings: Config, home: DataDirectory) -> Generator[FoundDatabase]:
        from server.store.backup import fingerprint_of
        from server.store.soundness import was_copied_by_hand
        from server.store.sqlite_connect import connect_reader
        from server.store.transactions import JOB_SECONDS, Transactions

        fingerprint = fingerprint_of(file)
        if was_copied_by_hand(file):
            terminal.say_hint(
                f"{file} was not made by `ostiary backup`: the newest rows may be missing in it"
            )
        is_own = home.database.exists() and file.samefile(home.database)
        with closing(connect_reader(file)) as connection:
            if not any(row[1] == "seal" for row in connection.execute("PRAGMA table_info(audit)")):
                raise terminal.CliError(
                    f"{file} is of an older version, whose audit trail can no longer be read",
                    hint="check it with the build that made it",
                )
            has_ledger = bool(list(connection.execute("PRAGMA table_info(movements)")))
            has_seals = any(row[1] == "seal" for row in connection.execute("PRAGMA table_info(users)"))
            transactions = Transactions(connection, job_seconds=JOB_SECONDS)
            yield FoundDatabase(transactions, has_ledger, has_seals, fingerprint, is_own)

    return opening


def in_database(where: str) -> Opening:
    @contextmanager
    def opening(settings: Config, home: DataDirectory) -> Generator[FoundDatabase]:
        from server.cluster.postgres.postgres_connection import POSTGRES, PostgresAccess, PostgresConnection
        from server.cluster.postgres.postgres_errors import PostgresRefused
        from server.store import meta_rows
        from server.store.transactions import JOB_SECONDS, Transactions

        place = database_tools.place(where, settings)
        own = database_tools.place(settings.store, settings).parameters if settings.store else None
        access = PostgresAccess(parameters=place.parameters or {}, job_seconds=JOB_SECONDS)
        # It cannot write, and it need not be alone.
        with closing(PostgresConnection(access, writes=False)) as connection:
            try:
                sql = "SELECT value FROM meta WHERE key = ?"
                row = connection.execute(sql, (meta_rows.KEY_FINGERPRINT,)).fetchone()
            except PostgresRefused:
                row = None
            try:
                connection.execute("SELECT seal FROM users LIMIT 1").close()
                has_seals = True
            except PostgresRefused:
                has_seals = False
            if row is None:
                raise terminal.CliError(f"{place.called} is no database of ostiary, or of one that never ran")
            transactions = Transactions(connection, job_seconds=JOB_SECONDS, engine=POSTGRES)
            yield FoundDatabase(transactions, True, has_seals, row[0], place.parameters == own)

    return opening


def _no_heads() -> tuple[Position, ...]:
    return ()


@contextmanager
def own() -> Generator[UnservedStore]:
    """Open the database of the server that is meant, and does not run here. Raises `CliError`."""

    @contextmanager
    def opening(settings: Config, home: DataDirectory) -> Generator[FoundDatabase]:
        if settings.store:
            found = in_database(settings.store)(settings, home)
        elif home.database.exists():
            found = in_file(home.database)(settings, home)
        else:
            raise terminal.CliError(
                f"no server runs on {home.path}, and there is no database in it",
                hint="name its directory: --data-dir",
            )
        with found as database:
            yield database

    with opened(opening) as store:
        if not store.has_ledger:
            raise terminal.CliError("its database is older than the ledger", hint="start the server once")
        terminal.say(OWN)
        yield store


def ask_or_read(name: str) -> list[dict[str, Any]]:
    """Return what a reading command of the ledger answers: from the server, or from its database where none runs."""
    try:
        return local.ask(name)
    except local.NoServer:
        with own() as store:
            return _read(store, name)


def _read(store: UnservedStore, name: str) -> list[dict[str, Any]]:
    from server.admin.ledger_commands import LedgerCommands

    admin = LedgerCommands(
        store=cast("Store", _Snapshots(store)),
        clock=lambda: int(time.time() * 1000),
        subkey=store.subkey,
        committed_head=lambda: None,
        written_heads=store.ledger_heads,
    )
    command, rows, at = admin.commands()[name], list[dict[str, Any]](), None
    while True:
        page = _finished(command({"at": at}, "local"))
        rows += page.rows
        at = page.go_on
        if at is None:
            return rows


def _finished(answer: Any) -> Any:
    """Return what a coroutine comes to that never waits."""
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a read of a database that is not served waited")


class _Snapshots:
    """The reading side of a store, without threads."""

    def __init__(self, store: UnservedStore) -> None:
        self._store = store

    async def read(self, job: Callable[[StoreDb], T]) -> T:
        return self._store.reading(job)
