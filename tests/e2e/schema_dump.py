"""A database as the real program made it, written down as text: for test_older_schemas.py, once for each schema, on either engine.

usage, from the top of the checkout: python tests/e2e/schema_dump.py FOLDER     mostly tests/e2e/schemas
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

import httpx2
from programs import SOURCE, WAIT_SECONDS, Program

from server.store.migrate import packaged_migrations
from tests.postgres_server import PostgresServer, programs

# What pg_dump says of itself and to psql: of no use to whoever reads the file, and other versions of it say something else.
_TALK = re.compile(
    r"""^--\n--\ Name:\ .*\n--\n | ^(--|--\ [^\n]*|SET\ [^\n]*|SELECT\ pg_catalog\.set_config[^\n]*|\\[^\n]*)\n""",
    re.MULTILINE | re.VERBOSE,
)


def fill(program: Program) -> str:
    """By what people and programs do. An API key that never ends."""
    with program.serving() as server:
        program.at_machine("clients", "add", "a program", "--id", "a-program", "--grant", "device_code")
        program.at_machine("invite", "ada")
        key = program.at_machine("api-keys", "create", "for-tests", "--expires", "never")["key"]
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


def of_sqlite(home: Path) -> list[str]:
    """Its lines. The first two are comments: the text of the key file, and the API key."""
    program = Program(command=SOURCE, home=home)
    key = fill(program)
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        return [
            *_secrets(program, key),
            f"PRAGMA application_id = {application_id};",
            *connection.iterdump(),
        ]


def of_postgres(home: Path, server: PostgresServer) -> list[str]:
    """The same of a database on PostgreSQL, with a row for each statement, as it can be read by any version of it."""
    with server.bare_database() as where:
        program = Program(command=SOURCE, home=home)
        use_database(program, where)
        key = fill(program)
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
    text = re.sub(r"\n{2,}", "\n", _TALK.sub("", dumped.stdout)).strip()
    return [*_secrets(program, key), *text.split("\n")]


def use_database(program: Program, where: Mapping[str, str]) -> None:
    address = f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}\n"
    (program.home / "address").write_text(address, "utf-8")
    (program.home / "ostiary.toml").write_text('store = "file:address"\n', "utf-8")


def _secrets(program: Program, key: str) -> Sequence[str]:
    return f"-- {(program.data_dir / 'master.key').read_text('utf-8').strip()}", f"-- {key}"


def write_all(folder: Path) -> None:
    number, found = len(packaged_migrations()), programs()
    if found is None:
        sys.exit("PostgreSQL is not installed: scripts/packages")
    server = PostgresServer(found)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        try:
            server.make()
            made = {"schema": of_sqlite(Path(one)), "postgres-schema": of_postgres(Path(other), server)}
        finally:
            server.remove()
    for name, lines in made.items():
        (folder / f"{name}-{number}.sql").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
