"""Whose certificate a database server shows that was not accepted (server/cluster/postgres/postgres_certificate.py), in words."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from server.cluster.postgres.postgres_certificate import shown_certificate
from tests.made_certificates import Authority, write_certificate

SAYS_TLS, SAYS_NONE = b"S", b"N"


@contextmanager
def database_server(files: tuple[Path, Path] | None, *, says: bytes = SAYS_TLS) -> Generator[str]:
    """Its port. It speaks with one client, up to TLS."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            assert len(client.recv(8)) == 8
            client.sendall(says)
            if files is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*files)
                context.wrap_socket(client, server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield str(listener.getsockname()[1])
    finally:
        thread.join()
        listener.close()


def test_it_says_for_whom_it_is_and_from_whom(tmp_path: Path) -> None:
    with database_server(Authority(tmp_path).issue("db.example.test")) as port:
        said = shown_certificate({"host": "db.example.test", "hostaddr": "127.0.0.1", "port": port})
    assert "for db.example.test, from" in said and '"an authority of the tests"' in said
    assert "ran out" not in said


def test_one_that_ran_out_and_that_nobody_signed_says_so(tmp_path: Path) -> None:
    with database_server(write_certificate(tmp_path, "mine", host="db", ends_in_hours=-1)) as port:
        said = shown_certificate({"host": "127.0.0.1", "port": port})
    assert "for db, signed by itself" in said and "ran out" in said


def test_of_many_names_the_first_three_are_said(tmp_path: Path) -> None:
    with database_server(write_certificate(tmp_path, "mine", host="a", others=("b", "c", "d"))) as port:
        assert "for a, b, c, signed" in shown_certificate({"host": "127.0.0.1", "port": port})


def test_nothing_is_said_of_a_server_that_shows_none_and_the_next_is_asked(tmp_path: Path) -> None:
    with database_server(None, says=SAYS_NONE) as bare:
        assert shown_certificate({"host": "127.0.0.1", "port": bare}) == ""
    with (
        database_server(None, says=SAYS_NONE) as bare,
        database_server(write_certificate(tmp_path, "mine", host="second")) as port,
    ):
        parameters = {"host": "one,two", "hostaddr": "127.0.0.1,127.0.0.1", "port": f"{bare},{port}"}
        assert "for second," in shown_certificate(parameters)
