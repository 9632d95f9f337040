"""Clients of the handshake era that take a 404 for the end of everything, and servers that end under them: they go on, and begin no
second session."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from programs import NODE_BIN, ROOT, SOURCE, WAIT_SECONDS, Program, Server, needed, until

from tests.free_ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.slow]

FORGETFUL = Path(__file__).with_name("forgetful_server.py")
PEERS = ROOT / "tests" / "peers"


def python_sdk(endpoint: str) -> Sequence[str]:
    python = needed(ROOT / ".venvs" / "peers" / "bin" / "python", "scripts/peers")
    return (str(python), str(PEERS / "python_sdk_stays.py"), endpoint, "legacy")


def python_sdk_before(endpoint: str) -> Sequence[str]:
    python = needed(ROOT / ".venvs" / "sdk1" / "bin" / "python", "scripts/peers")
    return (str(python), str(PEERS / "python_sdk1_stays.py"), endpoint)


def typescript_sdk(generation: str) -> Callable[[str], Sequence[str]]:
    def command(endpoint: str) -> Sequence[str]:
        node = needed(NODE_BIN / "node", "scripts/peers")
        return (str(node), str(PEERS / "ts_stays.mjs"), generation, endpoint)

    return command


def gemini_cli(endpoint: str) -> Sequence[str]:
    node = needed(NODE_BIN / "node", "scripts/peers")
    needed(PEERS / "gemini_cli" / "node_modules", "scripts/peers")
    return (str(node), str(PEERS / "gemini_cli_stays.mjs"), endpoint)


CLIENTS = {
    "python-1": python_sdk_before,
    "python-2": python_sdk,
    "ts-1": typescript_sdk("v1"),
    "ts-2": typescript_sdk("v2"),
    "gemini-cli": gemini_cli,
}
SILENT_LEAVERS = {"gemini-cli"}  # it ends, and says so to nobody


@dataclass
class Staying:
    process: subprocess.Popen[str]

    def echo(self, words: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(WAIT_SECONDS) == 0


@contextmanager
def staying(program: Program, command: Sequence[str], token: str) -> Generator[Staying]:
    with (program.home / "client-says").open("wb") as errors:
        process = subprocess.Popen(
            command,
            env=program.environment(MCP_TOKEN=token),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        try:
            yield Staying(process)
        finally:
            process.kill()


class House:
    """A server that comes back under its old address."""

    def __init__(self, program: Program, stack: ExitStack) -> None:
        self._port = free_port()
        self.program = program
        self._stack = stack
        self._servers = [self._start()]

    def _start(self) -> Server:
        return self._stack.enter_context(self.program.serving("--port", str(self._port)))

    @property
    def server(self) -> Server:
        return self._servers[-1]

    def restart(self, number: int) -> None:
        self.server.end(number)
        self._servers.append(self._start())

    def forget(self) -> None:
        """As after half an hour without a word."""
        order = self.program.home / "forget"
        order.touch()
        until("the sessions to be put away", lambda: None if order.exists() else True)

    def logged_since_the_kill(self, event: str) -> int:
        """With the first server its last lines went."""
        self.server.end()
        return sum(server.said().count(f'"event":"{event}"') for server in self._servers[1:])

    def ended(self) -> int:
        with closing(sqlite3.connect(self.program.data_dir / "ostiary.db")) as database:
            return database.execute("SELECT count(*) FROM ended_sessions").fetchone()[0]


@pytest.fixture
def house(home: Path) -> Generator[House]:
    with ExitStack() as stack:
        yield House(Program(command=SOURCE, script=FORGETFUL, home=home), stack)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_goes_on_in_its_session_whatever_becomes_of_the_server(house: House, client: str) -> None:
    program = house.program
    program.log_in(house.server)
    token = program.run("token", house.server.endpoint).stdout.strip()
    with staying(program, CLIENTS[client](house.server.endpoint), token) as one:
        assert one.echo("first") == {"text": "first"}
        house.restart(signal.SIGKILL)
        assert one.echo("after a kill") == {"text": "after a kill"}
        house.restart(signal.SIGTERM)
        assert one.echo("after a restart") == {"text": "after a restart"}
        house.forget()
        assert one.echo("after a silence") == {"text": "after a silence"}
        one.leave()
    assert house.ended() == (client not in SILENT_LEAVERS), "it says that it leaves"
    assert house.logged_since_the_kill("session.resumed") >= 3
    assert house.logged_since_the_kill("session.began") == 0, "it never had to begin again"
