"""The program starts on databases that earlier ones made, on either engine. Those are dumps of the real thing: schema_dump.py."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import psycopg
import pytest
from programs import SOURCE, WAIT_SECONDS, Program
from psycopg.conninfo import make_conninfo
from schema_dump import use_database

from server.store.migrate import OLDEST_SCHEMA, packaged_migrations
from tests.postgres_server import PostgresServer

FOLDER = Path(__file__).with_name("schemas")
DUMPS = sorted(FOLDER.glob("*.sql"))
# From here on there is money in them.
WITH_MONEY = 7
# The first with which the program could have a database on PostgreSQL.
ON_POSTGRES = 11
# It was never the newest: the program took up 14 and 15 together.
NEVER_NEWEST = 14
# And what gives rights is sealed.
WITH_SEALS = 19


def number(dump: Path) -> int:
    return int(dump.stem.rpartition("-")[2])


def is_postgres(dump: Path) -> bool:
    return dump.stem.startswith("postgres")


@pytest.mark.parametrize(("prefix", "oldest"), [("schema", OLDEST_SCHEMA), ("postgres-schema", ON_POSTGRES)])
def test_there_is_a_dump_of_each_schema_that_is_taken_up(prefix: str, oldest: int) -> None:
    taken_up = {*range(oldest, packaged_migrations()[-1].version + 1)} - {NEVER_NEWEST}
    found = {number(dump) for dump in DUMPS if dump.stem.rpartition("-")[0] == prefix}
    assert found == taken_up, "tests/e2e/schema_dump.py writes them"


@pytest.fixture(params=DUMPS, ids=lambda dump: dump.stem)
def dump(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def program(request: pytest.FixtureRequest, dump: Path, home: Path) -> Iterator[Program]:
    """It has the database of the dump, and the key file that goes with it."""
    program, text = Program(command=SOURCE, home=home), dump.read_text("utf-8")
    program.data_dir.mkdir(mode=0o700)
    (program.data_dir / "master.key").touch(mode=0o600)
    (program.data_dir / "master.key").write_text(_comment(text, 0), "utf-8")
    if is_postgres(dump):
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with server.bare_database() as where:
            with psycopg.connect(make_conninfo("", **where), autocommit=True) as connection:
                connection.execute(text.encode())
            use_database(program, where)
            yield program
        return
    (program.data_dir / "ostiary.db").touch(mode=0o600)
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        connection.executescript(text)
    yield program


def _comment(text: str, line: int) -> str:
    return text.splitlines()[line].removeprefix("-- ")


def test_the_program_takes_up_the_database_of_an_earlier_one(dump: Path, program: Program) -> None:
    if number(dump) < WITH_SEALS:
        where = ("--data-dir", str(program.data_dir))
        refused = program.run("serve", "--port", "0", *where, code=78)
        assert "ostiary store seal" in refused.stderr
        assert "for-tests" in program.run("store", "seal", *where).stderr
        program.run("store", "seal", "--yes", program.ask("store", "seal", *where)["digest"], *where)
    with program.serving() as server:
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "tests", "version": "1"},
            },
        }
        headers = {
            "authorization": f"Bearer {_comment(dump.read_text('utf-8'), 1)}",
            "accept": "application/json, text/event-stream",
        }
        answer = httpx2.post(
            server.endpoint, json=message, headers=headers, trust_env=False, timeout=WAIT_SECONDS
        )
        assert answer.status_code == 200, answer.text
        assert "a-program" in {each["id"] for each in program.at_machine("clients", "list")}
        assert "ada" in {each["name"] for each in program.at_machine("users", "list")}
        assert program.at_machine("verify")["problem"] is None
        if number(dump) >= WITH_MONEY:
            assert program.at_machine("ledger", "grant", "owner", "$1")["balance"] == 2_000_000
        assert program.at_machine("ledger", "check")["sound"]
        # With the keys that were kept in it, sealed.
        program.log_in(server)
        assert re.search(r"\bowner\b", program.run("whoami", server.endpoint).stdout)
