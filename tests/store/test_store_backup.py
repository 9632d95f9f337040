"""Copies and their way back (server/store/backup.py)."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from damage import spoil
from store_engines import NOW, put

from auth.values.database import AuditEntry
from server.store import meta_rows
from server.store.audit_chain import AuditChain
from server.store.audit_head import HeadFile
from server.store.backup import RestoreRefused, back_up, restore
from server.store.chains import Record
from server.store.database_snapshot import BackupFailed
from server.store.inline_store import open_inline_store
from server.store.migrate import OLDEST_SCHEMA, migrate, packaged_migrations
from server.store.sqlite import open_store
from server.store.sqlite_connect import APPLICATION_ID, connect_writer

KNOWN = len(packaged_migrations())
AUDIT_KEY = b"audit key of the back-ups"
LEDGER_KEY = b"another key, of the ledger"
FINGERPRINT = "000102030405:abcdef"


def values(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def restore_known(copy: Path, database: Path, **changed: object) -> Path | None:
    arguments: dict[str, object] = {
        "known_schema": KNOWN,
        "key_fingerprint": FINGERPRINT,
        "audit_key": AUDIT_KEY,
        "ledger_key": LEDGER_KEY,
        "refresh_epoch": "new-epoch",
        "by": "local:7",
        "now": NOW,
    }
    return restore(copy, database, **(arguments | changed)).aside  # type: ignore[arg-type]


@pytest.fixture
def database(database: Path) -> Path:
    rows = [
        (meta_rows.KEY_FINGERPRINT, FINGERPRINT),
        (meta_rows.AUDIT_CHAIN, AuditChain(AUDIT_KEY).sealed(Record())),
        (meta_rows.REFRESH_EPOCH, "old-epoch"),
        ("kept", "x"),
    ]
    with closing(connect_writer(database)) as connection:
        connection.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", rows)
    return database


def test_a_trial_changes_nothing_and_says_what_a_restore_would(
    database: Path, copy: Path, directory: Path
) -> None:
    before = values(database)
    done = restore(
        copy,
        database,
        known_schema=KNOWN,
        key_fingerprint=FINGERPRINT,
        audit_key=AUDIT_KEY,
        ledger_key=LEDGER_KEY,
        refresh_epoch="new-epoch",
        by="local:7",
        now=NOW,
        trial=True,
    )
    assert (done.aside, done.schema) == (None, KNOWN)
    assert values(database) == before
    assert not list(directory.glob("*trial*"))
    assert not list(directory.glob("*before-restore*"))


def test_a_trial_of_a_damaged_copy_refuses_it(database: Path, copy: Path) -> None:
    spoil(copy, "consents")
    with pytest.raises(RestoreRefused, match="damaged"):
        restore_known(copy, database, trial=True)


def test_a_copy_made_with_cp_is_refused_unless_somebody_vouches_for_it(
    database: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    by_hand = Path(shutil.copy(database, elsewhere / "cp.db"))
    with pytest.raises(RestoreRefused, match="may lack") as caught:
        restore_known(by_hand, database)
    assert "--copied" in (caught.value.hint or "")
    assert restore_known(by_hand, database, copied=True) is not None


def test_of_the_databases_that_were_put_aside_the_newest_few_stay(database: Path, copy: Path) -> None:
    kept = [restore_known(copy, database, now=NOW + number) for number in range(6)]
    found = sorted(database.parent.glob("ostiary-before-restore-*"))
    assert found == [each for each in kept if each is not None][-3:]


async def test_a_copy_is_taken_while_the_store_is_open_and_holds_what_was_written(directory: Path) -> None:
    database, target = directory / "ostiary.db", directory / "copy.db"
    async with open_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        await store.write(partial(put, key="only in the log so far"))
        back_up(database, target)
        await store.write(partial(put, key="later"))
    assert set(values(target)) == {"only in the log so far"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(file.name for file in directory.glob("copy*")) == ["copy.db"]


def test_a_copy_overwrites_nothing(database: Path, directory: Path) -> None:
    target = directory / "copy.db"
    target.write_text("precious")
    with pytest.raises(BackupFailed, match="exists already"):
        back_up(database, target)
    assert target.read_text() == "precious"


def test_without_a_database_or_a_place_there_is_no_copy_and_no_litter(
    database: Path, directory: Path
) -> None:
    with pytest.raises(BackupFailed, match="no database"):
        back_up(directory / "missing.db", directory / "copy.db")
    with pytest.raises(BackupFailed):
        back_up(database, directory / "missing" / "copy.db")
    assert not list(directory.glob("*partial*"))
    assert not (directory / "missing.db").exists()


async def test_a_restored_database_is_the_copy_with_a_new_epoch_and_the_old_one_is_kept_aside(
    database: Path, copy: Path, directory: Path
) -> None:
    async with open_inline_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        await store.write(partial(put, key="after the copy"))

    aside = restore_known(copy, database)

    found = values(database)
    assert found.pop(meta_rows.AUDIT_CHAIN)
    assert found == {
        meta_rows.KEY_FINGERPRINT: FINGERPRINT,
        meta_rows.REFRESH_EPOCH: "new-epoch",
        "kept": "x",
    }
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert aside is not None
    assert "after the copy" in values(aside)
    assert values(aside)[meta_rows.REFRESH_EPOCH] == "old-epoch"
    assert values(copy)[meta_rows.REFRESH_EPOCH] == "old-epoch"
    assert not list(directory.glob("*incoming*"))
    async with open_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        assert await store.read(partial(meta_rows.get, key="kept")) == "x"


def test_the_log_of_a_killed_server_is_not_replayed_into_the_restored_database(
    database: Path, copy: Path, directory: Path
) -> None:
    # A killed server leaves its log beside the database. This one is made by copying both while they are in use.
    with closing(sqlite3.connect(database, isolation_level=None)) as serving:
        serving.execute("INSERT INTO meta VALUES ('in the log', 'x')")
        for suffix in ("", "-wal"):
            shutil.copy(f"{database}{suffix}", directory / f"killed.db{suffix}")
    killed = directory / "killed.db"
    assert (directory / "killed.db-wal").stat().st_size > 0

    aside = restore_known(copy, killed)

    assert "in the log" not in values(killed)
    assert aside is not None
    assert "in the log" in values(aside)


def test_a_log_without_its_database_does_not_haunt_the_restored_one(copy: Path, directory: Path) -> None:
    target = directory / "fresh.db"
    (directory / "fresh.db-wal").write_bytes(b"left over")
    assert restore_known(copy, target) is None
    assert values(target)["kept"] == "x"
    assert not (directory / "fresh.db-wal").exists()


def test_what_a_restore_that_was_cut_off_has_left_spoils_no_other(
    database: Path, copy: Path, directory: Path
) -> None:
    # The journal of a half-done change, as a power cut leaves it. SQLite would play it back into the next copy.
    incoming = directory / "ostiary.db.incoming"
    shutil.copy(copy, directory / "elsewhere.db")
    with closing(sqlite3.connect(directory / "elsewhere.db", isolation_level=None)) as cut_off:
        cut_off.execute("PRAGMA cache_size = 1")
        cut_off.execute("UPDATE meta SET value = 'of another copy' WHERE key = 'kept'")
        cut_off.execute("BEGIN IMMEDIATE")
        cut_off.execute("UPDATE meta SET value = 'half' WHERE key = 'kept'")
        cut_off.execute("CREATE TABLE more (text)")
        cut_off.executemany("INSERT INTO more VALUES (zeroblob(4000))", [()] * 200)
        for suffix in ("", "-journal"):
            shutil.copy(f"{directory / 'elsewhere.db'}{suffix}", f"{incoming}{suffix}")
    assert (directory / "ostiary.db.incoming-journal").stat().st_size > 0

    restore_known(copy, database)

    assert values(database)["kept"] == "x"
    assert not list(directory.glob("*incoming*"))


def test_a_damaged_database_can_be_replaced_and_is_kept_with_its_log(copy: Path, directory: Path) -> None:
    target = directory / "damaged.db"
    target.write_bytes(b"rubbish" * 1000)
    (directory / "damaged.db-wal").write_bytes(b"more rubbish")
    aside = restore_known(copy, target)
    assert aside is not None
    assert aside.read_bytes() == b"rubbish" * 1000
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == b"more rubbish"
    assert values(target)["kept"] == "x"


def test_a_database_that_is_in_use_is_not_replaced(database: Path, copy: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as serving:
        serving.execute("BEGIN")
        serving.execute("SELECT * FROM meta").fetchall()
        with pytest.raises(RestoreRefused, match="using the database"):
            restore_known(copy, database)
    assert values(database)[meta_rows.REFRESH_EPOCH] == "old-epoch"


@pytest.mark.parametrize("changed", [{"known_schema": 1}, {"key_fingerprint": "ffffffffffff:abcdef"}])
def test_a_copy_of_a_newer_version_or_another_key_is_refused(
    database: Path, copy: Path, directory: Path, changed: dict[str, object]
) -> None:
    with pytest.raises(RestoreRefused):
        restore_known(copy, database, **changed)
    assert values(database)[meta_rows.REFRESH_EPOCH] == "old-epoch"
    assert not list(directory.glob("*incoming*"))
    assert not list(directory.glob("*before-restore*"))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[5 * 4096 :] = b"\xa5" * (len(content) - 5 * 4096)
    path.write_bytes(content)


def make_foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("CREATE TABLE meta (key, value)")


def make_empty_of_ours(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as empty:
        empty.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def make_text(path: Path) -> None:
    path.write_text("not a database" * 500)


@pytest.mark.parametrize("spoil", [damage, make_foreign, make_empty_of_ours, make_text, Path.unlink])
def test_what_is_no_whole_copy_is_refused_and_the_database_stays(
    database: Path, copy: Path, directory: Path, spoil: object
) -> None:
    assert callable(spoil)
    spoil(copy)
    with pytest.raises(RestoreRefused):
        restore_known(copy, database)
    assert values(database)["kept"] == "x"
    assert not list(directory.glob("*incoming*"))


async def test_a_restored_database_verifies_and_its_last_row_tells_who_restored_it(
    database: Path, directory: Path
) -> None:
    entry = AuditEntry(NOW, "test.done", "user:u", None, None, None, None, "ok", "")
    async with open_inline_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        store.chain_audit(AUDIT_KEY)
        await store.write(lambda db: [db.audit(entry) for _ in range(3)])
        back_up(database, directory / "later.db")
        await store.write(lambda db: [db.audit(entry) for _ in range(3)])
    restore_known(directory / "later.db", database)
    async with open_inline_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        store.chain_audit(AUDIT_KEY)
        await store.write(lambda db: db.audit(entry))
        piece = await store.read(lambda db: AuditChain(AUDIT_KEY).walk(db, None, at_most=100))
        rows = await store.read(lambda db: db.fetch_all("SELECT event, actor, at FROM audit ORDER BY seq"))
    assert (piece.checked, piece.broken) == (5, None)
    assert rows[3] == {"event": "store.restored", "actor": "local:7", "at": NOW}


def test_a_copy_whose_trail_cannot_be_read_any_more_is_refused(directory: Path) -> None:
    old, database = directory / "old.db", directory / "ostiary.db"
    with closing(connect_writer(old)) as connection:
        migrate(connection, packaged_migrations()[: OLDEST_SCHEMA - 1], now=NOW, backups=None)
        connection.execute(
            "INSERT INTO meta (key, value) VALUES (?, ?)", (meta_rows.KEY_FINGERPRINT, FINGERPRINT)
        )
    with pytest.raises(RestoreRefused, match=f"schema {OLDEST_SCHEMA - 1}"):
        restore_known(old, database, copied=True)
    assert not database.exists()


async def test_after_a_restore_its_head_counts_and_the_database_that_it_replaced_is_found_to_be_another(
    database: Path, directory: Path
) -> None:
    """Neither is the restore itself taken for a cut: also where it was killed before or after the copy took its place."""
    entry = AuditEntry(NOW, "test.done", "user:u", None, None, None, None, "ok", "")
    heads = HeadFile(directory / "audit.head", AUDIT_KEY)

    async def start() -> list[str]:
        told: list[str] = []
        async with open_inline_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
            store.on_audit(lambda entries: told.extend(each.event for each in entries))
            store.chain_audit(AUDIT_KEY, heads.read())
            await store.write(lambda db: db.begin_audit())
        return told

    async with open_inline_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        store.chain_audit(AUDIT_KEY)
        await store.write(lambda db: [db.audit(entry) for _ in range(3)])
        back_up(database, directory / "later.db")
        await store.write(lambda db: [db.audit(entry) for _ in range(3)])
        head = store.audit_head()
        assert head is not None
        heads.write(head)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.store.backup._put_aside", _killed)
        with pytest.raises(KeyboardInterrupt):  # cut off with the old database in place
            restore_known(directory / "later.db", database)
    assert await start() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.store.backup.sync_directory", _killed)
        with pytest.raises(KeyboardInterrupt):  # cut off with the new one in place
            restore_known(directory / "later.db", database)
    assert await start() == []
    aside = restore_known(directory / "later.db", database, now=NOW + 1)
    assert await start() == []
    assert len(heads.read()) == 1
    assert aside is not None
    shutil.copy(
        directory / "later.db", database
    )  # by hand, and so not told from an older copy that somebody put there
    assert await start() == ["audit.altered"]


def _killed(path: Path, **_: object) -> None:
    raise KeyboardInterrupt


async def test_after_a_restore_the_head_of_its_ledger_counts(database: Path, directory: Path) -> None:
    row = (
        1, "grant", "granted", "wallet:user:u", 5, "USD", "local:0", None, None, None, None, None, None, None, None,
        None, "",
    )  # fmt: skip
    heads = HeadFile(directory / "ledger.head", LEDGER_KEY)

    async def start() -> list[str]:
        told: list[str] = []
        async with open_inline_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
            store.on_audit(lambda entries: told.extend(each.event for each in entries))
            store.chain_audit(AUDIT_KEY)
            store.chain_ledger(LEDGER_KEY, heads.read())
            await store.write(lambda db: db.begin_ledger())
        return told

    shutil.copy(database, directory / "before-the-ledger.db")
    async with open_inline_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        store.chain_audit(AUDIT_KEY)
        store.chain_ledger(LEDGER_KEY)
        await store.write(lambda db: [db.post(row) for _ in range(3)])
        back_up(database, directory / "later.db")
        await store.write(lambda db: [db.post(row) for _ in range(3)])
        head = store.ledger_head()
        assert head is not None
        heads.write(head)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.store.backup._put_aside", _killed)
        with pytest.raises(KeyboardInterrupt):  # cut off with the old database in place
            restore_known(directory / "later.db", database)
    assert [each.seq for each in heads.read()] == [6, 3]
    assert await start() == []
    restore_known(directory / "later.db", database)
    assert [each.seq for each in heads.read()] == [3]
    assert await start() == []
    restore_known(directory / "before-the-ledger.db", database, now=NOW + 1, copied=True)
    assert [each.seq for each in heads.read()] == [0]
    assert await start() == []
