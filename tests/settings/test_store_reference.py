"""What people write in the place of a reference to a database, and what they are told (server/settings/store_reference.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.run.whole_settings import NotHere, read_whole
from server.settings.settings_reader import ConfigInvalid, load


def told(store: str) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        read_whole(None, {}, {"store": store})
    (problem,) = caught.value.problems
    assert problem.key == "--store"
    return str(problem)


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://u:hunter2@db.example.org/x",
        "postgres://u:hunter2@db.example.org/x",
        "jdbc:postgresql://db.example.org/x?password=hunter2",
        "postgresql+psycopg://u:hunter2@db.example.org/x",
        "host=db.example.org password=hunter2 dbname=x",
        "env:postgresql://u:hunter2@db.example.org/x",
        "file:postgresql://u:hunter2@db.example.org/x",
    ],
)
def test_an_address_in_clear_is_named_as_that_and_not_shown(store: str) -> None:
    said = told(store)
    assert "in clear" in said
    assert '"file:ostiary-database"' in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("store", "what"),
    [
        ("mysql://u:hunter2@h/x", "MySQL"),
        ("sqlite", "leave it out"),
        ("sqlite:///ostiary.db", "leave it out"),
        ("env:", '"env:NAME"'),
        ("/etc/ostiary/database", '"file:/etc/ostiary/database"'),
        ("~/database", '"file:~/database"'),
    ],
)
def test_another_mistake_is_answered_with_what_is_meant(store: str, what: str) -> None:
    assert what in told(store)


def test_the_name_of_a_file_or_variable_that_there_is_only_lacks_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ostiary-database").write_text("x", "utf-8")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@h/x")
    assert 'write "file:ostiary-database"' in told("ostiary-database")
    assert 'write "env:DATABASE_URL"' in told("DATABASE_URL")
    monkeypatch.delenv("DATABASE_URL")
    assert "DATABASE_URL" not in told("DATABASE_URL")


def test_a_reference_that_leads_nowhere_is_found_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOPE", raising=False)
    (tmp_path / "empty").write_text("\n", "utf-8")
    for store, what in (
        ("env:NOPE", "the environment variable NOPE is not set"),
        ("file:missing", f"the file missing cannot be read: No such file or directory ({tmp_path}/missing)"),
        (
            f"file:{tmp_path}/missing",
            f"the file {tmp_path}/missing cannot be read: No such file or directory",
        ),
        ("file:empty", "the file empty is empty or too long for a secret"),
    ):
        with pytest.raises(NotHere) as caught:
            read_whole(None, {}, {"store": store})
        assert [str(problem) for problem in caught.value.problems] == [f"--store: {what}"]


def test_what_is_a_reference_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("postgresql://u:hunter2@h/x", "utf-8")
    written = f"file:{tmp_path}/address"
    assert read_whole(None, {}, {"store": written}).config.store == written
    assert load(None, {}, {"store": ""}).config.store == ""
