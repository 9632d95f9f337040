"""A PostgreSQL of the tests' own: in a folder that goes with it, on a Unix socket, and nowhere else. A database for each test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.cluster.postgres.postgres_errors import PostgresRefused
from server.cluster.postgres.postgres_schema import bring_up
from server.store.migrate import packaged_migrations
from server.store.transactions import JOB_SECONDS

USER = "tests"
TEMPLATE = "ostiary_template"
# The same for the fakes, who ask for rows in the order in which they were made: PostgreSQL keeps none, and moves a row when it is changed.
ORDERED_TEMPLATE = "ostiary_ordered"
ORDER = "made_in_order"
# As the tests of the store have it, so that no clock of theirs is far ahead of it.
MADE_AT = 1_800_000_000_000

# Waits for the end of whoever holds its standard input, in a session of its own: so it also outlives who is killed with all of its group.
# A signal of the kernel would come with the end of a thread, and would not pass through pg_ctl.
WARDEN = 'read -r _; "$1" -D "$2/data" -m immediate stop; rm -rf "$2"'

# As it was made, which is many times faster than making another. Without triggers no foreign key minds the order. What has grown large is
# cut off: rows that are deleted are still read past, until they are swept up in the background.
EMPTIED = """
DO $$
DECLARE
  name text;
  size bigint;
BEGIN
  SET LOCAL session_replication_role = replica;
  FOR name, size IN SELECT relname, pg_relation_size(oid) FROM pg_class
      WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'schema_version' LOOP
    CONTINUE WHEN size = 0;
    IF size > 1000000 THEN
      EXECUTE format('TRUNCATE public.%I CASCADE', name);
    ELSE
      EXECUTE format('DELETE FROM public.%I', name);
    END IF;
  END LOOP;
  FOR name IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
    PERFORM setval(format('public.%I', name)::regclass, 1, false);
  END LOOP;
END $$
"""


ORDERED = f"""
CREATE TABLE {ORDER} (made BIGINT GENERATED ALWAYS AS IDENTITY, of TEXT, key TEXT, PRIMARY KEY (of, key));
CREATE FUNCTION note_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {ORDER} (of, key)
    SELECT TG_TABLE_NAME, string_agg(to_jsonb(NEW) ->> name, ' ' ORDER BY name) FROM unnest(TG_ARGV) AS name
    ON CONFLICT (of, key) DO UPDATE SET made = DEFAULT;
  RETURN NULL;
END $$;
DO $$
DECLARE
  keyed regclass;
  names text;
BEGIN
  FOR keyed, names IN SELECT indrelid, string_agg(quote_literal(attname), ', ') FROM pg_index
      JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey) JOIN pg_class ON pg_class.oid = indrelid
      WHERE indisprimary AND relnamespace = 'public'::regnamespace AND relname <> '{ORDER}' GROUP BY indrelid LOOP
    EXECUTE format('CREATE TRIGGER note_order AFTER INSERT ON %s FOR EACH ROW EXECUTE FUNCTION note_order(%s)', keyed, names);
  END LOOP;
END $$
"""
KEY_OF = """
SELECT string_agg(format('%s.%I::text', indrelid::regclass, attname), ', '' '', ' ORDER BY attname) FROM pg_index
  JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey) WHERE indisprimary AND indrelid = ?::regclass
"""


def programs() -> Path | None:
    """The newest that is installed: Debian keeps them apart by version, off everybody's path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).resolve().parent


def _installed() -> Path:
    found = programs()
    if found is None:
        raise FileNotFoundError("PostgreSQL is not installed: scripts/peers system")
    return found


@contextmanager
def server_of_its_own(*, durable: bool = False) -> Generator[PostgresServer]:
    """A server that a test may stop and set otherwise: no other test uses it."""
    server = PostgresServer(_installed(), durable=durable)
    try:
        server.make()
        yield server
    finally:
        server.remove()


def own_address() -> tuple[str, int]:
    """One of this machine's own addresses that nobody else listens on: so its port is nobody's either."""
    number = os.getpid()
    address = f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255 or 1}"
    with socket.create_server((address, 0)) as probe:
        return address, probe.getsockname()[1]


@contextmanager
def primary_and_standby() -> Generator[tuple[PostgresServer, PostgresServer]]:
    found = _installed()
    primary, standby = PostgresServer(found), PostgresServer(found)
    with ExitStack() as stack:
        stack.callback(primary.remove)
        primary.make()
        stack.callback(standby.remove)
        standby.follow(primary)
        yield primary, standby


class PostgresServer:
    """Runs as another user where this one is root, as PostgreSQL wants it."""

    def __init__(self, bin_folder: Path, *, durable: bool = False) -> None:
        self.bin = bin_folder
        self._durable = durable
        self.folder = Path(tempfile.mkdtemp(prefix="ostiary-pg-"))
        self._data = self.folder / "data"
        self._as_user: list[str] = []
        self.owner = pwd.getpwuid(os.geteuid()).pw_name  # of its files
        self._numbers = count(1)
        self.settings: dict[str, str] = {}  # further ones, taken with the next start
        self._admin: psycopg.Connection[Any] | None = None
        self._idle: list[tuple[str, psycopg.Connection[Any]]] = []
        self._idle_writers: dict[str, list[Writer]] = {TEMPLATE: [], ORDERED_TEMPLATE: []}
        self._warden: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self.owner = nobody.pw_name
            self._as_user = [
                "setpriv",
                f"--reuid={nobody.pw_uid}",
                f"--regid={nobody.pw_gid}",
                "--clear-groups",
            ]

    def make(self) -> None:
        sync = [] if self._durable else ["--no-sync"]
        self._run(
            "initdb",
            "-D",
            str(self._data),
            "-A",
            "trust",
            "-U",
            USER,
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            *sync,
        )
        self.start()
        self._admin = self._connected("postgres")
        self._admin.execute(f"CREATE DATABASE {TEMPLATE}")
        access = PostgresAccess(parameters=self.parameters(TEMPLATE), job_seconds=10)
        connection = PostgresConnection(access, writes=True)
        bring_up(connection, packaged_migrations(), now=MADE_AT)
        connection.close()
        self._admin.execute(f"CREATE DATABASE {ORDERED_TEMPLATE} TEMPLATE {TEMPLATE}")
        self.said_in(ORDERED_TEMPLATE, ORDERED)

    def follow(self, primary: PostgresServer) -> None:
        """A standby of that one, in the place of `make` or of what it was; started."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._run(
            "pg_basebackup", "-D", str(self._data), "-h", str(primary.folder), "-U", USER, "-R", "--checkpoint=fast", "--no-sync"
        )  # fmt: skip
        self.start()

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "promote")

    def process(self) -> int:
        """Of the one that lets the others in."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def start(self) -> None:
        if self._warden is None:
            self._warden = subprocess.Popen(
                [*self._as_user, "sh", "-c", WARDEN, "sh", str(self.bin / "pg_ctl"), str(self.folder)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
        }
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        settings |= self.settings
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        self._run(
            "pg_ctl", "-D", str(self._data), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, *, how: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", how, "stop")

    def rules(self, lines: str) -> None:
        """Who is let in and how, from the next start on, in place of everybody."""
        (self._data / "pg_hba.conf").write_text(lines)

    def listen(self, address: str, port: int, *, tls: tuple[Path, Path] | None, by: str = "trust") -> None:
        """From the next start on also over TCP; `tls`: the files of certificate and key; `by`: how somebody shows who they are."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all all all {by}\n{rules.read_text()}")
        self.settings |= {
            "listen_addresses": address,
            "port": str(port),
            "ssl": "off" if tls is None else "on",
        }
        if tls is not None:
            for name, file in zip(("ssl_cert_file", "ssl_key_file"), tls, strict=True):
                own = self._data / file.name
                own.touch(mode=0o600)
                if self._as_user:
                    shutil.chown(own, "nobody")
                own.write_bytes(file.read_bytes())
                self.settings[name] = own.name

    def remove(self) -> None:
        for connection in (self._admin, *(cleaner for _, cleaner in self._idle)):
            if connection is not None:
                connection.close()
        for writer in (*self._idle_writers[TEMPLATE], *self._idle_writers[ORDERED_TEMPLATE]):
            writer.end()
        with suppress(RuntimeError):  # it was stopped
            self.stop(how="immediate")
        if self._warden is not None:
            self._warden.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def parameters(self, database: str) -> dict[str, str]:
        port = {name: value for name, value in self.settings.items() if name == "port"}
        return {"host": str(self.folder), "user": USER, "dbname": database, **port}

    @contextmanager
    def database(self) -> Generator[Mapping[str, str]]:
        """What libpq needs for one of its own, of this version's schema and empty."""
        if self._idle:
            name, cleaner = self._idle.pop()
        else:
            name = self._made(TEMPLATE)
            cleaner = self._connected(name)
        try:
            yield self.parameters(name)
        finally:
            with suppress(psycopg.Error):
                cleaner.execute(EMPTIED)
                self._idle.append((name, cleaner))

    def lend_writer(self, template: str) -> Writer:
        """To a database of one's own, too; connected already, which takes longer than most tests."""
        if self._idle_writers[template]:
            return self._idle_writers[template].pop()
        return Writer(self.parameters(self._made(template)), template)

    def take_back(self, writer: Writer) -> None:
        try:
            writer.forget()
            writer.script(EMPTIED)
        except PostgresRefused:
            writer.end()
        else:
            self._idle_writers[writer.template].append(writer)

    def _made(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        self.said(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    @contextmanager
    def bare_database(self) -> Generator[Mapping[str, str]]:
        """One in which nothing was made yet."""
        name = f"bare_{next(self._numbers)}"
        self.said(f"CREATE DATABASE {name}")
        try:
            yield self.parameters(name)
        finally:
            self.said(f"DROP DATABASE {name} WITH (FORCE)")

    def said(self, sql: str) -> None:
        """By whoever runs the server."""
        if self._admin is None or self._admin.closed or not _answers(self._admin):
            self._admin = self._connected("postgres")
        self._admin.execute(sql.encode())

    def asked(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connected("postgres") as connection:
            return connection.execute(sql.encode()).fetchall()

    def said_in(self, database: str, sql: str) -> None:
        with self._connected(database) as connection:
            connection.execute(sql.encode())

    def _connected(self, database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(make_conninfo("", **self.parameters(database)), autocommit=True)

    def _run(self, program: str, *words: str) -> None:
        # Not with a pipe: the server would keep it open.
        log = self.folder / f"{program}.out"
        with log.open("w") as out:
            done = subprocess.run(
                [*self._as_user, str(self.bin / program), *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, check=False,
            )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program}: {log.read_text()}")


class Writer(PostgresConnection):
    """A connection that tests use one after the other, each as if it were new. Its transactions may stand still, as a busy machine has a test do."""

    def __init__(self, parameters: Mapping[str, str], template: str) -> None:
        super().__init__(PostgresAccess(parameters=parameters, job_seconds=JOB_SECONDS), writes=True)
        self.template = template  # of its database
        self.execute("SET idle_in_transaction_session_timeout = 0")

    def forget(self) -> None:
        """Undo what was not committed, as with the end of a process."""
        if self.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """A store closes the connection that it has: this one stays."""

    def end(self) -> None:
        super().close()


class Loans:
    """The databases of one test. What it has not given back by its end is taken back then."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._lent = ExitStack()
        self._by_file: dict[Path, Mapping[str, str]] = {}
        self._writers: set[Writer] = set()

    def database(self) -> Mapping[str, str]:
        return self._lent.enter_context(self.server.database())

    def in_place_of(self, file: Path) -> Mapping[str, str]:
        if file not in self._by_file:
            self._by_file[file] = self.database()
        return self._by_file[file]

    def writer(self, template: str) -> Writer:
        writer = self.server.lend_writer(template)
        self._writers.add(writer)
        return writer

    def give_back(self, writer: Writer) -> None:
        if writer in self._writers:  # still
            self._writers.remove(writer)
            self.server.take_back(writer)

    def end(self) -> None:
        for writer in list(self._writers):
            self.give_back(writer)
        self._by_file.clear()
        self._lent.close()


def _answers(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True
