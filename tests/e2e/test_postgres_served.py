"""The program on a PostgreSQL database: a login, calls, a kill, and a database server that goes away for a while."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import httpx2
import pytest
from handmade import Handmade
from programs import SOURCE, Program, Server, until
from walk import blocks

from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture
def program(home: Path, postgres_database: dict[str, str]) -> Program:
    where = postgres_database
    (home / "address").write_text(
        f"postgresql://{where['user']}:hunter2@/{where['dbname']}?host={where['host']}\n", "utf-8"
    )
    (home / "ostiary.toml").write_text('store = "file:address"\n', "utf-8")
    return Program(command=SOURCE, home=home)


def test_a_login_made_on_it_goes_on_after_a_kill_and_no_password_is_shown(program: Program) -> None:
    with program.serving() as server:
        program.log_in(server)
        token = program.tokens()["access_token"]
        client = Handmade(server.url)
        assert client.works(token)
        client.close()
        server.process.send_signal(signal.SIGKILL)
        server.wait()
        first = server.said()
    with program.serving("--port", server.url.rpartition(":")[2]) as again:
        client = Handmade(again.url)
        assert client.works(token)
        assert program.at_machine("verify")["broken"] is None
        client.close()
        said = first + again.said() + "".join(program.said)
    assert not (program.data_dir / "ostiary.db").exists()
    assert "hunter2" not in said


def test_a_database_that_goes_away_is_said_and_the_server_goes_on_when_it_is_back(
    program: Program, postgres_server: PostgresServer
) -> None:
    with program.serving("--admin-port", "0") as server:
        program.log_in(server)
        client = Handmade(server.url)
        token = program.tokens()["refresh_token"]
        postgres_server.stop(how="immediate")
        try:
            assert client.refresh(token).status_code == 503
            assert "cannot" in program.run("status", "--data-dir", str(program.data_dir)).stdout
            told = program.at_machine("status")["server"]["store"]
            assert "database" in told["problem"]
            ready = seen(server, "/readyz")
            assert (ready.status_code, "database" in ready.text) == (503, True), ready.text
            counted = re.search(
                r'\nostiary_store_writes_failed_total\{reason="unreachable"\} (\d+)',
                seen(server, "/metrics").text,
            )
            assert counted is not None  # it says all the time that it lives, in vain
            assert int(counted[1]) >= told["refused"]["unreachable"] > 0
        finally:
            postgres_server.start()

        def refreshed() -> bool | None:
            return True if client.refresh(token).status_code == 200 else None

        until("a refresh", refreshed)
        client.close()


def test_an_address_in_clear_is_refused_unseen_and_copies_of_files_are_not_made_of_it(
    program: Program,
) -> None:
    refused = program.run("serve", "--store", "postgresql://a:hunter2@example.org/b", code=2)
    assert "in clear" in refused.stderr
    assert "hunter2" not in refused.stderr
    for arguments in (("backup", "copy.db"), ("restore", "copy.db")):
        assert "PostgreSQL" in program.run(*arguments, code=1).stderr
    open_to_all = Path(program.home / "elsewhere")
    open_to_all.write_text("postgresql://a:hunter2@db.example.org/b?sslmode=require", "utf-8")
    unverified = program.run("serve", "--store", f"file:{open_to_all}", "--port", "0", code=78)
    assert "sslmode=require" in unverified.stderr
    assert "hunter2" not in unverified.stderr


def test_doctor_looks_at_the_database_beforehand_and_asks_the_server_that_runs(
    program: Program, postgres_database: dict[str, str]
) -> None:
    """Only the server that runs knows the address then."""

    def steps() -> dict[str, dict[str, str]]:
        done = program.run("doctor", "--json", "--data-dir", str(program.data_dir), code=1)
        return {each["step"]: each for each in json.loads(done.stdout)["steps"]}

    on = f"on {postgres_database['host']}, database {postgres_database['dbname']}"
    before = steps()
    assert on in before["database"]["detail"]
    assert before["nodes"]["detail"] == "none alive"
    assert before["connections"]["detail"].endswith(", and this server takes 4")
    assert not (program.data_dir / "master.key").exists()
    address = program.home / "address"
    program.settings |= {"DATABASE_URL": address.read_text("utf-8"), "OSTIARY_STORE": "env:DATABASE_URL"}
    with program.serving("--workers", "2"):
        del program.settings["DATABASE_URL"]
        running = steps()
        assert running["settings"]["state"] == "failed"  # which it says of itself here
        assert running["store"]["state"] == "failed"  # fsync = off, in the tests
        assert on in running["database"]["detail"]
        assert running["nodes"]["detail"] == "0 others alive"
        assert running["connections"]["state"] == "ok"
        assert "tables" not in running
    del program.settings["OSTIARY_STORE"]
    (program.home / "ostiary.toml").unlink()
    forgot = program.run("serve", "--port", "0", "--data-dir", str(program.data_dir), code=78)
    assert "now is in PostgreSQL" in forgot.stderr
    assert "--store env:DATABASE_URL, or with store = " in forgot.stderr
    assert not (program.data_dir / "ostiary.db").exists()
    assert "hunter2" not in "".join(program.said)


# Which a server on a file has none of.
BETWEEN_NODES = ("written", "heard", "dropped")


def seen(server: Server, path: str) -> httpx2.Response:
    admin = server.await_words(r'"admin":"(http://[^"]+)"')[1]
    return httpx2.get(f"{admin}{path}", trust_env=False, timeout=20)


def looked_at(program: Program) -> tuple[str, set[str], list[str], set[str], list[str]]:
    """What is told where: readiness; the metrics, and those of the store with their labels; the fields of `status`, and of the store in it."""
    with program.serving("--admin-port", "0") as server:
        program.log_in(server)
        ready, metrics = seen(server, "/readyz"), seen(server, "/metrics").text
        assert ready.status_code == 200
        status = program.at_machine("status")
        return (
            re.sub(r"node \S+:\d+, 0 others alive\n", "", ready.text),
            set(re.findall(r"^# TYPE (\w+ \w+)$", metrics, re.MULTILINE)),
            sorted(re.findall(r"^(ostiary_store\S+) ", metrics, re.MULTILINE)),
            {*status, *status["server"]},
            sorted(status["server"]["store"]),
        )


def test_what_is_to_be_seen_of_it_is_what_is_to_be_seen_of_a_file(program: Program, tmp_path: Path) -> None:
    ready, metrics, *rest = looked_at(program)
    of_file = looked_at(Program(command=SOURCE, home=tmp_path))
    assert metrics - of_file[1] == {f"ostiary_letters_{each}_total counter" for each in BETWEEN_NODES}
    assert (ready, metrics & of_file[1], *rest) == of_file


def test_the_first_lines_of_the_page_lead_to_a_server_on_a_database_of_its_own(
    home: Path, postgres_server: PostgresServer
) -> None:
    """As they stand, but for whoever administrates the database here, and where it listens."""
    program = Program(command=SOURCE, home=home)
    *prepare, serve = blocks("docs/scale.md", {})["database"].lines
    where = postgres_server.parameters("postgres")
    psql = f"{postgres_server.bin}/psql -X -h {where['host']} -U {where['user']} -d {where['dbname']}"
    for line in prepare:
        typed = line.replace("sudo -u postgres psql", psql).replace(
            "@localhost/ostiary", f"@/ostiary?host={where['host']}"
        )
        subprocess.run(["bash", "-c", typed], env=program.environment(), check=True, capture_output=True)
    try:
        assert (home / "ostiary-database").stat().st_mode & 0o777 == 0o600
        words = serve.replace("$HOME", str(home)).split()
        assert words[:2] == ["ostiary", "serve"]
        with program.serving(*words[2:]) as server:
            program.log_in(server)
            client = Handmade(server.url)
            assert client.works(program.tokens()["access_token"])
            client.close()
    finally:
        postgres_server.said("DROP DATABASE IF EXISTS ostiary WITH (FORCE)")
        postgres_server.said("DROP ROLE IF EXISTS ostiary")
