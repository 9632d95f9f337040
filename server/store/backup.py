"""Backing a database up while it is in use, and putting a copy back in its place. The key file is never in a copy.

Synchronous: the command line runs it, or the server in a thread.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from auth.values.database import AuditEntry
from server.lib.own_files import sync_directory
from server.store import meta_rows, move_marks
from server.store.audit_chain import AuditChain, AuditTail
from server.store.audit_head import HeadFile
from server.store.data_directory import DataDirectory
from server.store.database_snapshot import BackupFailed, SourceDamaged, copy_database, stamp, sync_file
from server.store.job_connection import Facade
from server.store.jobs import BEGINNING, CannotOpen, Position, StoreDamaged, StoreError
from server.store.ledger_chain import LedgerChain
from server.store.migrate import OLDEST_SCHEMA, oldest_served, refuse_newer, schema_version
from server.store.restore_exclusions import EntryRights, RestoreExclusions, keep_out, standing_in
from server.store.row_seals import Seal
from server.store.soundness import was_copied_by_hand
from server.store.sqlite_connect import APPLICATION_ID, connect_reader
from server.store.sqlite_errors import translate

# What a copy holds half-done. By now it is done or given up.
OPEN_BUSINESS: Final = (
    "browser_sessions",
    "one_time_links",
    "device_codes",
    "authorization_codes",
    "pushed_requests",
    "passkey_challenges",
    "upstream_logins",
    "consents",  # what was agreed to may have been taken back since
)

# Enough to go back on a restore that was a mistake; more would fill the disk.
KEPT_ASIDE: Final = 3
MADE_BY: Final = "`ostiary backup FILE` makes one; those that a server makes by itself are in backups/ of its data directory"
_ASIDE: Final = "-before-restore-"

_MAGIC: Final = b"SQLite format 3\0"


class RestoreRefused(StoreError):
    """The copy was not put in place; the database is as it was."""


class RestoredBackup(msgspec.Struct, frozen=True, kw_only=True):
    aside: Path | None  # where the old database was put, if there was one
    kept_out: RestoreExclusions
    schema: int  # of the copy


def back_up(database: Path, target: Path) -> None:
    """Copy the database as of now into the new file `target` (mode 0600), complete and synced, or leave no file.

    A server may be serving from it meanwhile. Raises `BackupFailed`.
    """
    if not database.is_file():
        raise BackupFailed(f"there is no database at {database}")
    try:
        with closing(connect_reader(database)) as source:
            copy_database(source, target)
    except CannotOpen as error:
        raise BackupFailed(str(error), hint=error.hint) from error


def fingerprint_of(copy: Path) -> str:
    """Which key file a back-up belongs to. Raises `RestoreRefused` if it is no back-up of ours."""
    if not copy.is_file():
        raise RestoreRefused(f"there is no file {copy}")
    try:
        with closing(connect_reader(copy)) as source:
            row = source.execute(
                "SELECT value FROM meta WHERE key = ?", (meta_rows.KEY_FINGERPRINT,)
            ).fetchone()
    except (sqlite3.Error, StoreError):
        row = None
    if row is None:
        raise RestoreRefused(f"{copy} is no back-up of ostiary", hint=MADE_BY)
    return str(row[0])


def restore(
    copy: Path,
    database: Path,
    *,
    known_schema: int,
    key_fingerprint: str,
    audit_key: bytes,
    ledger_key: bytes,
    refresh_epoch: str,
    by: str,
    now: int,
    copied: bool = False,
    trial: bool = False,
) -> RestoredBackup:
    """Replace the database by `copy` and begin a new refresh epoch. Nothing comes back to life that was ended since (restore_exclusions.py).

    `copied`: also a file that was copied by hand, and may lack what the server had written last. `trial`: do all of it but the
    replacing, beside a server that may be running.

    Its audit trail says that this was done, and by whom (`by`: local:<uid>); its head, and that of the ledger, are written down as the ones that count.

    The caller holds the data directory's lock. At every moment either the old or the new database is in place, whole. Raises
    `RestoreRefused`: the copy is damaged, no database of ours, of a newer schema, or belongs to another key; or the database
    in place is in use or cannot be put aside.
    """
    incoming = database.with_name(f"{database.name}.{f'trial-{os.getpid()}' if trial else 'incoming'}")
    if not copied and was_copied_by_hand(copy):
        raise RestoreRefused(
            f"{copy} was not made by `ostiary backup` but copied: it may lack what the server had written last",
            hint="use a back-up; or, if the server was stopped when it was copied, restore it with --copied",
        )
    try:
        _clear(incoming)
        kept_out, schema = _bring_in(
            copy,
            incoming,
            known_schema=known_schema,
            fingerprint=key_fingerprint,
            epoch=refresh_epoch,
            standing=standing_in(database, key_fingerprint),
            seal=Seal(audit_key),
            now=now,
        )
        head = _write_down(incoming, AuditChain(audit_key), kept_out, by=by, now=now)
        if trial:
            return RestoredBackup(aside=None, kept_out=kept_out, schema=schema)
        home = DataDirectory(database.parent)
        written = (
            (HeadFile(home.audit_head, audit_key), head),
            (HeadFile(home.ledger_head, ledger_key), _ledger_head(incoming, LedgerChain(ledger_key))),
        )
        for file, end in written:
            file.add(end)  # beside the old one: whichever database is there when this is cut off, both fit
        aside = _put_aside(database, now=now)
        os.replace(incoming, database)
        sync_directory(database.parent)
        for file, end in written:
            file.write(end)
        _forget_old_ones(database)
    except SourceDamaged as error:
        raise RestoreRefused(f"{copy} is damaged", hint="use another back-up") from error
    except sqlite3.Error as error:
        raise RestoreRefused(f"cannot restore {copy}: {translate(error)}") from error
    except OSError as error:
        raise RestoreRefused(f"cannot restore {copy}: {error.strerror}") from error
    except RestoreRefused:
        raise
    except StoreError as error:
        raise RestoreRefused(f"cannot restore {copy}: {error}", hint=error.hint) from error
    finally:
        _clear(incoming)
    return RestoredBackup(aside=aside, kept_out=kept_out, schema=schema)


def _clear(incoming: Path) -> None:
    """Away with what a restore that was cut off has left. Its log, too: SQLite would play it back into the next copy."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        incoming.with_name(incoming.name + suffix).unlink(missing_ok=True)


def _bring_in(
    copy: Path,
    incoming: Path,
    *,
    known_schema: int,
    fingerprint: str,
    epoch: str,
    standing: EntryRights | None,
    seal: Seal,
    now: int,
) -> tuple[RestoreExclusions, int]:
    if not copy.is_file():
        raise RestoreRefused(f"there is no file {copy}")
    with closing(connect_reader(copy)) as source:
        if source.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise RestoreRefused(f"{copy} is no back-up of ostiary", hint=MADE_BY)
        copy_database(source, incoming)
    with closing(sqlite3.connect(incoming, isolation_level=None)) as connection:
        if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise SourceDamaged(f"{copy} is damaged")
        schema = schema_version(connection)
        refuse_newer(oldest_served(connection), known_schema)
        row = connection.execute(
            "SELECT value FROM meta WHERE key = ?", (meta_rows.KEY_FINGERPRINT,)
        ).fetchone()
        if row is None or row[0] != fingerprint:
            raise RestoreRefused(
                f"{copy} belongs to another key file", hint="put the key file of that time in place first"
            )
        if schema < OLDEST_SCHEMA:
            raise RestoreRefused(
                f"{copy} is of schema {schema}, whose audit trail can no longer be read",
                hint="use a newer back-up",
            )
        # What was open when the copy was made was closed since, as far as anybody knows: none of it comes back to life.
        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in OPEN_BUSINESS:
            if table in there:  # the copy may be of an older schema
                connection.execute(f"DELETE FROM {table}")
        # It counts from here on, whatever became of it elsewhere.
        connection.executemany("DELETE FROM meta WHERE key = ?", [(mark,) for mark in move_marks.MARKS])
        kept_out = keep_out(connection, standing, seal=seal, now=now)
        # Chains that were rotated after the copy was made are then told from stolen ones.
        connection.execute(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (meta_rows.REFRESH_EPOCH, epoch),
        )
    sync_file(incoming)
    return kept_out, schema


def _write_down(
    incoming: Path, chain: AuditChain, kept_out: RestoreExclusions, *, by: str, now: int
) -> Position:
    """The new head."""
    reason = "; ".join(filter(None, ("from a back-up", str(kept_out))))
    entry = AuditEntry(now, "store.restored", by, None, None, None, None, "ok", reason)
    with closing(sqlite3.connect(incoming, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        db, tail = Facade(connection, at=now, writable=True), AuditTail(chain)
        tail.append(db, entry)
        tail.flush(db.execute)
        connection.execute("COMMIT")
    sync_file(incoming)
    return tail.head


def _ledger_head(incoming: Path, chain: LedgerChain) -> Position:
    """Where the ledger of the copy ends; it begins anew in one that is older than the ledger, or says nothing that can be read."""
    with closing(sqlite3.connect(incoming, isolation_level=None)) as connection:
        record = chain.record(Facade(connection, at=0, writable=False))
    return BEGINNING if record is None else Position(seq=record.head, mac=record.head_mac)


def _put_aside(database: Path, *, now: int) -> Path | None:
    """Give the old database a second name. Its log must be gone first: SQLite would replay it into the new database."""
    logs = [database.with_name(database.name + suffix) for suffix in ("-wal", "-shm")]
    if not database.exists():
        for log in logs:
            log.unlink(missing_ok=True)
        return None
    aside = database.with_name(f"{database.stem}{_ASIDE}{stamp(now)}.db")
    if not _fold_log(database):
        # A damaged database keeps its log beside it, under the new name, for whoever wants to try.
        for log in logs:
            if log.exists():
                os.rename(log, aside.with_name(aside.name + log.name.removeprefix(database.name)))
    os.link(database, aside)
    return aside


def _forget_old_ones(database: Path) -> None:
    """Of the databases that were put aside the newest few stay, each with the log that may lie beside it."""
    found = sorted(database.parent.glob(f"{database.stem}{_ASIDE}*Z.db"))
    for old in found[:-KEPT_ASIDE]:
        for suffix in ("-wal", "-shm", ""):
            old.with_name(old.name + suffix).unlink(missing_ok=True)


def _fold_log(database: Path) -> bool:
    """Move the log into the file and remove it; False if the file is too damaged for that. Raises if it is in use."""
    with database.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False  # SQLite would throw the log away, taking it for that of another database
    try:
        with closing(sqlite3.connect(database, isolation_level=None)) as old:
            old.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        if not isinstance(translate(error), StoreDamaged):
            raise
        return False
    return True
