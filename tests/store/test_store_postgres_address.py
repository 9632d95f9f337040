"""What an address may say, and who is shown the password that is in it (server/cluster/postgres/postgres_address.py)."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import closing, suppress
from functools import partial

import pytest
from psycopg import pq
from store_engines import NOW, put

from server.cluster.postgres.postgres import open_postgres_store
from server.cluster.postgres.postgres_address import AddressRefused, parameters_of
from server.cluster.postgres.postgres_connection import PostgresAccess, PostgresConnection
from server.store.jobs import CannotOpen
from tests.postgres_server import USER, PostgresServer, own_address, server_of_its_own


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:se@hunter2@db.example.test/x",
        "postgresql://u:se/hunter2@db.example.test/x",
        "postgresql://u:12/hunter2@127.0.0.1:1/x",
        "postgresql://u:hunter2/x",
        "postgresql://u:/hunter2@db.example.test/x",
        "postgresql://u:p@a,b@hunter2/x",
        "postgresql://u:p?q@r@hunter2/x",
        "postgresql://u:p@db.example.test:hunter2/x",
        "postgresql://u:p@db.example.test:70000/x",
        "postgresql://u:p@/x?host=hunter2%23",
        "postgresql://u:p@/x?hostaddr=hunter2",
        "postgresql://u:p@db.example.test/x?connect_timeout=hunter2",
        "postgresql://u:p@db.example.test/x?sslmode=hunter2",
        "postgresql://u:p@db.example.test/x?hunter2=1",
        "postgresql://u:p@db.example.test/x?service=hunter2",
        "mysql://u:hunter2@db.example.test/x",
    ],
)
def test_what_may_be_a_part_of_a_password_is_neither_shown_nor_asked_for_anywhere(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *what, **how: asked.append(what))
    with pytest.raises(AddressRefused) as caught:
        parameters_of(address)
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"
    assert asked == []


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("postgresql://u:se#c?r:et@127.0.0.1:1/x", "127.0.0.1"),
        ("postgresql://u:p%40%2F@db-1.example.test,db_2:5433/x", "db-1.example.test,db_2"),
        ("postgresql://u:p@[2001:db8::1]/x?connect_timeout=3", "2001:db8::1"),
        ("postgresql:///x?host=/run/post%20gres&options=-csearch_path%3Dours", "/run/post gres"),
        ("postgresql://u@/x?host=@abstract", "@abstract"),
    ],
)
def test_what_is_written_as_it_should_be_is_taken(address: str, host: str) -> None:
    assert parameters_of(address)["host"] == host


@pytest.mark.parametrize(
    ("rest", "is_taken"),
    [
        ("a:65535/x", True),
        ("a:65536/x", False),
        ("a:1,b:65535/x", True),
        ("a:1,b:65536/x", False),
        ("a,b:2/x", True),
        ("[2001:db8::1]:65536/x", False),
        ("/x?host=a&port=65535", True),
        ("/x?host=a&port=65536", False),
        ("/x?host=a&port=0", False),
        ("a/x?connect_timeout=99999999", True),
        ("a/x?connect_timeout=999999999", False),
        ("a/x?connect_timeout=", False),
        ("a/x?keepalives_idle=-1", False),
    ],
)
def test_numbers_are_those_that_there_can_be(rest: str, is_taken: bool) -> None:
    if is_taken:
        assert parameters_of(f"postgresql://{rest}")["dbname"] == "x"
    else:
        with pytest.raises(AddressRefused) as caught:
            parameters_of(f"postgresql://{rest}")
        assert ("where the port should be" in str(caught.value)) is ("port" not in rest and "_" not in rest)


def test_what_libpq_does_not_take_is_not_shown_either(postgres_server: PostgresServer) -> None:
    for name in ("sslmode", "channel_binding", "load_balance_hosts"):
        parameters = parameters_of(f"postgresql://{USER}@/x?host={postgres_server.folder}&{name}=hunter2")
        with pytest.raises(CannotOpen) as caught:
            PostgresConnection(PostgresAccess(parameters=parameters, job_seconds=10), writes=False)
        assert name in str(caught.value)
        assert "hunter2" not in str(caught.value)


class Squatter:
    """Listens where the database server should, and asks for the password in a way of its own."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.got: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client, suppress(OSError, struct.error):
                    self._ask(client)

    def _ask(self, client: socket.socket) -> None:
        while True:
            (length,) = struct.unpack("!I", client.recv(4))
            if client.recv(length - 4)[:4] not in (b"\x04\xd2\x16/", b"\x04\xd2\x160"):
                break
            client.sendall(b"N")  # no TLS
        client.sendall(self._request)
        self.got.append(client.recv(1000))


IN_CLEAR = b"R" + struct.pack("!II", 8, 3)
MD5 = b"R" + struct.pack("!II4s", 12, 5, b"salt")


@pytest.mark.parametrize("request_", [IN_CLEAR, MD5], ids=["in clear", "md5"])
@pytest.mark.parametrize("where", ["address", "environment"])
def test_who_holds_the_port_on_this_machine_is_not_shown_the_password(
    where: str, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = ":hunter2" if where == "address" else ""
    if where == "environment":
        monkeypatch.setenv("PGPASSWORD", "hunter2")
    with closing(Squatter(request_)) as squatter:
        parameters = parameters_of(f"postgresql://u{secret}@127.0.0.1:{squatter.port}/x")
        with pytest.raises(CannotOpen, match="scram-sha-256"):
            PostgresConnection(PostgresAccess(parameters=parameters, job_seconds=10), writes=False)
    assert b"".join(squatter.got) == b""


def test_without_a_way_to_insist_a_password_goes_over_the_socket_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pq, "version", lambda: 150_000)
    with pytest.raises(AddressRefused, match="this version of libpq"):
        parameters_of("postgresql://u:p@localhost/x")
    assert parameters_of("postgresql://u:p@localhost/x?require_auth=md5")["require_auth"] == "md5"
    assert "require_auth" not in parameters_of("postgresql://u@localhost/x")
    assert "require_auth" not in parameters_of("postgresql://u:p@/x?host=/run/postgresql")


def test_an_address_without_a_host_means_the_socket_of_this_machine() -> None:
    assert parameters_of("postgresql:///x") == {"dbname": "x", "host": "/var/run/postgresql"}


@pytest.fixture
def by_password() -> Generator[str]:
    """The address of a server of this machine that asks for a password, and has it in neither way."""
    with server_of_its_own() as server:
        server.said(f"ALTER USER {USER} PASSWORD 'hunter2'")
        server.stop()
        address, port = own_address()
        server.listen(address, port, tls=None, by="scram-sha-256")
        server.start()
        yield f"postgresql://{USER}:hunter2@{address}:{port}/ostiary_template"


async def test_over_tcp_on_this_machine_a_password_is_proved(by_password: str) -> None:
    assert parameters_of(by_password)["require_auth"] == "scram-sha-256"
    async with open_postgres_store(parameters_of(by_password), clock=lambda: NOW) as store:
        await store.read(lambda db: db.fetch_one("SELECT 1 AS one"))


async def test_variables_of_the_environment_lead_nowhere_else(
    postgres_server: PostgresServer, postgres_database: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in pq.Conninfo.get_defaults():
        if known.envvar is not None and known.keyword not in (
            b"service",
            b"user",
            b"password",
            b"passfile",
            b"dbname",
        ):
            monkeypatch.setenv(known.envvar.decode(), "elsewhere")
    where = postgres_database
    address = f"postgresql://{where['user']}@/{where['dbname']}?host={where['host']}"
    async with open_postgres_store(parameters_of(address), clock=lambda: NOW) as store:
        await store.write(partial(put, key="k"))
    monkeypatch.setenv("PGSERVICE", "elsewhere")
    with pytest.raises(AddressRefused, match="PGSERVICE"):
        parameters_of(address)
