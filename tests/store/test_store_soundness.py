"""A damaged database is never served, copied or restored as a sound one (server/store/soundness.py)."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
import trio
from damage import spoil
from store_engines import NOW

from server.store import soundness
from server.store.backup import back_up
from server.store.database_snapshot import SourceDamaged
from server.store.jobs import StoreDamaged, StoreDb
from server.store.soundness import DatabaseDamaged, check_file, was_copied_by_hand
from server.store.sqlite import open_store


def put(db: StoreDb) -> None:
    db.execute("INSERT INTO meta (key, value) VALUES ('a', 'x')")


@pytest.fixture
async def database(directory: Path) -> Path:
    path = directory / "ostiary.db"
    async with open_store(path, clock=lambda: NOW, backups=directory / "backups") as store:
        await store.write(put)
    return path


async def test_a_damaged_database_is_refused_at_the_start(database: Path, directory: Path) -> None:
    spoil(database, "consents")  # which no start reads
    with pytest.raises(DatabaseDamaged, match="damaged") as caught:
        async with open_store(database, clock=lambda: NOW, backups=directory / "backups"):
            raise AssertionError
    assert "ostiary restore FILE" in (caught.value.hint or "")
    assert caught.value.lasting


async def test_a_large_one_does_not_hold_up_the_start_and_is_looked_through_beside_it(
    database: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(database, "consents")
    monkeypatch.setattr(soundness, "CHECKED_AT_START_BYTES", 1)
    async with open_store(database, clock=lambda: NOW, backups=directory / "backups"):
        with pytest.raises(StoreDamaged):
            await trio.to_thread.run_sync(partial(check_file, database))


async def test_damage_is_not_copied_and_no_file_is_left(database: Path, directory: Path) -> None:
    spoil(database, "consents")
    with pytest.raises(SourceDamaged, match="damaged") as caught:
        back_up(database, directory / "copy.db")
    assert "restore a back-up" in (caught.value.hint or "")
    assert not list(directory.glob("copy*"))


async def test_what_cannot_be_read_is_unavailable_and_the_store_remembers_why(
    database: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(database, "consents")
    monkeypatch.setattr(soundness, "CHECKED_AT_START_BYTES", 1)
    told: list[StoreDamaged] = []
    async with open_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        store.health.tell_of_damage = told.append
        for _ in range(2):
            with pytest.raises(StoreDamaged):
                await store.read(lambda db: db.fetch_all("SELECT * FROM consents"))
        assert (await store.read(lambda db: db.fetch_one("SELECT value FROM meta WHERE key = 'a'"))) == {
            "value": "x"
        }
        report = store.report()
    assert len(told) == 1
    assert (report.problem, report.hint) == (str(told[0]), StoreDamaged.hint)


async def test_a_copy_by_hand_is_told_from_a_back_up(database: Path, directory: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (directory / "lock").touch()
    async with open_store(database, clock=lambda: NOW, backups=directory / "backups") as store:
        await store.write(lambda db: db.execute("UPDATE meta SET value = 'y' WHERE key = 'a'"))
        shutil.copy(database, elsewhere / "cp.db")
        back_up(database, elsewhere / "backup.db")
    assert was_copied_by_hand(elsewhere / "cp.db")
    assert not was_copied_by_hand(elsewhere / "backup.db")
    assert not was_copied_by_hand(database), "a stopped server's own"
    shutil.copy(database, elsewhere / "whole.db")
    (elsewhere / "whole.db-wal").touch()
    assert was_copied_by_hand(elsewhere / "whole.db"), "somebody looked into it"
    (elsewhere / "whole.db-wal").write_bytes(b"frames")
    assert not was_copied_by_hand(elsewhere / "whole.db"), "its log came with it"
    assert not was_copied_by_hand(elsewhere / "nothing.db")
