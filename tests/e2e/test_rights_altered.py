"""A server whose database somebody writes to without the key file: what they give themselves opens nothing, and is named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx2
import psycopg
import pytest
from programs import SOURCE, WAIT_SECONDS, Program, Server
from psycopg.conninfo import make_conninfo
from schema_dump import use_database

from auth.tokens import api_keys
from tests.postgres_server import PostgresServer

Write = Callable[[str], None]
MINE, KEY_ID = api_keys.draw(bytes(32))


def write_to_file(sql: str, program: Program) -> None:
    with closing(sqlite3.connect(program.data_dir / "ostiary.db", isolation_level=None)) as connection:
        assert connection.execute(sql).rowcount > 0


def write_to_postgres(sql: str, where: str) -> None:
    with psycopg.connect(where, autocommit=True) as connection:
        assert connection.execute(sql.encode()).rowcount > 0


@pytest.fixture(params=["sqlite", "postgres"])
def written(request: pytest.FixtureRequest, program: Program) -> Generator[Write]:
    """How to write to the database of the program."""
    if request.param == "sqlite":
        yield partial(write_to_file, program=program)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.bare_database() as where:
        use_database(program, where)
        yield partial(write_to_postgres, where=make_conninfo("", **where))


@pytest.fixture
def program(home: Path) -> Program:
    return Program(command=SOURCE, home=home)


def status(server: Server, key: str) -> int:
    """Of a call with this key."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    answer = httpx2.post(
        server.endpoint, json=message, headers=headers, trust_env=False, timeout=WAIT_SECONDS
    )
    return answer.status_code


def named(program: Program) -> Sequence[str]:
    found = program.run("verify", "--json", "--data-dir", str(program.data_dir), code=1)
    return [f"{row['table']} {row['name']}" for row in json.loads(found.stdout)["rights"]["rows"]]


def test_a_key_that_was_put_in_and_an_account_that_was_raised_open_nothing_and_are_named(
    program: Program, written: Write
) -> None:
    where = ("--data-dir", str(program.data_dir))
    with program.serving() as server:
        program.at_machine("invite", "bob")
        good = program.at_machine("api-keys", "create", "good")["key"]
        assert status(server, good) == 200
        assert program.at_machine("verify")["rights"]["sound"]
        written("UPDATE users SET role = 'owner', state = 'enabled', scope = '*' WHERE name = 'bob'")
        written(
            "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
            f" SELECT '{KEY_ID}', 'mine', id, '{api_keys.hash_of(MINE)}', 'abcd', '*', 'local:0', created_at"
            " FROM users WHERE name = 'owner'"
        )
        assert status(server, MINE) == 401
        assert named(program) == ["users bob", "api_keys mine"]
        server.await_words('"identity.rights.altered"')
    with program.serving() as server:
        assert (status(server, MINE), status(server, good)) == (401, 200)
    assert "mine" in program.run("store", "seal", *where).stderr
    with program.serving() as server:
        assert status(server, MINE) == 401
    shown = program.ask("store", "seal", *where)
    assert shown["digest"] in program.run("store", "seal", *where).stderr
    program.run("store", "seal", "--yes", shown["digest"], *where)
    with program.serving() as server:
        assert status(server, MINE) == 200  # whoever is at the machine with the key says what counts


@pytest.mark.parametrize("meanwhile", ["role = 'owner'", "passphrase_hash = 'another'"])
def test_no_other_rows_are_sealed_than_somebody_has_looked_at(
    program: Program, written: Write, meanwhile: str
) -> None:
    where = ("--data-dir", str(program.data_dir))
    with program.serving():
        program.at_machine("invite", "bob")
    written("UPDATE users SET scope = '*' WHERE name = 'bob'")
    shown = program.ask("store", "seal", *where)
    assert (shown["sealed"], shown["tables"]) == (False, {"users": 1})
    written(f"UPDATE users SET {meanwhile} WHERE name = 'bob'")
    refused = program.run("store", "seal", "--yes", shown["digest"], *where, code=1)
    assert "ostiary store seal" in refused.stderr
    again = program.ask("store", "seal", *where)
    assert again["tables"] == {"users": 1}
    sealed = program.ask("store", "seal", "--yes", again["digest"], *where)
    assert sealed == {**again, "sealed": True}
    assert program.ask("store", "seal", *where)["tables"] == {}


def test_a_database_whose_record_of_being_sealed_was_taken_away_is_not_one_of_before(
    program: Program, written: Write
) -> None:
    at = ("--data-dir", str(program.data_dir))
    with program.serving():
        written("DELETE FROM meta WHERE key = 'seals'")
        assert named(program) == ["meta "]
    assert "ostiary store seal" in program.run("serve", "--port", "0", *at, code=78).stderr
    if (file := program.data_dir / "ostiary.db").exists():
        assert "ostiary store seal" in program.run("verify", "--file", str(file), *at, code=1).stderr
