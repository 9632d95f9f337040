"""A server's rows are moved to PostgreSQL and back: whoever is logged in stays so."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from handmade import Handmade
from programs import SOURCE, Program
from walk import blocks

from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture
def program(home: Path, postgres_server: PostgresServer) -> Generator[Program]:
    """Beside it `ostiary-database`, with the address of one that is bare."""
    with postgres_server.bare_database() as where:
        address = f"postgresql://{where['user']}:hunter2@/{where['dbname']}?host={where['host']}\n"
        (home / "ostiary-database").write_text(address, "utf-8")
        yield Program(command=SOURCE, home=home, settings={"OSTIARY_DATA_DIR": str(home / "data")})


def typed(program: Program, name: str) -> list[list[str]]:
    """The words of a block of the document, without the name of the program."""
    lines = blocks("docs/scale.md", {})[name].lines
    found = [line.replace("$HOME", str(program.home)).split() for line in lines]
    assert {words[0] for words in found} == {"ostiary"}
    return [words[1:] for words in found]


def test_the_lines_of_the_page_move_a_login_to_the_database_and_back(program: Program) -> None:
    to_the_database, back = typed(program, "moving"), typed(program, "moving_back")
    with program.serving() as server:
        program.log_in(server)
    port = server.url.rpartition(":")[2]
    done = program.run(*to_the_database[0])
    assert "each read back and compared" in done.stdout
    assert 'put store = "file:' in done.stderr
    with program.serving("--port", port, *to_the_database[1][1:]) as server:
        client = Handmade(server.url)
        assert client.works(program.tokens()["access_token"])
        assert client.refresh(program.tokens()["refresh_token"]).status_code == 200
        assert program.at_machine("verify")["broken"] is None
        client.close()
        refused = program.run(*back[0], code=1)
        assert "in use by process" in refused.stderr
    refused = program.run("serve", "--port", "0", code=78)
    assert "this store was moved to file:" in refused.stderr
    done = program.run(*back[0])
    assert "ostiary-moved-" in done.stderr
    with program.serving("--port", port, *back[1][1:]) as server:
        client = Handmade(server.url)
        assert client.works(program.tokens()["access_token"])
        client.close()
        said = program.at_machine("audit", "--event", "store.copied")
        assert len(said) == 2
        assert said[0]["actor"].startswith("local:")
        assert program.at_machine("verify")["broken"] is None
    assert "hunter2" not in "".join(program.said)


def test_a_copy_that_is_killed_at_any_row_goes_on_and_nothing_is_served_before_it_is_whole(
    program: Program,
) -> None:
    with program.serving() as server:
        program.log_in(server)
    database = f"file:{program.home}/ostiary-database"
    # Killed where it had come to when so many rows were put, by whoever runs it.
    for rows in (1, 5, 9, 14):
        killed = subprocess.run(
            [
                *SOURCE[:1],
                str(Path(__file__).with_name("copy_child.py")),
                str(rows),
                "store",
                "copy",
                "--to",
                database,
            ],
            cwd=program.home,
            env=program.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert killed.returncode == -9, killed.stderr
        refused = program.run("serve", "--port", "0", "--store", database, code=78)
        assert "a copy of" in refused.stderr
        assert "cut off" in refused.stderr
    told = program.ask("store", "copy", "--to", database)
    assert told["rows"] == sum(told["tables"].values()) > 14
    assert told["trail"]["sound"]
    assert told["ledger"]["sound"]
    with program.serving("--store", database) as server:
        assert program.at_machine("verify")["broken"] is None


def test_an_empty_database_beside_a_file_with_rows_is_not_begun_unasked(program: Program) -> None:
    with program.serving():
        pass
    database = f"file:{program.home}/ostiary-database"
    refused = program.run("serve", "--port", "0", "--store", database, code=78)
    assert "until now is in" in refused.stderr
    assert f"ostiary store copy --from data-dir --to {database}" in refused.stderr
    program.run("store", "copy", "--from", "data-dir", "--to", database)
    with program.serving("--store", database):
        pass


def test_what_was_moved_away_and_lost_is_restored_as_a_back_up(program: Program) -> None:
    with program.serving():
        pass
    program.run("store", "copy", "--to", f"file:{program.home}/ostiary-database")
    file = program.data_dir / "ostiary.db"
    assert "can be restored" in program.run("restore", "--dry-run", str(file)).stdout
    program.run("restore", str(file))
    with program.serving():
        assert program.at_machine("verify")["broken"] is None
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM meta WHERE key LIKE 'copied%'").fetchone() == (0,)


def test_where_it_goes_is_never_said_in_clear(program: Program) -> None:
    for words in (["--to", "postgresql://a:hunter2@example.org/b"], ["--from", "b", "--to", "data-dir"]):
        refused = program.run("store", "copy", *words, code=2)
        assert "never as its address" in refused.stderr
        assert "hunter2" not in refused.stderr
    assert (
        "no data directory"
        in program.run("store", "copy", "--to", f"file:{program.home}/ostiary-database", code=1).stderr
    )


def test_what_backup_and_restore_print_copies_the_database_and_puts_it_back(
    program: Program, postgres_server: PostgresServer
) -> None:
    dumped, put_back, verified = typed(program, "dumped")
    (program.home / "ostiary.toml").write_text('store = "file:ostiary-database"\n', "utf-8")

    def printed(*words: str) -> str:
        said = program.run(*words, code=1).stderr
        assert "hunter2" not in said
        (line,) = [line.strip() for line in said.splitlines() if line.startswith("  pg_")]
        return line

    def run(line: str) -> None:
        environment = program.environment(PATH=f"{postgres_server.bin}:/usr/bin:/bin")
        subprocess.run(
            ["bash", "-c", line], cwd=program.home, env=environment, check=True, capture_output=True
        )

    with program.serving() as server:
        program.log_in(server)
        run(printed(*dumped))
        program.at_machine("invite", "ada")  # after the dump
        assert [each["name"] for each in program.at_machine("users", "list")].count("ada") == 1
    whole = program.ask(*verified)
    assert (whole["sound"], whole["ledger"]["sound"]) == (True, True)
    run(printed(*put_back))
    older = json.loads(program.run(*verified, "--json", code=1).stdout)
    assert "was written once" in older["problem"]
    # Beside the server's own a copy may be older by rights.
    with postgres_server.bare_database() as other:
        (program.home / "other").write_text(
            f"postgresql://{other['user']}@/{other['dbname']}?host={other['host']}", "utf-8"
        )
        own = (program.home / "ostiary-database").read_text("utf-8")
        (program.home / "ostiary-database").write_text((program.home / "other").read_text("utf-8"), "utf-8")
        run(printed(*put_back))
        (program.home / "ostiary-database").write_text(own, "utf-8")
        beside = program.ask("verify", "--store", f"file:{program.home}/other")
        assert beside["sound"]
        assert beside["checked"] < whole["checked"]
        postgres_server.said_in(other["dbname"], "UPDATE audit SET reason = 'nothing' WHERE seq = 2")
        altered = json.loads(
            program.run("verify", "--store", f"file:{program.home}/other", "--json", code=1).stdout
        )
        assert altered["broken"] == {"seq": 2, "what": "altered"}
    with program.serving():
        assert [each["name"] for each in program.at_machine("users", "list")].count("ada") == 0
        assert len(program.at_machine("audit", "--event", "audit.altered")) == 1
