"""The servers that are measured: how each is started on its own core, and what the kernel says of it."""

from __future__ import annotations

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

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 20.0  # a slow machine under load; a server that needs longer has failed
STOP_SECONDS = 15.0
TICK = os.sysconf("SC_CLK_TCK")

# Ostiary's own limits are for the open network, by address. Here thousands of connections come from one.
SETTINGS = {
    "OSTIARY_MAX_CONNECTIONS": "8192",
    "OSTIARY_MAX_CONNECTIONS_PER_IP": "8192",
}


class Broken(Exception):
    """A measurement that cannot be believed; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Target:
    name: str
    command: tuple[str, ...]
    tool: str = "echo"
    argument: str = "text"


@dataclass(frozen=True, kw_only=True)
class Running:
    pid: int
    host: str
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        """User and system time of the process with all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def resident_kib(self) -> int:
        found = re.search(
            r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text("ascii"), re.MULTILINE
        )
        if not found:
            raise Broken(f"process {self.pid} has no resident memory: it has ended")
        return int(found[1])


def ostiary_source() -> tuple[str, ...]:
    return (str(ROOT / ".venvs/runtime/bin/python"), "-P", "-m", "server")


def ostiary(*, auth: str, data_dir: Path) -> Target:
    options = ("serve", "--port", "0", "--data-dir", str(data_dir), "--auth", auth, "--log-level", "warning")
    return Target(name=f"Ostiary, {auth}", command=(*ostiary_source(), *options))


def python_sdk() -> Target:
    script = str(ROOT / "tests/peers/python_sdk_server.py")
    return Target(name="Python SDK", command=(str(ROOT / ".venvs/peers/bin/python"), script))


def typescript_sdk() -> Target:
    script = str(ROOT / "tests/peers/ts_sdk_server.mjs")
    return Target(name="TypeScript SDK", command=(str(ROOT / "tests/peers/node_modules/.bin/node"), script))


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
            yield Running(pid=process.pid, host=host, port=port, log=log)
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
