"""What `ostiary doctor` says of a PostgreSQL database (server/cli/doctor/doctor_postgres.py): of a real one, in each of the states that a start would
come upon, and with nothing changed in it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from shell import Terminal

from server.cli.doctor.doctor_postgres import steps_of_server, steps_without_server
from server.client.check_step import CheckStep
from server.cluster.postgres import postgres_session
from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_look import DatabaseSeen, look
from server.cluster.postgres.postgres_schema import bring_up
from server.settings.resolved_settings import resolve
from server.settings.settings_reader import load
from server.store import meta_rows, move_marks, node_rows
from server.store.inline_store import open_inline_store
from server.store.jobs import StoreDb
from server.store.migrate import packaged_migrations
from server.store.move_marks import CopiedAway, CopiedHere
from server.store.node_rows import MemberNode, NodeSaid
from tests.inline_postgres import open_inline_postgres_store
from tests.made_certificates import Authority
from tests.postgres_pooler import pooler
from tests.postgres_server import USER, PostgresServer, programs

NOW = 1_800_000_000_000
NAME = "db.example.test"


class Machine:
    """One with settings and a data directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "data"

    def address(self, where: Mapping[str, str], more: str = "") -> str:
        return f"postgresql://{where['user']}:hunter2@/{where['dbname']}?host={where['host']}{more}"

    def steps(self, address: str, **settings: object) -> list[CheckStep]:
        """No password is in any of them."""
        file = self.folder / "address"
        file.touch(mode=0o600)
        file.write_text(address, "utf-8")
        flags = {"store": f"file:{file}", "data_dir": str(self.data_dir), **settings}
        steps = steps_without_server(resolve(load(None, {}, flags)))
        assert "hunter2" not in repr(steps)
        return steps

    def said(self, address: str, **settings: object) -> dict[str, CheckStep]:
        return {step.name: step for step in self.steps(address, **settings)}

    def refusal(self, address: str, **settings: object) -> str:
        """The one thing there is to say, with its hint."""
        (step,) = self.steps(address, **settings)
        assert (step.name, step.state) == ("database", "failed")
        return f"{step.detail}; {step.hint}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def written(where: Mapping[str, str], *jobs: Any) -> None:
    async def write() -> None:
        async with open_inline_postgres_store(where, clock=lambda: NOW) as store:
            for job in jobs:
                await store.write(job)

    trio.run(write)


def brought_up(where: Mapping[str, str], *, migrations: int) -> None:
    access = PostgresAccess(parameters=where, job_seconds=10)
    with closing(PostgresConnection(access, writes=True)) as connection:
        bring_up(connection, packaged_migrations()[:migrations], now=NOW)


# ── as it should be ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_database_is_ready_and_is_as_empty_afterwards(
    machine: Machine, postgres_server: PostgresServer
) -> None:
    with postgres_server.bare_database() as where:
        said = machine.said(machine.address(where))
        assert [(step.name, step.state) for step in said.values()] == [
            ("database", "ok"),
            ("durability", "failed"),  # that of the tests does not wait for its disk
            ("tables", "ok"),
            ("connections", "ok"),
        ]
        assert said["database"].detail.startswith("PostgreSQL ")
        assert said["database"].detail.endswith(
            f" on {where['host']}, database {where['dbname']} as {where['user']}"
        )
        assert "fsync = off" in said["durability"].detail
        assert said["tables"].detail.startswith("none yet")
        assert said["connections"].detail.endswith(", and this server takes 4")
        assert not machine.data_dir.exists()
        assert look(where).tables.found == 0


def test_tables_of_this_version_are_told_with_who_is_alive(
    machine: Machine, postgres_database: dict[str, str]
) -> None:
    said = machine.said(machine.address(postgres_database))
    assert said["tables"].detail.startswith(f"schema {len(packaged_migrations())}, ")
    assert said["nodes"].detail == "none alive"
    ours = MemberNode(
        boot_id="b1", name="web-1:77", home="h1", address="10.0.0.1:8420", version="9.9.9", started_at=NOW, place="p1"
    )  # fmt: skip
    written(
        postgres_database,
        partial(node_rows.enter, node=ours),
        partial(node_rows.beat, node=ours, said=NodeSaid("serving")),
    )
    said = machine.said(machine.address(postgres_database))
    assert said["nodes"].detail == "1 alive: web-1 at 10.0.0.1:8420 (version 9.9.9)"
    written(postgres_database, lambda db: db.execute("UPDATE nodes SET alive_until = alive_until - 600000"))
    said = machine.said(machine.address(postgres_database))
    assert said["nodes"].detail.startswith(
        "none alive; silent: web-1 at 10.0.0.1:8420 (version 9.9.9, for 10 minutes)"
    )


# ── where the address is ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_every_user_can_read_is_told_of_and_the_rest_is_looked_at_all_the_same(
    machine: Machine, postgres_database: dict[str, str]
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ostiary-open-"))
    try:
        folder.chmod(0o755)
        file = folder / "address"
        file.write_text(machine.address(postgres_database), "utf-8")
        for mode, shown in ((0o644, True), (0o640, False)):
            file.chmod(mode)
            found = machine.said(machine.address(postgres_database), store=f"file:{file}")
            assert ("store" in found) is shown
            assert found["database"].state == "ok"
            if shown:
                assert (found["store"].state, found["store"].hint) == ("failed", f"chmod 600 {file}")
        file.chmod(0o644)
        folder.chmod(0o700)  # nobody gets there
        assert "store" not in machine.said("", store=f"file:{file}")
    finally:
        shutil.rmtree(folder)


def test_the_password_of_the_documentation_is_no_password(machine: Machine) -> None:
    assert "CHANGE-ME" in (Path(__file__).parents[2] / "docs" / "scale.md").read_text("utf-8")
    kept, refused = machine.steps(f"postgresql://u:CHANGE-ME@/x?host={machine.folder}")
    assert (kept.name, kept.state) == ("store", "failed")
    assert "documentation" in kept.detail
    assert refused.name == "database"


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("postgresql://u:hunt@er2@h/x", "an '@' or a '/'"),
        ("postgresql://u:hunt/er2@h/x", "an '@' or a '/'"),
        ("postgresql://u:hunter2/x", "is no number"),
        ("postgresql://u:hunter2@h/x?ssl_mode=1", "is sslmode meant?"),
        ("postgresql://u:hunter2@h/x?nothing=1", "PostgreSQL does not know"),
        ('"postgresql://u:hunter2@h/x"', "stands in quotation marks"),
        ("DATABASE_URL=postgresql://u:hunter2@h/x", "is an assignment"),
        ("export A=postgresql://u:hunter2@h/x", "is an assignment"),
        ("jdbc:postgresql://h/x?password=hunter2", "is one for Java"),
        ("postgresql+psycopg://u:hunter2@h/x", "names a driver"),
        ("host=h password=hunter2", "is written as words"),
        ("postgresql://u:hunter2@h/x\nand more", "has more than one line"),
        ("mysql://u:hunter2@h/x", "no address of a database"),
        ("postgresql://u:hunter2@db.example.org/x?sslmode=require", "has sslmode=require"),
    ],
)
def test_an_address_that_cannot_be_read_is_answered_with_its_mistake(
    machine: Machine, address: str, what: str
) -> None:
    assert what in machine.refusal(address)


# ── who answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_that_leads_nowhere_and_a_port_where_nobody_listens(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = machine.refusal(f"postgresql://u:hunter2@127.0.0.1:{port}/x")
    assert f'"127.0.0.1", port {port} failed: Connection refused' in said
    assert "pg_lsclusters" in said
    said = machine.refusal(f"postgresql:///x?host={machine.folder}")
    assert "socket in that folder" in said

    def unknown(*what: object, **how: object) -> None:
        del what, how
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said = machine.refusal("postgresql://u:hunter2@db.example.test/x")
    assert "failed to resolve host 'db.example.test'" in said
    assert "spelt right?" in said


def test_one_that_says_nothing_is_not_waited_for_long_and_each_of_several_is_told(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as gone:
        quiet, closed = silent.getsockname()[1], gone.getsockname()[1]
        gone.close()
        said = machine.refusal(
            f"postgresql://u:hunter2@127.0.0.1:{quiet},localhost:{closed}/x?connect_timeout=2"
        )
    assert "127.0.0.1: connection timeout expired; " in said
    assert "Connection refused" in said


def test_a_role_or_a_database_that_is_not_there_is_made_with_the_hint(
    machine: Machine, postgres_server: PostgresServer
) -> None:
    where = {"host": str(postgres_server.folder), "user": "some-body", "dbname": "postgres"}
    said = machine.refusal(machine.address(where))
    assert 'role "some-body" does not exist' in said
    assert 'CREATE ROLE \\"some-body\\" LOGIN PASSWORD' in said
    said = machine.refusal(machine.address({**where, "user": USER, "dbname": "nowhere"}))
    assert 'database "nowhere" does not exist' in said
    assert f"CREATE DATABASE nowhere OWNER {USER} ENCODING 'UTF8' TEMPLATE template0" in said


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[PostgresServer, Authority, str, int]]:
    """A database server that asks for a password and shows a certificate, waits for its disk, and for a standby that is not there."""
    found = programs()
    if found is None:
        pytest.fail("PostgreSQL is not installed: scripts/peers system")
    server, authority = PostgresServer(found, durable=True), Authority(tmp_path_factory.mktemp("authority"))
    try:
        server.make()
        server.said(f"ALTER USER {USER} PASSWORD 'hunter2'")
        server.stop()
        number = os.getpid()
        place = f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255 or 1}"
        with socket.create_server((place, 0)) as probe:
            port = probe.getsockname()[1]
        server.listen(place, port, tls=authority.issue(NAME), by="scram-sha-256")
        server.settings["synchronous_standby_names"] = "second"
        server.start()
        yield server, authority, place, port
    finally:
        server.remove()


def test_over_a_network_password_and_certificate_are_held_against_the_address(
    machine: Machine, strict: tuple[PostgresServer, Authority, str, int]
) -> None:
    _, authority, place, port = strict

    def address(name: str = NAME, password: str = "hunter2") -> str:
        return f"postgresql://{USER}:{password}@{name}:{port}/ostiary_template?hostaddr={place}"

    said = machine.said(address(), store_ca=str(authority.file))
    assert f"on {NAME}:{port}, database ostiary_template as {USER}, by TLSv1" in said["database"].detail
    assert "durability" not in said
    assert said["standby"].state == "failed"
    assert "synchronous_standby_names = 'second'" in said["standby"].detail
    wrong = machine.refusal(address(password="hunter2x"), store_ca=str(authority.file))
    assert "password authentication failed" in wrong
    assert f"ALTER ROLE {USER} PASSWORD" in wrong
    stranger = machine.refusal(address())
    assert "certificate verify failed" in stranger
    assert f'the certificate is for {NAME}, from the authority "an authority of the tests"' in stranger
    assert "`store_ca`" in stranger
    other = machine.refusal(address("other.example.test"), store_ca=str(authority.file))
    assert f'certificate for "{NAME}" does not match host name "other.example.test"' in other
    assert "the name into the address" in other


def test_what_is_not_good_for_a_store_is_refused_as_at_a_start(
    machine: Machine, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ostiary-pooler-"))
    try:
        with postgres_server.bare_database() as where:
            with pooler(folder, postgres_server):
                said = machine.refusal(machine.address({**where, "host": str(folder)}))
            assert "not a pooler" in said
            said = machine.refusal(machine.address(where, "&options=-csearch_path%3Dmissing"))
            assert "CREATE SCHEMA" in said
            postgres_server.said(f"ALTER DATABASE {where['dbname']} SET default_transaction_read_only = on")
            said = machine.refusal(machine.address(where))
            assert "session is read-only" in said
            assert "standby" in said
            postgres_server.said(f"ALTER DATABASE {where['dbname']} RESET default_transaction_read_only")
            monkeypatch.setattr(postgres_session, "MINIMUM_SERVER", 990_000)
            assert "use PostgreSQL 99 or newer" in machine.refusal(machine.address(where))
            monkeypatch.undo()
        postgres_server.said("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        try:
            said = machine.refusal(machine.address({**where, "dbname": "ascii"}))
            assert "not in UTF-8" in said
        finally:
            postgres_server.said("DROP DATABASE ascii WITH (FORCE)")
    finally:
        shutil.rmtree(folder)


# ── what is in it, and what may be done there ────────────────────────────────────────────────────────────────────────


def test_a_role_without_rights_is_told_which_it_needs(
    machine: Machine, postgres_server: PostgresServer, postgres_database: dict[str, str]
) -> None:
    postgres_server.said("CREATE ROLE plain LOGIN CONNECTION LIMIT 3")
    try:
        with postgres_server.bare_database() as where:
            postgres_server.said_in(where["dbname"], "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            said = machine.said(machine.address({**where, "user": "plain"}))
            assert said["tables"].state == "failed" and "the schema public" in said["tables"].detail
            assert "plain" in str(said["tables"].hint)
            # And what the hint says helps.
            postgres_server.said(f"ALTER DATABASE {where['dbname']} OWNER TO plain")
            postgres_server.said_in(where["dbname"], "ALTER SCHEMA public OWNER TO pg_database_owner")
            said = machine.said(machine.address({**where, "user": "plain"}))
            assert said["tables"].state == "ok"
            assert said["connections"].state == "failed"
            assert said["connections"].detail.startswith("3 of 3 ")
            assert "CONNECTION LIMIT" in str(said["connections"].hint)
            postgres_server.said(f"ALTER DATABASE {where['dbname']} OWNER TO {USER}")
        said = machine.said(machine.address({**postgres_database, "user": "plain"}))
        assert said["tables"].state == "failed"
        assert f" {USER}, and plain may not " in said["tables"].detail
    finally:
        postgres_server.said("DROP ROLE plain")


def test_connections_are_counted_for_all_workers(machine: Machine, postgres_database: dict[str, str]) -> None:
    found = machine.said(machine.address(postgres_database), workers=64, store_readers=2)["connections"]
    assert found.state == "failed"
    assert " 256 (64 workers with 4 each)" in found.detail
    assert "max_connections" in str(found.hint)


def test_an_older_schema_is_brought_up_unless_others_use_it(
    machine: Machine, postgres_server: PostgresServer
) -> None:
    known = len(packaged_migrations())
    with postgres_server.bare_database() as where:
        brought_up(where, migrations=1)
        tables = machine.said(machine.address(where))["tables"]
        assert tables.state == "ok"
        assert tables.detail.startswith(f"schema 1, and this version has {known}: ")
        assert "back-up" in str(tables.hint)
        access = PostgresAccess(parameters=where, job_seconds=10)
        with closing(PostgresConnection(access, writes=True)):
            tables = machine.said(machine.address(where))["tables"]
        assert tables.state == "failed"
        assert "1 process of other nodes does" in tables.detail
        assert look(where).tables.found == 1


def test_a_newer_schema_goes_on_where_it_only_adds_and_is_refused_else(
    machine: Machine, postgres_database: dict[str, str], postgres_server: PostgresServer
) -> None:
    newer = len(packaged_migrations()) + 1

    def added(db: StoreDb, *, additive: int) -> None:
        db.execute("DELETE FROM schema_version WHERE version = ?", newer)
        db.execute(
            "INSERT INTO schema_version (version, name, applied_at, sha256, additive) VALUES (?, 'x', 0, 'x', ?)",
            newer,
            additive,
        )

    try:
        written(postgres_database, partial(added, additive=1))
        tables = machine.said(machine.address(postgres_database))["tables"]
        assert tables.state == "ok" and tables.detail.startswith(f"schema {newer}, of a newer version")
        written(postgres_database, partial(added, additive=0))
        tables = machine.said(machine.address(postgres_database))["tables"]
        assert tables.state == "failed"
        assert f"(schema {newer}; this one knows {newer - 1})" in tables.detail
        assert "run the newer version" in str(tables.hint)
    finally:
        postgres_server.said_in(
            postgres_database["dbname"], f"DELETE FROM schema_version WHERE version = {newer}"
        )


def test_tables_of_another_program_are_left_alone(machine: Machine, postgres_server: PostgresServer) -> None:
    with postgres_server.bare_database() as where:
        postgres_server.said_in(where["dbname"], "CREATE TABLE theirs (n int)")
        tables = machine.said(machine.address(where))["tables"]
        assert tables.state == "failed" and "another program" in tables.detail


def test_a_copy_that_was_cut_off_and_a_store_that_was_moved_say_where_the_rows_are(
    machine: Machine, postgres_database: dict[str, str]
) -> None:
    half = CopiedHere(copy="c", source="data-dir", key="k", schema=1, begun=NOW)
    written(postgres_database, partial(move_marks.put, mark=half))
    tables = machine.said(machine.address(postgres_database))["tables"]
    assert tables.state == "failed" and "a copy of data-dir" in tables.detail
    assert "ostiary store copy" in str(tables.hint)
    gone = CopiedAway(copy="c", to="file:elsewhere", at=NOW)
    written(
        postgres_database,
        lambda db: db.execute("DELETE FROM meta WHERE key = ?", move_marks.HERE),
        partial(move_marks.put, mark=gone),
    )
    tables = machine.said(machine.address(postgres_database))["tables"]
    assert tables.state == "failed"
    assert "this store was moved to file:elsewhere" in tables.detail
    assert "serve from file:elsewhere" in str(tables.hint)


def test_a_data_directory_with_another_key_or_with_rows_of_its_own_is_told_of(
    machine: Machine, postgres_database: dict[str, str]
) -> None:
    async def kept_in_a_file() -> None:
        machine.data_dir.mkdir(mode=0o700)
        async with open_inline_store(machine.data_dir / "ostiary.db", clock=lambda: NOW) as store:
            await store.write(partial(meta_rows.put, key=meta_rows.KEY_FINGERPRINT, value="000000000000:00"))

    trio.run(kept_in_a_file)
    tables = machine.said(machine.address(postgres_database))["tables"]
    assert "the database is empty" in tables.detail
    assert "ostiary store copy --from data-dir" in str(tables.hint)
    written(
        postgres_database,
        partial(meta_rows.put, key=meta_rows.KEY_FINGERPRINT, value="0123456789ab:00112233445566"),
    )
    tables = machine.said(machine.address(postgres_database))["tables"]
    assert tables.state == "failed"
    assert "master.key is missing" in tables.detail
    assert not (machine.data_dir / "master.key").exists()


# ── what a running server says, in words alone ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def seen(postgres_database: dict[str, str]) -> DatabaseSeen:
    return look(postgres_database)


def of_server(seen: DatabaseSeen, **server: object) -> dict[str, CheckStep]:
    found = msgspec.structs.replace(seen, server=msgspec.structs.replace(seen.server, **server))
    steps = steps_of_server({"seen": msgspec.to_builtins(found)}, boot_id="b1")
    return {step.name: step for step in steps}


def test_what_a_running_server_sees_of_its_database_is_told_without_what_it_says_itself(
    seen: DatabaseSeen,
) -> None:
    assert list(of_server(seen)) == ["database", "nodes", "connections"]
    assert of_server(seen)["nodes"].detail == "0 others alive"
    full = of_server(seen, taken=seen.server.most)["connections"]
    assert (full.state, full.goes_on) == ("failed", True)
    assert steps_of_server(None, boot_id="b1") == []
    assert steps_of_server({"seen": {"of": "another version"}}, boot_id="b1") == []
    (lost,) = steps_of_server({"problem": "it went away", "hint": "wait"}, boot_id="b1")
    assert (lost.state, lost.detail, lost.hint) == ("failed", "it went away", "wait")


def test_a_standby_is_told_of_by_whether_it_is_waited_for(seen: DatabaseSeen) -> None:
    assert "standby" not in of_server(seen)
    assert "may be missing there" in of_server(seen, standbys=1)["standby"].detail
    follows = of_server(seen, awaited="a", standbys=1, standbys_told=1, standbys_awaited=1)
    assert follows["standby"].state == "ok"
    strange = of_server(seen, awaited="a", standbys=1, standbys_told=1, standbys_awaited=0)
    assert strange["standby"].state == "failed"
    # Whoever may not see which of them are waited for raises no alarm.
    untold = of_server(seen, awaited="a", standbys=1, standbys_told=0, standbys_awaited=0)
    assert untold["standby"].state == "ok"


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_step_is_in_its_json_and_what_failed_is_in_its_exit_code(
    shell: Terminal, postgres_server: PostgresServer
) -> None:
    data = str(shell.home / "data")
    (shell.home / "address").touch(mode=0o600)
    (shell.home / "address").write_text(f"postgresql://u:hunter2@/x?host={shell.home}", "utf-8")
    done = await shell.run(
        "doctor", "--json", "--data-dir", data, OSTIARY_PORT="1", OSTIARY_STORE="file:address"
    )
    assert done.code == 1
    steps = json.loads(done.stdout)["steps"]
    assert [step["step"] for step in steps[:4]] == ["settings", "data directory", "database", "agents"]
    assert steps[2]["state"] == "failed"
    assert "No such file or directory" in steps[2]["detail"]
    assert "socket" in steps[2]["hint"]
    assert "hunter2" not in done.stdout + done.stderr
    unset = await shell.run("doctor", "--data-dir", data, OSTIARY_PORT="1", OSTIARY_STORE="env:NOPE")
    assert unset.code == 1
    assert "OSTIARY_STORE: the environment variable NOPE is not set" in unset.stderr
    assert "✗ settings" in unset.stdout
    assert "database" not in unset.stdout


async def test_without_such_a_database_nothing_of_it_is_loaded(shell: Terminal) -> None:
    code = (
        "import sys; sys.argv = ['ostiary', 'doctor', '--data-dir', 'data']\n"
        "from server.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('psycopg' in sys.modules)"
    )
    done = await trio.run_process(
        [sys.executable, "-P", "-c", code],
        capture_stdout=True,
        env={**shell.environment(OSTIARY_PORT="1"), "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=shell.home,
    )
    assert done.stdout.decode().splitlines()[-1] == "False"
