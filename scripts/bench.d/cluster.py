"""Several servers on one database, each on a machine of its own as far as they know, and callers who come to any of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from buyers import NETWORK, PAY_TO
from caller import Answer, Caller, Lost, Unheard
from databases import Databases
from durability_clients import is_not_now
from network_faults import Cables
from restartable_server import Mortal, lasting_port

UPSTREAM_PORT = 19_700
ANSWER_SECONDS = 25.0  # longer than a node may take to say that it cannot
SETTINGS = """
store = "file:{home}/address"
store_ca = "{authority}"
issuer = "https://ostiary.test"
key_file = "{common}/master.key"
trusted_proxies = ["{trusted}"]
allowed_hosts = ["{host}:{port}"]
drain_seconds = 2
{workers}
[limits]
address = ""
caller = ""

[payments]
pay_to = "{pay_to}"
networks = ["{network}"]
[[payments.facilitator]]
url = "{facilitator}"
timeout_seconds = 5
settle_timeout_seconds = 5

[[server]]
name = "main"
anonymous_pay = true
[server.tools.sold]
price = "$0.01"
[[server.agent]]
kind = "demo"
[[server.agent]]
kind = "python"
file = "{scripts}/mixed_agent.py"
python = "{python}"
environment = {{ OSTIARY_NOTES = "{notes}" }}
[[server.agent]]
kind = "python"
file = "{scripts}/sold_agent.py"
python = "{python}"
environment = {{ OSTIARY_JOURNAL = "{journal}" }}
[[server.agent]]
kind = "mcp"
url = "http://127.0.0.1:{upstream_port}/mcp"
trust = "first-use"
tools = ["slow"]
"""


class Node(Mortal):
    """One of them, with all that it has started."""

    def __init__(
        self, command: Sequence[str], home: Path, settings: str, *, name: str, workers: int, host: str, port: int, inside: Sequence[str]
    ) -> None:  # fmt: skip
        super().__init__(command, home, settings, host=host, port=port, inside=inside)
        self.name, self.workers = name, workers

    def kill(self) -> None:
        """As when its machine is switched off: nobody of it has time for a last word."""
        if self._process is None:
            return
        for pid in self.freeze():
            _send(pid, signal.SIGKILL)
        super().kill()

    def freeze(self) -> list[int]:
        """All of it, also what is started meanwhile."""
        frozen: list[int] = []
        while more := [pid for pid in family(self.pid) if pid not in frozen]:
            for pid in more:
                _send(pid, signal.SIGSTOP)
            frozen += more
        return frozen

    def thaw(self) -> None:
        for pid in reversed(family(self.pid)):
            _send(pid, signal.SIGCONT)

    def worker_pids(self) -> list[int]:
        return _children().get(self.pid, []) if self.workers > 1 else []


class Tally:
    """What was asked, and what came of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counted: dict[str, Counter[str]] = {}

    def note(self, kind: str, outcome: str) -> None:
        with self._lock:
            self.counted.setdefault(kind, Counter())[outcome] += 1


class RovingCaller(Caller):
    """Each request goes to another of these, as a load balancer without stickiness sends it."""

    def __init__(self, nodes: Sequence[Node], dice: Random, tally: Tally) -> None:
        super().__init__("", 0, dice)
        self._tally = tally
        self._callers = [Caller(node.host, node.port, dice, seconds=ANSWER_SECONDS) for node in nodes]

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        kind = kind_of(path, headers, body)
        caller = self.dice.choice(self._callers)
        try:
            answer = caller.ask(method, path, {"X-Forwarded-Proto": "https", **headers}, body)
        except Unheard:
            self._tally.note(kind, "nobody there")
            raise
        except Lost:
            self._tally.note(kind, "connection lost")
            raise
        self._tally.note(kind, outcome_of(answer))
        return answer


def outcome_of(answer: Answer) -> str:
    if answer.status == 200:
        return "refused in words" if is_not_now(answer) else "acknowledged"
    return "refused, 503" if answer.status == 503 else f"answered {answer.status}"


def kind_of(path: str, headers: Mapping[str, str], body: bytes) -> str:
    match path:
        case "/mcp":
            method, name = headers["Mcp-Method"], headers.get("Mcp-Name", "")
            return f"call of {name}" if method == "tools/call" else method
        case "/token":
            return "refresh" if b"grant_type=refresh" in body else "login"
        case _:
            return {"/device_authorization": "login, its code", "/revoke": "revocation"}.get(path, path)


class Gate:
    """Holds everybody up who has nothing under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._waiting = 0

    def go_through(self) -> None:
        with self._changed:
            if not self._closed:
                return
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._closed)
            self._waiting -= 1

    @contextmanager
    def closed(self, count: int, seconds: float) -> Generator[bool]:
        """Whether all of so many wait at it."""
        with self._changed:
            self._closed = True
            found = self._changed.wait_for(lambda: self._waiting == count, seconds)
        try:
            yield found
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()


class Entrance:
    """A `durability_clients.Door`: to any of these nodes."""

    def __init__(self, nodes: Sequence[Node], dice: Random, tally: Tally) -> None:
        self.nodes, self.tally, self._dice = nodes, tally, dice

    @property
    def data(self) -> Path:
        return self._dice.choice(self.nodes).data

    def caller(self, dice: Random) -> Caller:
        return RovingCaller(self.nodes, dice, self.tally)


class Cluster:
    def __init__(
        self, command: Sequence[str], home: Path, databases: Databases, cables: Cables, workers: Mapping[str, int], facilitator: str
    ) -> None:  # fmt: skip
        """`workers`: how many each node has, by its name. `facilitator`: where each of them finds it."""
        # A folder of the agents' own: beside keys and settings they may make nothing.
        written = home / "written"
        written.mkdir()
        self.notes, self.journal = written / "notes", written / "journal"
        self._upstreams: list[subprocess.Popen[bytes]] = []
        self.nodes: list[Node] = []
        scripts = Path(__file__).parent
        for number, (name, count) in enumerate(workers.items()):
            folder = home / name
            folder.mkdir()
            address = folder / "address"
            address.touch(0o600)
            address.write_text(cables.address(name, folder, databases.folders) + "\n", "utf-8")
            port = lasting_port()
            settings = SETTINGS.format(
                home=folder, common=home, authority=databases.authority, trusted=cables.trusted, host=cables.host(name), port=port, scripts=scripts,
                python=sys.executable, workers=f"workers = {count}" if count > 1 else "", upstream_port=UPSTREAM_PORT + number,
                pay_to=PAY_TO, network=NETWORK, facilitator=facilitator, notes=self.notes, journal=self.journal,
            )  # fmt: skip
            inside = cables.inside(name)
            self._upstreams.append(
                subprocess.Popen(
                    (
                        *inside,
                        sys.executable,
                        "-P",
                        str(scripts / "mcp_upstream.py"),
                        str(UPSTREAM_PORT + number),
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            )
            self.nodes.append(
                Node(
                    command,
                    folder,
                    settings,
                    name=name,
                    workers=count,
                    host=cables.host(name),
                    port=port,
                    inside=inside,
                )
            )

    def start(self) -> None:
        for node in self.nodes:  # one after the other: the first one makes the tables, and the key
            node.start()
            node.await_ready()

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        for upstream in self._upstreams:
            upstream.kill()
            upstream.wait()


def family(pid: int) -> list[int]:
    """It, and all that it has started and that is still there, eldest first."""
    children, found = _children(), [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
                if fields[0] != "Z":
                    found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
