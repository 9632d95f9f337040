"""The program starts on databases that earlier ones made. Those are dumps of the real thing: schema_dump.py."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from programs import SOURCE, WAIT_SECONDS, Program

DUMPS = sorted(Path(__file__).with_name("schemas").glob("schema-*.sql"))


def test_there_are_dumps() -> None:
    assert DUMPS


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_the_program_takes_up_the_database_of_an_earlier_one(dump: Path, home: Path) -> None:
    program, text = Program(command=SOURCE, home=home), dump.read_text("utf-8")
    key_file, api_key = (line.removeprefix("-- ") for line in text.splitlines()[:2])
    program.data_dir.mkdir(mode=0o700)
    for name in ("master.key", "ostiary.db"):
        (program.data_dir / name).touch(mode=0o600)
    (program.data_dir / "master.key").write_text(key_file, "utf-8")
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        connection.executescript(text)
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
            "authorization": f"Bearer {api_key}",
            "accept": "application/json, text/event-stream",
        }
        answer = httpx2.post(
            server.endpoint, json=message, headers=headers, trust_env=False, timeout=WAIT_SECONDS
        )
        assert answer.status_code == 200, answer.text
        assert "a-program" in {each["id"] for each in program.at_machine("clients", "list")}
        assert "ada" in {each["name"] for each in program.at_machine("users", "list")}
        assert program.at_machine("verify")["problem"] is None
