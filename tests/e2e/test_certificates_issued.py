"""Certificates from a real authority (pebble), for the whole program: got, renewed, revoked, and what its owner is told when that fails."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from pebble import NAME, Pebble, certificate_authority
from programs import SOURCE, WAIT_SECONDS, Program, Server, until

from tests.free_ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.slow]


@pytest.fixture
def pebble(tmp_path: Path) -> Iterator[Pebble]:
    with certificate_authority(tmp_path / "pebble") as authority:
        yield authority


@dataclass
class Site:
    """A server whose certificate comes from the authority, and what is seen of it from outside."""

    program: Program
    authority: Pebble
    server: Server

    def ask(self, *arguments: str, code: int = 0) -> Any:
        done = self.program.run(*arguments, "--json", "--data-dir", str(self.program.data_dir), code=code)
        return json.loads(done.stdout)

    def certificate(self) -> dict[str, Any]:
        found: dict[str, Any] = self.program.at_machine("status")["server"]["certificate"]
        return found

    def obtained(self, count: int = 1) -> None:
        until(
            f"certificate {count}", lambda: self.server.said().count("certificate.obtained") >= count or None
        )

    def admin(self) -> str:
        found = re.search(r'"admin": ?"(http://127.0.0.1:\d+)"', self.server.said())
        assert found is not None
        return found[1]

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.root())

    def shown(self, name: str = NAME) -> x509.Certificate:
        """What a client that checks it is shown."""
        with (
            socket.create_connection(("127.0.0.1", self.authority.tls_port), WAIT_SECONDS) as sock,
            self.trust().wrap_socket(sock, server_hostname=name) as secure,
        ):
            found = secure.getpeercert(binary_form=True)
            assert found is not None
            return x509.load_der_x509_certificate(found)

    def get(self, path: str) -> tuple[int, str]:
        with (
            socket.create_connection(("127.0.0.1", self.authority.tls_port), WAIT_SECONDS) as sock,
            self.trust().wrap_socket(sock, server_hostname=NAME) as secure,
        ):
            secure.sendall(f"GET {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while more := secure.recv(65536):
                answer += more
        return int(answer.split()[1]), answer.decode()


def settings(authority: Pebble, *, more: str = "", acme: str = "", domain: str = f'["{NAME}"]') -> str:
    return (
        f'domain = {domain}\naccept_terms = true\nhost = "127.0.0.1"\nport = {authority.tls_port}\n{more}\n'
        f'[acme]\ndirectory = "{authority.directory}"\nca_file = "{authority.ca_file}"\n{acme}\n'
        '[[server]]\nname = "main"\n[[server.agent]]\nkind = "demo"\n'
    )


@contextmanager
def serving(home: Path, authority: Pebble, **written: Any) -> Generator[Site]:
    program = Program(command=SOURCE, home=home)
    (home / "ostiary.toml").write_text(settings(authority, **written), "utf-8")
    quiet = ("--data-dir", str(program.data_dir), "--log-format", "json", "--log-level", "debug")
    with program.starting("serve", *quiet) as background:
        found = background.await_words(r"Listening on (https://[^\s\"]+)")
        server = Server(process=background.process, log=background.log, url=found[1])
        yield Site(program, authority, server)


def test_a_server_gets_its_certificate_on_the_port_that_it_serves(home: Path, pebble: Pebble) -> None:
    with serving(home, pebble) as site:
        assert site.server.url == f"https://{NAME}"
        site.obtained()
        assert site.shown().extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value.get_values_for_type(x509.DNSName) == [NAME]
        status, answer = site.get("/mcp")
        assert status == 401
        assert f'resource_metadata="https://{NAME}/.well-known/oauth-protected-resource/mcp"' in answer
        found = site.ask("certificate", "status")
        assert found["serving"]["names"] == [NAME] and found["trouble"] is None
        assert oct(os.stat(site.program.data_dir / "acme" / "certificate.pem").st_mode)[-3:] == "600"
        first = site.shown().serial_number
        assert "good for" in site.program.run("status", "--data-dir", str(site.program.data_dir)).stdout
    with serving(home, pebble) as site:
        assert site.shown().serial_number == first, "after a restart nobody is asked for another"


def test_a_certificate_is_renewed_while_callers_are_served(home: Path, tmp_path: Path) -> None:
    with (
        certificate_authority(tmp_path / "pebble", life_seconds=40) as authority,
        serving(home, authority, more="admin_port = 0", acme='profile = "default"') as site,
    ):
        site.obtained()
        first = site.shown()
        ends = httpx2.get(f"{site.admin()}/metrics", trust_env=False, timeout=WAIT_SECONDS).text
        assert f"ostiary_certificate_ends_at_seconds {first.not_valid_after_utc.timestamp():.0f}" in ends
        site.obtained(2)
        second = site.shown()
        assert first.serial_number != second.serial_number
        assert second.not_valid_before_utc < first.not_valid_after_utc, "there was one at all times"
        orders = (home / "data" / "acme" / "order.json").read_bytes()
        assert orders == b"null"


def test_several_names_are_proved_on_both_ports_and_http_leads_to_https(home: Path, pebble: Pebble) -> None:
    names = f'["{NAME}", "mcp.example.org"]'
    more = f"http_port = {pebble.http_port}\nadmin_port = 0"
    with serving(home, pebble, domain=names, more=more) as site:
        site.obtained()
        site.shown("mcp.example.org")
        plain = f"http://127.0.0.1:{pebble.http_port}"
        with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as client:
            for host, target in (
                (NAME, NAME),
                ("mcp.example.org", "mcp.example.org"),
                ("evil.example", NAME),
            ):
                led = client.get(f"{plain}/signin?next=%2Fmcp", headers={"host": host})
                assert (led.status_code, led.headers["location"]) == (
                    308,
                    f"https://{target}/signin?next=%2Fmcp",
                )
            for refused in (
                client.post(f"{plain}/mcp", json={}),
                client.get(f"{plain}/mcp", headers={"authorization": "Bearer x"}),
            ):
                assert refused.status_code == 403
                assert f"use https://{NAME}" in refused.text
            assert client.get(f"{plain}/.well-known/acme-challenge/guess").status_code == 404


def test_where_port_443_leads_elsewhere_the_name_is_proved_on_port_80(home: Path, pebble: Pebble) -> None:
    program = Program(command=SOURCE, home=home)
    written = settings(pebble, more=f"http_port = {pebble.http_port}")
    # Where the authority looks for TLS, there is nobody.
    text = written.replace(f"port = {pebble.tls_port}\n", f"port = {free_port()}\n", 1)
    (home / "ostiary.toml").write_text(text, "utf-8")
    with program.starting("serve", "--data-dir", str(program.data_dir), "--log-format", "json") as server:
        server.await_words("certificate.failed")
        program.run("certificate", "renew", "--data-dir", str(program.data_dir))
        server.await_words(r'"way": ?"http-01"')
        server.await_words("certificate.obtained")


def test_what_was_compromised_is_replaced_by_another_key_and_revoked(home: Path, pebble: Pebble) -> None:
    with serving(home, pebble) as site:
        site.obtained()
        first = site.shown()
        site.program.run(
            "certificate",
            "revoke",
            "--reason",
            "key-compromise",
            "--yes",
            "--data-dir",
            str(site.program.data_dir),
        )
        second = site.shown()
        assert first.serial_number != second.serial_number
        assert first.public_key() != second.public_key()
        assert pebble.status_of(f"{first.serial_number:x}")["Status"] == "Revoked"
        assert pebble.status_of(f"{second.serial_number:x}")["Status"] == "Valid"
        events = [row["event"] for row in site.ask("audit")]
        assert "certificate.revocation_asked" in events
        done = site.ask("certificate", "renew")
        assert done["done"] is True
        assert site.shown().serial_number != second.serial_number


def test_a_name_that_leads_nowhere_is_told_of_everywhere_and_served_once_it_does(
    home: Path, pebble: Pebble
) -> None:
    pebble.leads_nowhere(NAME)
    with serving(home, pebble, more="admin_port = 0") as site:
        site.server.await_words("certificate.failed")
        with pytest.raises((ssl.SSLError, OSError)):
            site.shown()
        found = site.ask("certificate", "status", code=1)
        assert found["serving"] is None and NAME in found["trouble"]["words"]
        words = found["trouble"]["words"]
        status = site.program.run("status", "--data-dir", str(site.program.data_dir)).stdout
        assert "none yet for" in status and words[:60] in status
        doctor = site.program.run("doctor", "--data-dir", str(site.program.data_dir), code=1).stdout
        assert words[:60] in doctor
        ready = httpx2.get(f"{site.admin()}/readyz", trust_env=False, timeout=WAIT_SECONDS)
        assert ready.status_code == 200, "else nobody would be led here who could prove the name"
        assert words[:60] in ready.text
        pebble.leads_again(NAME)
        site.program.run("certificate", "renew", "--data-dir", str(site.program.data_dir))
        assert site.get("/mcp")[0] == 401


def test_the_old_certificate_is_served_while_the_authority_is_away(home: Path, tmp_path: Path) -> None:
    with certificate_authority(tmp_path / "first") as authority:
        with serving(home, authority) as site:
            site.obtained()
            first, trust = site.shown().serial_number, site.trust()
        kept = authority
    with serving(home, kept) as site:
        failed = site.program.run("certificate", "renew", "--data-dir", str(site.program.data_dir), code=1)
        assert "cannot be reached: connection refused" in failed.stderr
        with (
            socket.create_connection(("127.0.0.1", kept.tls_port), WAIT_SECONDS) as sock,
            trust.wrap_socket(sock, server_hostname=NAME) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
            assert shown is not None
            assert x509.load_der_x509_certificate(shown).serial_number == first


def test_an_authority_that_is_away_at_the_very_start_is_waited_for(home: Path, tmp_path: Path) -> None:
    with certificate_authority(tmp_path / "first") as authority:
        gone = authority
    with serving(home, gone) as site:
        site.server.await_words("certificate.failed")
        assert "connection refused" in site.certificate()["trouble"]["words"]
        assert site.program.at_machine("status")["server"]["origin"] == f"https://{NAME}"


def test_an_authority_with_customers_a_short_profile_and_many_bad_numbers(home: Path, tmp_path: Path) -> None:
    key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
    (home / "eab").write_text(key, "ascii")
    acme = f'eab_key_id = "kid-1"\neab_key = "file:{home}/eab"\nprofile = "shortlived"\ncontact = ["mailto:ann@example.org"]\n'
    with (
        certificate_authority(tmp_path / "pebble", reject_nonces=20, eab={"kid-1": key}) as authority,
        serving(home, authority, acme=acme) as site,
    ):
        site.obtained()
        shown = site.shown()
        assert (shown.not_valid_after_utc - shown.not_valid_before_utc).days in (5, 6)
        found = site.certificate()
        life = found["serving"]["not_after"] - found["serving"]["not_before"]
        assert found["renews_at"] < found["serving"]["not_after"] - life / 3
        assert key not in site.server.said()


def test_an_order_that_was_cut_off_is_finished_by_the_next_start(home: Path, pebble: Pebble) -> None:
    pebble.leads(NAME, "127.0.0.9")  # where nobody is: the authority tries for a while
    with serving(home, pebble) as site:
        until("an order", lambda: (site.program.data_dir / "acme" / "order.json").exists() or None)
        site.server.process.kill()
        site.server.process.wait()
    pebble.leads(NAME, "127.0.0.1")
    with serving(home, pebble) as site:
        until("an attempt", lambda: site.certificate()["attempts"] or None)
        found = site.certificate()
        if found["serving"] is None:  # the authority had looked in the meantime, and the order was over
            site.ask("certificate", "renew")
        site.shown()
