"""One certificate from a real authority (pebble) for several processes: workers of one parent, and nodes of which the authority meets the one
that did not ask.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from pebble import NAME, Pebble, certificate_authority
from programs import SOURCE, WAIT_SECONDS, Background, Program, until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

NEIGHBOUR = "127.0.0.2"  # as another machine, where the name leads


@pytest.fixture
def pebble(tmp_path: Path) -> Generator[Pebble]:
    with certificate_authority(tmp_path / "pebble") as authority:
        yield authority


def program_at(
    home: Path, authority: Pebble, where: Mapping[str, str], *, host: str = "127.0.0.1", more: str = ""
) -> Program:
    home.mkdir(exist_ok=True)
    (home / "address").write_text(
        f"postgresql://{where['user']}:x@/{where['dbname']}?host={where['host']}\n", "utf-8"
    )
    (home / "ostiary.toml").write_text(
        f'store = "file:address"\ndomain = ["{NAME}"]\naccept_terms = true\nhost = "{host}"\nport = {authority.tls_port}\n{more}\n'
        f'[acme]\ndirectory = "{authority.directory}"\nca_file = "{authority.ca_file}"\n'
        '[[server]]\nname = "main"\n[[server.agent]]\nkind = "demo"\n',
        "utf-8",
    )
    return Program(command=SOURCE, home=home)


@contextmanager
def serving(program: Program) -> Generator[Background]:
    quiet = ("--data-dir", str(program.data_dir), "--log-format", "json", "--log-level", "debug")
    with program.starting("serve", *quiet) as background:
        background.await_words(r'"event":"server.started"')
        yield background


def shown(authority: Pebble, host: str) -> str:
    """The serial number of what a client is shown that checks it."""
    trust = ssl.create_default_context(cadata=authority.root())
    with (
        socket.create_connection((host, authority.tls_port), WAIT_SECONDS) as sock,
        trust.wrap_socket(sock, server_hostname=NAME) as secure,
    ):
        found = secure.getpeercert(binary_form=True)
        assert found is not None
        return f"{x509.load_der_x509_certificate(found).serial_number:x}"


def ask(program: Program, *arguments: str) -> Any:
    done = program.run("certificate", *arguments, "--json", "--data-dir", str(program.data_dir))
    return json.loads(done.stdout)


def said(background: Background, event: str) -> list[dict[str, Any]]:
    lines = [line for line in background.said().splitlines() if f'"event":"{event}"' in line]
    return [json.loads(line) for line in lines]


def test_workers_have_one_certificate_and_any_of_them_proves_the_name(
    home: Path, pebble: Pebble, postgres_database: dict[str, str]
) -> None:
    program = program_at(home, pebble, postgres_database, more="workers = 2")
    with serving(program) as server:
        (led,) = until("one that leads", lambda: said(server, "certificate.led") or None)
        server.await_words("certificate.obtained")
        first = shown(pebble, "127.0.0.1")
        found = ask(program, "renew")
        second = found["certificate"]["serving"]["serial"]
        assert found["done"] and second != first

        def taken() -> list[dict[str, Any]]:
            return [each for each in said(server, "certificate.taken_over") if each["serial"] == second]

        (other,) = until("the other worker has the second", lambda: taken() or None)
        assert other["worker"] == 3 - led["worker"]
        assert {shown(pebble, "127.0.0.1") for _ in range(8)} == {second}
        assert len(said(server, "certificate.obtained")) == 2
        assert not (program.data_dir / "acme").exists()
        assert "PRIVATE KEY" not in server.said()


def test_the_authority_may_come_to_another_node_than_the_one_that_asked_it(
    home: Path, pebble: Pebble, postgres_database: dict[str, str]
) -> None:
    pebble.leads(NAME, NEIGHBOUR)
    key = f'key_file = "{home}/master.key"'
    one = program_at(home / "one", pebble, postgres_database, more=key)
    two = program_at(home / "two", pebble, postgres_database, host=NEIGHBOUR, more=key)
    with serving(one) as a:
        until("the first node leads", lambda: said(a, "certificate.led") or None)
        until("nobody was met", lambda: said(a, "certificate.failed") or None)
        with serving(two) as b:
            assert ask(two, "renew")["done"], (
                "asked for at the other node, got by the first, proved at the other"
            )
            assert said(b, "certificate.led") == [] and len(said(a, "certificate.obtained")) == 1
            until("the second node has it", lambda: said(b, "certificate.taken_over") or None)
            assert shown(pebble, NEIGHBOUR) == shown(pebble, "127.0.0.1")
            a.process.kill()
            a.process.wait()
            until("the second node leads", lambda: said(b, "certificate.led") or None)
            assert ask(two, "renew")["done"]
            assert len(said(b, "certificate.obtained")) == 1
            last = shown(pebble, NEIGHBOUR)
        with serving(one) as again:
            assert shown(pebble, "127.0.0.1") == last, "before anybody connects"
            assert said(again, "certificate.wanted") == []


def test_a_certificate_of_nodes_is_served_by_the_one_server_that_their_rows_are_moved_back_to(
    home: Path, pebble: Pebble, postgres_database: dict[str, str]
) -> None:
    program = program_at(home / "a", pebble, postgres_database)
    with serving(program) as server:
        server.await_words("certificate.obtained")
        serial = shown(pebble, "127.0.0.1")
    assert not (program.data_dir / "acme").exists()
    program.run("store", "copy", "--to", "data-dir", "--data-dir", str(program.data_dir))
    settings = home / "a" / "ostiary.toml"
    settings.write_text(settings.read_text("utf-8").replace('store = "file:address"\n', ""), "utf-8")
    with serving(program) as alone:
        assert shown(pebble, "127.0.0.1") == serial, "before anybody connects"
        assert said(alone, "certificate.wanted") == []
        assert ask(program, "renew")["done"], "with the same account"
        assert shown(pebble, "127.0.0.1") != serial
