"""The servers that are measured: how each is started on its own core, and what the kernel says of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 20.0  # a slow machine under load; a server that needs longer has failed
STOP_SECONDS = 15.0
TICK = os.sysconf("SC_CLK_TCK")

# Ostiary's own limits are for the open network, by address. Here thousands of connections come from one.
SETTINGS = {
    "OSTIARY_MAX_CONNECTIONS": "16384",
    "OSTIARY_MAX_CONNECTIONS_PER_IP": "16384",
}


class Broken(Exception):
    """A measurement that cannot be believed; the text says why."""


class Cores(NamedTuple):
    server: int
    load: int  # and whatever else the server talks to


@dataclass(frozen=True, kw_only=True)
class Target:
    """How a server is started, and which tool of it says the same again."""

    name: str
    command: tuple[str, ...]
    tool: str = "echo"
    argument: str = "text"


@dataclass(frozen=True, kw_only=True)
class Running:
    target: Target
    pid: int
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        """User and system time of the process with all its threads, and of nothing that it has started."""
        return _cpu_seconds(self.pid)

    def children_cpu_seconds(self) -> float:
        return sum(_cpu_seconds(pid) for pid in _children(self.pid))

    def resident_kib(self) -> int:
        return _resident_kib(self.pid)

    def peak_kib(self) -> int:
        """The most resident memory that it has ever had."""
        return _status_kib(self.pid, "VmHWM")

    def children_resident_kib(self) -> int:
        return sum(_resident_kib(pid) for pid in _children(self.pid))


def ostiary_source() -> tuple[str, ...]:
    return (str(ROOT / ".venvs/runtime/bin/python"), "-P", "-m", "server")


def seal_database(*where: str) -> None:
    """Have what was written by hand into the database of a stopped server count."""
    sealing = (*ostiary_source(), "store", "seal", "--json", *where)
    shown = json.loads(subprocess.run(sealing, check=True, stdout=subprocess.PIPE).stdout)
    subprocess.run((*sealing, "--yes", shown["digest"]), check=True, stdout=subprocess.DEVNULL)


def ostiary(folder: Path, *, auth: str) -> Target:
    """The demo agent, with everything it writes in `folder`."""
    return Target(name="Ostiary", command=_serving(folder, auth=auth))


def ostiary_python_file(folder: Path) -> Target:
    """An agent in a Python file, run by the interpreter that runs the server."""
    script = Path(__file__).with_name("echo_agent.py")
    settings = folder / "ostiary.toml"
    settings.write_text(
        f'[[server]]\n[[server.agent]]\nkind = "python"\nfile = "{script}"\npython = "{ostiary_source()[0]}"\n',
        "utf-8",
    )
    return Target(name="Ostiary, Python file", command=(*_serving(folder), "--config", str(settings)))


def ostiary_priced(folder: Path) -> Target:
    """The demo agent again, but each call costs something."""
    settings = folder / "ostiary.toml"
    settings.write_text(
        '[[server]]\nname = "bench"\n[[server.agent]]\nkind = "demo"\n[server.tools.echo]\nprice = "$0.000001"\n',
        "utf-8",
    )
    command = (*_serving(folder, auth="oauth"), "--config", str(settings))
    return Target(name="Ostiary, priced", command=command)


def ostiary_chat(folder: Path, upstream: Running) -> Target:
    """A chat agent in front of `chat_upstream.py`."""
    settings = folder / "ostiary.toml"
    settings.write_text(
        f'[[server]]\n[[server.agent]]\nkind = "chat"\nurl = "{upstream.url}/"\nagent = "bench"\ntool_name = "ask"\n',
        "utf-8",
    )
    command = (*_serving(folder), "--config", str(settings))
    return Target(name="Ostiary, chat", command=command, tool="ask", argument="message")


def ostiary_gateway(folder: Path, upstream: Running) -> Target:
    """An MCP server in front of `mcp_upstream.py`."""
    settings = folder / "ostiary.toml"
    settings.write_text(
        f'[[server]]\n[[server.agent]]\nkind = "mcp"\ntrust = "first-use"\nurl = "{upstream.url}/mcp"\n',
        "utf-8",
    )
    command = (*_serving(folder), "--config", str(settings))
    return Target(name="Ostiary, MCP upstream", command=command)


def mcp_upstream() -> Target:
    script = Path(__file__).with_name("mcp_upstream.py")
    return Target(name="the MCP upstream", command=(ostiary_source()[0], "-P", str(script)))


def chat_upstream() -> Target:
    script = Path(__file__).with_name("chat_upstream.py")
    return Target(name="the chat upstream", command=(ostiary_source()[0], "-P", str(script)))


def _serving(folder: Path, *, auth: str = "none") -> tuple[str, ...]:
    options = ("--port", "0", "--data-dir", str(folder / "data"), "--auth", auth, "--log-level", "warning")
    return (*ostiary_source(), "serve", *options)


def environment(home: Path) -> dict[str, str]:
    """No configuration of the person who runs the bench takes part."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    homes = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
    }
    return {**kept, **homes, **SETTINGS, "NODE_ENV": "production"}


@contextmanager
def running(target: Target, *, core: int) -> Generator[Running]:
    """Start the server on one core, wait until it listens, and stop it politely afterwards."""
    with tempfile.TemporaryDirectory(prefix="ostiary-bench-") as folder:
        home = Path(folder)
        log = home / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ("taskset", "-c", str(core), *target.command),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=home, env=environment(home),
            )  # fmt: skip
        try:
            host, port = _listening(process, log, target.name)
            yield Running(target=target, pid=process.pid, host=host, port=port)
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _listening(process: subprocess.Popen[bytes], log: Path, name: str) -> tuple[str, int]:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(
            r"Listening on http://([\d.]+|\[::1\]|localhost):(\d+)", log.read_text("utf-8", "replace")
        )
        if found:
            return found[1].strip("[]"), int(found[2])
        time.sleep(0.02)
    raise Broken(f"{name} did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def idle_seconds(core: int) -> float:
    """How long this core has had nothing to do since the machine started."""
    found = re.search(rf"^cpu{core} (.+)$", Path("/proc/stat").read_text("ascii"), re.MULTILINE)
    if not found:
        raise Broken(f"the kernel knows no core {core}")
    return int(found[1].split()[3]) / TICK


def _cpu_seconds(pid: int) -> float:
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICK


def _fields(pid: int) -> list[str]:
    """What /proc says of a process after its name, which may have spaces in it: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()


def _children(pid: int) -> list[int]:
    """What this process has started, and what that has started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_fields(int(entry.name))[1])
            except OSError:  # it has ended in the meantime
                continue
    found = [child for child, parent in parents.items() if parent == pid]
    for child in found:
        found += [further for further, parent in parents.items() if parent == child]
    return found


def sockets_of(pid: int) -> int:
    """All descriptors, for whoever may only count them: the server shows them to root alone."""
    folder, sockets = Path(f"/proc/{pid}/fd"), 0
    try:
        entries = list(folder.iterdir())
    except PermissionError:
        return folder.stat().st_size
    for entry in entries:
        try:
            sockets += entry.readlink().name.startswith("socket:")
        except OSError:
            continue
    return sockets


def _resident_kib(pid: int) -> int:
    return _status_kib(pid, "VmRSS")


def _status_kib(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    if not found:
        raise Broken(f"process {pid} has no resident memory: it has ended")
    return int(found[1])
