"""The recipe of docs/scale.md for two nodes: typed on machines that are folders of this one, as it stands but for addresses and ports; with a
PostgreSQL that lets in by TLS alone, and the balancers of the document in front.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from machines import Machines
from mcp_calls import request_of
from programs import ROOT, SOURCE, USER_CODE, WAIT_SECONDS, Background, until
from test_behind_proxies import proxy
from walk import Block, blocks, check_shown

from tests.free_ports import free_port
from tests.made_certificates import trusting, write_certificate
from tests.postgres_server import PostgresServer, programs

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SCALE = (ROOT / "docs" / "scale.md").read_text("utf-8")
RECIPE = SCALE.partition("## Two nodes in ten minutes\n")[2].partition("\n## ")[0]
TYPED = blocks("docs/scale.md", {})
DATABASE, BALANCER = "db.example.org", "agent.example.org"
ONE, TWO, THREE = "10.0.0.11", "10.0.0.12", "10.0.0.13"


def shown(language: str, begin: str = "") -> str:
    (found,) = (
        text
        for text in re.findall(rf"^```{language}\n(.*?)^```", RECIPE, re.DOTALL | re.MULTILINE)
        if text.startswith(begin)
    )
    return found


def typed(name: str) -> str:
    return "\n".join(TYPED[name].lines)


@dataclass(kw_only=True)
class Places:
    """Where the addresses of the document are here: on loopback, each node under an address of its own."""

    machines: Machines
    inner: int
    outer: int

    @property
    def certificate(self) -> Path:
        """Of the public address, by its own authority."""
        return self.machines.folder / "cert.pem"

    @property
    def issuer(self) -> str:
        return f"https://localhost:{self.outer}"

    def placed(self, text: str, *replaced: tuple[str, str]) -> str:
        """Every replacement has something to replace."""
        for before, after in replaced:
            assert before in text, f"{before!r} is not in\n{text}"
            text = text.replace(before, after)
        return text

    def at(self, node: str) -> str:
        return f"{loopback(int(node.rpartition('.')[2]))}:{self.inner}"

    def settings(self, node: str) -> str:
        return self.placed(
            shown("toml"),
            (f"https://{BALANCER}", self.issuer),
            ('host = "*"', f'host = "{self.at(node).partition(":")[0]}"'),
            ("port = 8420", f"port = {self.inner}"),
            ("10.0.0.10/32", "127.0.0.1/32"),
        )

    def write_settings(self, node: str) -> None:
        (self.machines.home(node) / ".config" / "ostiary" / "ostiary.toml").write_text(
            self.settings(node), "utf-8"
        )

    @contextmanager
    def serving(self, node: str) -> Generator[Background]:
        (line,) = TYPED["nodes_serve"].lines
        with self.machines.typing(node, line) as background:
            background.await_words(r"Listening on https://")
            yield background


def loopback(last: int) -> str:
    """One of this machine's own addresses, for this run alone."""
    number = os.getpid()
    return f"127.{number >> 8 & 127 | 1}.{number & 255}.{last}"


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    """The database as the document has it set up, and the first node's files."""
    found = programs()
    assert found is not None, "PostgreSQL is not installed: run scripts/peers system"
    server = PostgresServer(found)
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        try:
            server.make()
            # As Debian has it to begin with, as far as anybody but whoever administrates it is concerned: nobody comes in.
            server.rules("local all all trust\n")
            port = free_port()
            server.settings |= {"listen_addresses": loopback(9), "port": str(port)}
            server.stop()
            server.start()
            home = Path(folder)
            certificate, _ = write_certificate(home, "agent")
            where = server.parameters("postgres")
            machines = Machines(
                folder=home,
                command=SOURCE,
                owner=server.owner,
                environment={
                    "PATH": f"{home / 'bin'}:{server.bin}:{os.environ['PATH']}",
                    "PGHOST": where["host"], "PGPORT": str(port), "PGUSER": where["user"], "PGDATABASE": "postgres",
                    "SSL_CERT_FILE": str(certificate),
                },
            )  # fmt: skip
            machines.prepare()
            made = Places(machines=machines, inner=free_port(), outer=free_port())
            set_up(made, server, port)
            yield made
        finally:
            server.remove()


def set_up(places: Places, server: PostgresServer, port: int) -> None:
    machines = places.machines
    machines.type(DATABASE, places.placed(typed("nodes_database"), ("10.0.0.0/24", "127.0.0.0/8")))
    assert machines.told_systemctl() == ["restart postgresql"]
    server.stop()
    server.start()
    # Where it listens is the tests' own to say; that the other words count is seen where the nodes come in.
    assert ("listen_addresses", "*") in server.asked("SELECT name, setting FROM pg_file_settings")
    assert not (machines.home(DATABASE) / "db.key").exists()
    of_database = (f"@{DATABASE}/ostiary", f"@{DATABASE}:{port}/ostiary?hostaddr={loopback(9)}")
    machines.type(ONE, places.placed(typed("nodes_first"), of_database))
    places.write_settings(ONE)


def come_along(places: Places, node: str) -> None:
    """What is typed on a further machine, but for its last line."""
    *lines, serve = TYPED["nodes_second"].lines
    assert [serve] == TYPED["nodes_serve"].lines
    seen = places.machines.type(node, "\n".join(lines))
    check_shown(TYPED["nodes_second"], seen)
    places.write_settings(node)


@contextmanager
def nginx(places: Places) -> Generator[Path]:
    """Its settings, which it reads again after SIGHUP. It is ended with the block."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert program, "nginx is missing: run scripts/peers system"
    home = places.machines.home(BALANCER)
    certificate = "/etc/letsencrypt/live/agent.example.org"
    text = places.placed(
        shown("nginx"),
        (f"{ONE}:8420", places.at(ONE)),
        (f"{TWO}:8420", places.at(TWO)),
        ("listen 443 ssl", f"listen 127.0.0.1:{places.outer} ssl"),
        ("    listen [::]:443 ssl;\n", ""),
        (f"server_name {BALANCER}", "server_name localhost"),
        (f"{certificate}/fullchain.pem", str(places.machines.folder / "cert.pem")),
        (f"{certificate}/privkey.pem", str(places.machines.folder / "key.pem")),
        ("Host $host;", f"Host $host:{places.outer};"),
    )
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{name}_temp_path {home}/{name};\n" for name in names)
    config = home / "nginx.conf"
    config.write_text(
        f"daemon off; pid {home}/nginx.pid; error_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}{text}}}\n",
        "utf-8",
    )
    command = [program, "-p", str(home), "-e", "stderr", "-c", str(config)]
    with proxy(command, places.outer, home / "said"):
        yield config


@contextmanager
def caddy(places: Places) -> Generator[None]:
    program = shutil.which("caddy")
    assert program, "caddy is missing: run scripts/peers system"
    home, folder = places.machines.home("caddy"), places.machines.folder
    site = f"{BALANCER} {{\n"
    text = places.placed(
        shown("caddyfile"),
        (f"{ONE}:8420", places.at(ONE)),
        (f"{TWO}:8420", places.at(TWO)),
        # Its certificate would come from an authority.
        (site, f"https://localhost:{places.outer} {{\n\ttls {folder}/cert.pem {folder}/key.pem\n"),
    )
    config = home / "Caddyfile"
    config.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text, "utf-8")
    command = ["env", f"HOME={home}", program, "run", "--config", str(config), "--adapter", "caddyfile"]
    with proxy(command, places.outer, home / "said"):
        yield


def log_in(places: Places, at: str) -> str:
    """As it is typed, with the code approved at this node; what calls the tool from now on."""
    login, call = TYPED["nodes_tried"].lines
    public = (f"https://{BALANCER}", places.issuer)
    with places.machines.typing("laptop", places.placed(login, public)) as asked:
        code = asked.await_words(USER_CODE)[0]
        places.machines.type(at, f"ostiary approve {code} --yes")
        assert asked.wait() == 0, asked.said()
    return places.placed(call, public)


@contextmanager
def hello(places: Places, call: str) -> Generator[Callable[[], None]]:
    """Make the call as it is typed, and then, as often as wanted, by HTTP with the login that is there."""
    assert places.machines.type("laptop", call) == "hello\n"
    token = places.machines.type("laptop", f"ostiary token {places.issuer}").strip()
    headers, body = request_of("echo", {"text": "hello"}, {}, modern=True)
    headers["Authorization"] = f"Bearer {token}"
    with httpx2.Client(
        verify=trusting(places.certificate), trust_env=False, timeout=WAIT_SECONDS, headers=headers
    ) as web:

        def once() -> None:
            answer = web.post(f"{places.issuer}/mcp", content=body)
            assert answer.status_code == 200, answer.text
            assert '"text":"hello"' in answer.text

        yield once


def calls_of(node: Background) -> int:
    return node.said().count('"event":"tool.called"')


def both_called(one: Background, two: Background) -> bool | None:
    """By their logs, which are written a moment later."""
    return min(calls_of(one), calls_of(two)) >= 1 or None


def status_of(places: Places, node: str) -> str:
    (line,) = TYPED["nodes_status"].lines
    return places.machines.type(node, line)


def as_here(places: Places, block: str) -> Block:
    """With what the machines are called here: all of them are one."""
    lines = "\n".join(TYPED[block].shown)
    for name, node in (("one", ONE), ("two", TWO)):
        lines = places.placed(lines, (f"{name}:8420", f"{os.uname().nodename} at {places.at(node)}"))
    return Block(lines=[], shown=lines.splitlines())


def test_the_recipe_leads_to_two_nodes_behind_nginx_of_which_either_may_be_lost(places: Places) -> None:
    machines = places.machines
    with ExitStack() as stack:
        one = stack.enter_context(places.serving(ONE))
        come_along(places, TWO)
        two = stack.enter_context(places.serving(TWO))
        config = stack.enter_context(nginx(places))
        say_hello = stack.enter_context(hello(places, log_in(places, at=TWO)))
        for _ in range(4):
            say_hello()
        until("some of them to be at each, without anybody having chosen", lambda: both_called(one, two))
        until("both to know of each other", lambda: "2 ready" in status_of(places, ONE) or None)
        check_shown(as_here(places, "nodes_status"), status_of(places, ONE))
        check_streams(places)
        check_encrypted(places, nodes=2)

        one.process.kill()
        one.wait()
        before = calls_of(two)
        for _ in range(3):
            say_hello()
        until("all of them to be at the other one", lambda: calls_of(two) >= before + 3 or None)
        until("it to be missed", lambda: "1 of 2 ready" in status_of(places, TWO) or None)
        check_shown(as_here(places, "nodes_silent"), status_of(places, TWO))

        # The third one, which has what it needs from the second.
        come_along(places, THREE)
        three = stack.enter_context(places.serving(THREE))
        line = f"    server {places.at(TWO)};\n"
        text = config.read_text("utf-8")
        config.write_text(
            places.placed(text, (line, line + line.replace(places.at(TWO), places.at(THREE)))), "utf-8"
        )
        assert "(`sudo systemctl reload nginx`)" in RECIPE
        machines.type(BALANCER, "sudo systemctl reload nginx")
        assert machines.told_systemctl() == ["reload nginx"]
        os.kill(int((config.parent / "nginx.pid").read_text()), signal.SIGHUP)

        def reached() -> bool | None:
            say_hello()
            return calls_of(three) > 0 or None

        until("a call at the third", reached)

        assert two.end() == 0
        before = calls_of(three)
        for _ in range(3):
            say_hello()
        until("all of them to be at the third", lambda: calls_of(three) >= before + 3 or None)
        seen = status_of(places, THREE)
        assert "1 of 2 ready" in seen
        assert places.at(TWO) not in seen
        assert json.loads(machines.type(THREE, "ostiary verify --json"))["broken"] is None


def test_behind_caddy_a_node_that_hangs_is_sent_nobody(places: Places) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(places.serving(ONE))
        come_along(places, TWO)
        two = stack.enter_context(places.serving(TWO))
        stack.enter_context(caddy(places))
        say_hello = stack.enter_context(hello(places, log_in(places, at=ONE)))
        for _ in range(4):
            say_hello()
        until("some of them to be at each", lambda: both_called(one, two))
        check_streams(places)
        one.process.send_signal(signal.SIGSTOP)
        try:
            web = stack.enter_context(
                httpx2.Client(verify=trusting(places.certificate), trust_env=False, timeout=1)
            )

            def answered() -> bool | None:
                try:
                    return [web.get(f"{places.issuer}/readyz").status_code for _ in range(6)] == [
                        200
                    ] * 6 or None
                except httpx2.TimeoutException:
                    return None

            # Nothing tells who calls that it hangs: whoever asks it for its health finds out.
            until("it to be left out", answered)
            for _ in range(4):
                say_hello()
        finally:
            one.process.send_signal(signal.SIGCONT)


def check_streams(places: Places) -> None:
    """What a call says on the way comes while it runs."""
    token = places.machines.type("laptop", f"ostiary token {places.issuer}").strip()
    headers, body = request_of("countdown", {"from": 30, "seconds": 10}, {"progressToken": 1}, modern=True)
    headers["Authorization"] = f"Bearer {token}"
    with (
        httpx2.Client(verify=trusting(places.certificate), trust_env=False, timeout=WAIT_SECONDS) as web,
        web.stream("POST", f"{places.issuer}/mcp", content=body, headers=headers) as answer,
    ):
        assert answer.status_code == 200
        # It would be at its end in five minutes.
        first = next(line for line in answer.iter_lines() if line.startswith("data:") and "{" in line)
    assert "notifications/progress" in first


def check_encrypted(places: Places, *, nodes: int) -> None:
    """Every connection of the role, and as many of them as the document says."""
    ask = "SELECT bool_and(ssl), count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE usename = 'ostiary'"
    said = places.machines.type(DATABASE, f'sudo -u postgres psql -AtXc "{ask}"')
    assert said == f"t|{nodes * 4}\n"
    assert "four connections with the database" in " ".join(RECIPE.split())
