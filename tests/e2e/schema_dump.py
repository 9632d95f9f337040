"""A database as the real program made it, written down as text: for test_older_schemas.py, once for each schema, on either engine.

usage, from the top of the checkout: python tests/e2e/schema_dump.py FOLDER [CHECKOUT]     mostly tests/e2e/schemas

`CHECKOUT`: of an earlier version, whose program makes it. The newest schema comes from this one.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import httpx2
import psycopg
from programs import ROOT, SOURCE, WAIT_SECONDS, Program
from psycopg.conninfo import make_conninfo

from tests.postgres_server import PostgresServer, programs

_NUMBER: Final = "SELECT max(version) FROM schema_version"
# What pg_dump says of itself and to psql: of no use to whoever reads the file, and other versions of it say something else.
_TALK = re.compile(
    r"""^--\n--\ Name:\ .*\n--\n | ^(--|--\ [^\n]*|SET\ [^\n]*|SELECT\ pg_catalog\.set_config[^\n]*|\\[^\n]*)\n""",
    re.MULTILINE | re.VERBOSE,
)


class Checkout(NamedTuple):
    """The tree whose program makes the databases."""

    folder: Path

    def program(self, home: Path) -> Program:
        return Program(command=SOURCE, home=home, alone=True, settings={"PYTHONPATH": str(self.folder)})

    @property
    def has_ledger(self) -> bool:
        return any((self.folder / "server" / "cli").rglob("ledger.py"))

    @property
    def has_postgres(self) -> bool:
        return any((self.folder / "server").rglob("postgres.py"))


def fill(program: Program, *, has_ledger: bool) -> str:
    """By what people and programs do. An API key that never ends."""
    with program.serving() as server:
        program.at_machine("clients", "add", "a program", "--id", "a-program", "--grant", "device_code")
        program.at_machine("invite", "ada")
        key = program.at_machine("api-keys", "create", "for-tests", "--expires", "never")["key"]
        if has_ledger:
            program.at_machine("ledger", "grant", "owner", "$1")
        program.log_in(server)
        asked = httpx2.post(
            f"{server.url}/device_authorization",
            data={"client_id": "ostiary-cli"},
            trust_env=False,
            timeout=WAIT_SECONDS,
        )
        asked.raise_for_status()
    return key


def of_sqlite(home: Path, checkout: Checkout) -> tuple[int, list[str]]:
    """Its schema and its lines. The first two are comments: the text of the key file, and the API key."""
    program = checkout.program(home)
    key = fill(program, has_ledger=checkout.has_ledger)
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (number,) = connection.execute(_NUMBER).fetchone()
        return number, [
            *_secrets(program, key),
            f"PRAGMA application_id = {application_id};",
            *connection.iterdump(),
        ]


def of_postgres(home: Path, checkout: Checkout, server: PostgresServer) -> tuple[int, list[str]]:
    """The same of a database on PostgreSQL, with a row for each statement, as it can be read by any version of it."""
    with server.bare_database() as where:
        program = checkout.program(home)
        use_database(program, where)
        key = fill(program, has_ledger=checkout.has_ledger)
        words = (
            "--inserts",
            "--no-owner",
            "--no-privileges",
            "--host",
            where["host"],
            "--username",
            where["user"],
        )
        dumped = subprocess.run(
            (str(server.bin / "pg_dump"), *words, where["dbname"]), capture_output=True, text=True, check=True
        )
        with psycopg.connect(make_conninfo("", **where)) as connection:
            row = connection.execute(_NUMBER).fetchone()
    assert row is not None
    text = re.sub(r"\n{2,}", "\n", _TALK.sub("", dumped.stdout)).strip()
    return row[0], [*_secrets(program, key), *text.split("\n")]


def use_database(program: Program, where: Mapping[str, str]) -> None:
    address = f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}\n"
    (program.home / "address").write_text(address, "utf-8")
    (program.home / "ostiary.toml").write_text('store = "file:address"\n', "utf-8")


def _secrets(program: Program, key: str) -> Sequence[str]:
    return f"-- {(program.data_dir / 'master.key').read_text('utf-8').strip()}", f"-- {key}"


def write_all(folder: Path, checkout: Checkout) -> None:
    made: dict[str, tuple[int, list[str]]] = {}
    with tempfile.TemporaryDirectory() as home:
        made["schema"] = of_sqlite(Path(home), checkout)
    if checkout.has_postgres:
        found = programs()
        if found is None:
            sys.exit("PostgreSQL is not installed: scripts/packages")
        server = PostgresServer(found)
        with tempfile.TemporaryDirectory() as home:
            try:
                server.make()
                made["postgres-schema"] = of_postgres(Path(home), checkout, server)
            finally:
                server.remove()
    for name, (number, lines) in made.items():
        (folder / f"{name}-{number}.sql").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]), Checkout(Path(sys.argv[2] if len(sys.argv) > 2 else ROOT)))
