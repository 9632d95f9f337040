"""A database as the real program made it, written down as text: for test_older_schemas.py, once for each schema that was released.

usage, from the top of the checkout: python tests/e2e/schema_dump.py > tests/e2e/schemas/schema-N.sql
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import httpx2
from programs import SOURCE, WAIT_SECONDS, Program


def make(home: Path) -> list[str]:
    """Its lines. The first two are comments: the text of the key file, and an API key that never ends."""
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:
        program.at_machine("clients", "add", "a program", "--id", "a-program", "--grant", "device_code")
        program.at_machine("invite", "ada")
        key = program.at_machine("api-keys", "create", "for-tests", "--expires", "never")["key"]
        program.log_in(server)
        asked = httpx2.post(
            f"{server.url}/device_authorization",
            data={"client_id": "ostiary-cli"},
            trust_env=False,
            timeout=WAIT_SECONDS,
        )
        asked.raise_for_status()
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        return [
            f"-- {(program.data_dir / 'master.key').read_text('utf-8').strip()}",
            f"-- {key}",
            f"PRAGMA application_id = {application_id};",
            *connection.iterdump(),
        ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write("\n".join(make(Path(folder))) + "\n")
