"""Numbered migrations (server/store/migrate.py)."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from server.store.inline_store import open_inline_store
from server.store.jobs import CannotOpen, ForeignDatabase, NewerSchema
from server.store.meta_rows import KEY_FINGERPRINT
from server.store.migrate import (
    OLDEST_SCHEMA,
    Migration,
    OlderSchema,
    OtherSchema,
    check_numbering,
    migrate,
    packaged_migrations,
    schema_version,
    statements,
)
from server.store.sqlite_connect import connect_writer

FIRST = Migration(1, "first", "CREATE TABLE a (x TEXT); INSERT INTO a VALUES ('kept; -- whole');")
SECOND = Migration(2, "second", "CREATE TABLE b (x);\nCREATE TABLE c (x);")
NOW = 1_800_000_000_123
# What databases out there were made by: a file that has a line here is never edited again, a change of the schema is a new file.
FROZEN = {
    "0001_foundation": "4a064f00e692e7cee306e39a05459d2173edd9f0a4843ca9c04dcb8bddc9643f",
    "0002_tasks": "1045fa6aa41a360e1ea2da28e98c02b869acd19f3fb232c84aeda56e9f306ad5",
    "0003_identity": "6825c9171706ac7637beb779c2ee8b510e0c9ed7cbaa3e0e8b856462467a4457",
    "0004_many_rows": "c3cb9f68bc211b400df2f79ede6ba0ca2a85f60f675ac3b94f4c0c42be350f52",
    "0005_sessions": "177cdcbf67c565e785b4db803171bb49446024e3d68100ee02ba6eab576b6936",
    "0006_audit": "c5109174576ffe856953c5ad9df0f6f1e12f7b6d4d6ab81555a4125d6dc163ad",
    "0007_money": "a8fd4dd38af97623c8eb80820ff28265d006993f47c82140c007941fd2b80287",
    "0008_kept_answers": "41515e4b6fbccf1421edb747ee92e8372be2254c4a5aa69f0cb9c3a2fe5e469b",
    "0009_upstreams": "b7d7306c5add83edbc32fc5a135c6bb07fad91cecd101d0875b61180e287315a",
    "0010_calls": "39b07925fe223d557c1632cc6263110742fc5ff6ce07be8ae8c8d4acfdde0635",
}


@pytest.fixture
def path(directory: Path) -> Path:
    return directory / "ostiary.db"


@pytest.fixture
def connection(path: Path) -> Generator[sqlite3.Connection]:
    with closing(connect_writer(path)) as connection:
        yield connection


def tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_the_packaged_migrations_apply_to_an_empty_database_and_are_remembered(
    connection: sqlite3.Connection, directory: Path
) -> None:
    known = packaged_migrations()
    migrate(connection, known, now=NOW, backups=directory / "backups")
    assert schema_version(connection) == len(known)
    assert {"meta", "users", "grants", "changes", "chores"} <= tables(connection)
    rows = connection.execute(
        "SELECT version, name, applied_at FROM schema_version ORDER BY version"
    ).fetchall()
    assert rows == [(each.version, each.name, NOW) for each in known]


def test_migrations_that_databases_were_made_by_are_as_they_were() -> None:
    known = {f"{each.version:04}_{each.name}": each.sha256 for each in packaged_migrations()}
    assert {name: known.get(name) for name in FROZEN} == FROZEN


def test_the_schema_has_no_deferred_constraint() -> None:
    # With one, a job could be committed together with a neighbour that mends it, and refused alone.
    assert not [each.name for each in packaged_migrations() if "DEFERR" in each.sql.upper()]


def test_a_fresh_database_is_not_backed_up(connection: sqlite3.Connection, directory: Path) -> None:
    assert migrate(connection, [FIRST, SECOND], now=NOW, backups=directory / "backups") is None
    assert list((directory / "backups").iterdir()) == []


def test_an_existing_database_is_copied_before_it_is_migrated(
    connection: sqlite3.Connection, directory: Path
) -> None:
    migrate(connection, [FIRST], now=NOW, backups=directory / "backups")
    copy = migrate(connection, [FIRST, SECOND], now=NOW, backups=directory / "backups")
    assert copy is not None
    assert copy.name == "before-schema-2-from-1-20270115T080000.123Z.db"
    assert [file.name for file in (directory / "backups").iterdir()] == [copy.name]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as old:
        assert schema_version(old) == 1
        assert old.execute("SELECT x FROM a").fetchall() == [("kept; -- whole",)]
        assert "b" not in tables(old)
    assert {"a", "b", "c"} <= tables(connection)


def test_nothing_is_copied_or_changed_when_nothing_is_missing(
    connection: sqlite3.Connection, directory: Path
) -> None:
    migrate(connection, [FIRST], now=NOW, backups=directory / "backups")
    before = connection.total_changes
    assert migrate(connection, [FIRST], now=NOW, backups=directory / "backups") is None
    assert connection.total_changes == before
    assert list((directory / "backups").iterdir()) == []


def test_without_a_back_up_nothing_is_migrated(connection: sqlite3.Connection, directory: Path) -> None:
    migrate(connection, [FIRST], now=NOW, backups=directory / "backups")
    with pytest.raises(CannotOpen, match="copied before"):
        migrate(connection, [FIRST, SECOND], now=NOW, backups=directory / "missing")
    assert schema_version(connection) == 1


def test_a_newer_schema_is_refused_and_left_alone(connection: sqlite3.Connection, directory: Path) -> None:
    migrate(connection, [FIRST, SECOND], now=NOW, backups=directory / "backups")
    with pytest.raises(NewerSchema, match=r"schema 2; this one knows 1") as caught:
        migrate(connection, [FIRST], now=NOW, backups=directory / "backups")
    assert caught.value.hint is not None
    assert schema_version(connection) == 2


@pytest.mark.parametrize("found", range(1, OLDEST_SCHEMA))
def test_a_schema_whose_trail_nobody_can_read_any_more_is_refused_and_left_alone(
    connection: sqlite3.Connection, directory: Path, found: int
) -> None:
    known = packaged_migrations()
    migrate(connection, known[:found], now=NOW, backups=directory / "backups")
    connection.execute("INSERT INTO meta (key, value) VALUES (?, 'of a key')", (KEY_FINGERPRINT,))
    with pytest.raises(OlderSchema, match=rf"schema {found}; .* {OLDEST_SCHEMA} ") as refused:
        migrate(connection, known, now=NOW, backups=directory / "backups")
    assert "--data-dir" in (refused.value.hint or "")
    assert schema_version(connection) == found
    assert list((directory / "backups").iterdir()) == []


@pytest.mark.parametrize("found", range(1, OLDEST_SCHEMA))
def test_a_database_whose_first_start_was_cut_off_is_made_to_its_end(
    connection: sqlite3.Connection, directory: Path, found: int
) -> None:
    known = packaged_migrations()
    migrate(connection, known[:found], now=NOW, backups=directory / "backups")
    migrate(connection, known, now=NOW, backups=directory / "backups")
    assert schema_version(connection) == len(known)


def test_a_migration_that_was_edited_after_it_was_applied_is_refused_and_nothing_is_touched(
    connection: sqlite3.Connection, directory: Path
) -> None:
    migrate(connection, [FIRST], now=NOW, backups=directory / "backups")
    edited = Migration(1, "first", f"{FIRST.sql} ")
    with pytest.raises(OtherSchema, match="schema 1 is another") as caught:
        migrate(connection, [edited, SECOND], now=NOW, backups=directory / "backups")
    assert caught.value.lasting and caught.value.hint
    assert schema_version(connection) == 1
    assert list((directory / "backups").iterdir()) == []


@pytest.mark.parametrize("same", [True, False])
def test_a_database_of_before_checksums_is_taken_only_if_it_is_what_its_numbers_say(
    connection: sqlite3.Connection, directory: Path, same: bool
) -> None:
    migrate(connection, packaged_migrations(), now=NOW, backups=directory / "backups")
    connection.execute("ALTER TABLE schema_version DROP COLUMN sha256")
    if not same:
        connection.execute("DROP TABLE refresh_keys")
        with pytest.raises(OtherSchema):
            migrate(connection, packaged_migrations(), now=NOW, backups=directory / "backups")
        return
    assert migrate(connection, packaged_migrations(), now=NOW, backups=directory / "backups") is None
    kept = connection.execute("SELECT sha256 FROM schema_version ORDER BY version").fetchall()
    assert kept == [(each.sha256,) for each in packaged_migrations()]


async def test_both_engines_open_through_the_migrations(path: Path, directory: Path) -> None:
    async with open_inline_store(path, clock=lambda: NOW, backups=directory, migrations=[FIRST, SECOND]):
        pass
    with pytest.raises(NewerSchema):
        async with open_inline_store(path, clock=lambda: NOW, backups=directory, migrations=[FIRST]):
            pass


def test_a_migration_that_fails_leaves_no_trace(connection: sqlite3.Connection, directory: Path) -> None:
    migrate(connection, [FIRST], now=NOW, backups=directory / "backups")
    broken = Migration(2, "broken", "CREATE TABLE b (x); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(CannotOpen, match="migration 0002 failed"):
        migrate(connection, [FIRST, broken], now=NOW, backups=directory / "backups")
    assert "b" not in tables(connection)
    assert schema_version(connection) == 1
    assert not connection.in_transaction


def test_a_database_of_another_program_is_not_touched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE bookmarks (url)")
    with pytest.raises(ForeignDatabase):
        connect_writer(path)
    with closing(sqlite3.connect(path)) as foreign:
        assert tables(foreign) == {"bookmarks"}
        assert foreign.execute("PRAGMA journal_mode").fetchone()[0] == "delete"


def test_a_file_that_is_no_database_is_refused_by_name(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(CannotOpen, match=r"ostiary\.db"):
        connect_writer(path)


def test_a_database_is_made_for_its_owner_only(connection: sqlite3.Connection, path: Path) -> None:
    migrate(connection, [FIRST], now=NOW, backups=path.parent)
    for file in path.parent.glob("ostiary.db*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.mark.parametrize("versions", [[], [2], [1, 3], [1, 2, 2]])
def test_a_gap_or_a_double_in_the_numbers_is_refused(versions: list[int]) -> None:
    with pytest.raises(CannotOpen):
        check_numbering([Migration(version, "x", "") for version in versions])


def test_a_script_is_split_into_statements_around_strings_comments_and_triggers() -> None:
    trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; SELECT 2; END;"
    script = f"-- first; not a statement\nINSERT INTO a VALUES (';');\n{trigger}\n-- the end\n"
    first, second = statements(script)
    assert first.strip().endswith("VALUES (';');")
    assert second.strip() == trigger


def test_a_script_that_ends_in_the_middle_is_refused() -> None:
    with pytest.raises(CannotOpen):
        list(statements("CREATE TABLE a (x); CREATE TABLE b (x)"))


def test_the_last_calls_of_logins_and_tools_are_taken_from_the_records_of_an_earlier_version(
    connection: sqlite3.Connection, directory: Path
) -> None:
    known = packaged_migrations()
    migrate(connection, known[:11], now=NOW, backups=directory / "backups")
    connection.execute("PRAGMA foreign_keys = OFF")

    def insert(table: str, **given: object) -> None:
        """A row with nothing in what is not given."""
        for _, name, kind, needed, default, _ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            if needed and default is None:
                given.setdefault(name, "" if kind == "TEXT" else 0)
        marks = ", ".join("?" * len(given))
        connection.execute(
            f"INSERT INTO {table} ({', '.join(given)}) VALUES ({marks})", tuple(given.values())
        )

    for grant in ("called", "not-called"):
        insert("grants", id=grant)
    for seq, at in enumerate((NOW - 5, NOW - 60_000), 1):
        insert("calls", seq=seq, at=at, grant_id="called", server="main", tool="echo")
    insert("calls", seq=3, at=NOW, server="main", tool="echo")
    for hour in (3_600_000, 7_200_000):
        insert("call_hours", hour=hour, server="main", tool="echo")
    migrate(connection, known, now=NOW, backups=directory / "backups")
    assert connection.execute("SELECT id, called_at FROM grants ORDER BY id").fetchall() == [
        ("called", NOW - 5),
        ("not-called", None),
    ]
    assert connection.execute("SELECT * FROM tool_uses").fetchall() == [("main", "echo", 7_200_000)]
