"""A server that is started under a clock that is far ahead, and then under the right one again: nothing was erased for good."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from programs import SOURCE, Program, until

pytestmark = pytest.mark.slow

AHEAD = (sys.executable, "-P", str(Path(__file__).with_name("clock_ahead.py")), "420")


def kept(program: Program) -> dict[str, int]:
    counts = {
        "audit": "SELECT count(*) FROM audit",
        "grants": "SELECT count(*) FROM grants",
        "API keys": "SELECT count(*) FROM api_keys",
        "keys that sign": "SELECT count(*) FROM signing_keys WHERE sealed_private <> ''",
        "keys of refresh tokens": "SELECT count(*) FROM refresh_keys WHERE sealed_secret <> ''",
    }
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        return {name: connection.execute(sql).fetchone()[0] for name, sql in counts.items()}


def test_a_clock_a_year_ahead_for_a_while_erases_no_row_no_login_and_no_key(tmp_path: Path) -> None:
    program = Program(command=SOURCE, home=tmp_path)
    where = ("--data-dir", str(program.data_dir))
    with program.serving() as server:
        program.log_in(server)
        same_port = ("--port", server.url.rpartition(":")[2])
        program.at_machine("keys", "rotate")
        until("a sweep", lambda: True if '"store.swept"' in server.said() or swept_once(program) else None)
    before = kept(program)
    assert before["keys of refresh tokens"] == 2
    with Program(command=AHEAD, home=tmp_path).serving() as server:
        until("the doubt", lambda: True if '"clock.suspicious"' in server.said() else None)
        assert server.said().count('"clock.suspicious"') == 1
        status = json.loads(program.run("status", "--json", *where).stdout)
        assert status["server"]["clock"]["ahead_ms"] > 419 * 86_400_000
        said = program.run("status", *where).stdout
        assert "nothing is swept" in " ".join(said.split())
    after = kept(program)
    assert {name: after[name] >= count for name, count in before.items()} == dict.fromkeys(before, True)
    with program.serving(*same_port) as server:
        assert json.loads(program.run("status", "--json", *where).stdout)["server"]["clock"] is None
        assert program.at_machine("verify")["swept"] == 0
        assert len(program.at_machine("sessions")) == 1
        assert program.run("tools", server.endpoint).stdout
        assert "clock.suspicious" not in server.said()


def swept_once(program: Program) -> bool:
    with closing(sqlite3.connect(program.data_dir / "ostiary.db")) as connection:
        return bool(connection.execute("SELECT 1 FROM chores WHERE last_run_at IS NOT NULL").fetchone())
