"""A server that is killed and comes back: always at the same address, and on the same data directory."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from caller import Caller
from targets import START_SECONDS, STOP_SECONDS, Broken, Running, Target, environment
from wire import fetch_status

ALIVE = "/.well-known/oauth-authorization-server"  # what a client asks first
HOST = "127.0.0.1"
# Not of those that the kernel lends to whoever connects somewhere: while the server is down, nobody else shall get its port.
PORTS = range(20_000, 32_000)


class Mortal:
    """`command` is the program; `settings` what its file says besides where everything lies. `inside`: what starts a program where it is to
    run, if that is not here, and `host` its address there.
    """

    def __init__(
        self,
        command: Sequence[str],
        home: Path,
        settings: str,
        *,
        log_level: str = "warning",
        host: str = HOST,
        port: int = 0,
        inside: Sequence[str] = (),
    ) -> None:
        self.data = home / "data"
        self.log = home / "log"
        self.host = host
        self.port, self.admin_port = port or lasting_port(), lasting_port()
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        file = home / "ostiary.toml"
        file.write_text(settings, "utf-8")
        self.command = (
            *inside, *command, "serve", "--config", str(file), "--host", host, "--port", str(self.port),
            "--admin-port", str(self.admin_port), "--data-dir", str(self.data),
            "--log-level", log_level, "--log-format", "json",
        )  # fmt: skip
        self.program = tuple(command)

    @property
    def pid(self) -> int:
        """Of the process that was started: the executable's launcher, where it has one."""
        if self._process is None:
            raise Broken("the server was not started")
        return self._process.pid

    def caller(self, dice: Random) -> Caller:
        """For one client of it."""
        return Caller(self.host, self.port, dice)

    def serving(self) -> Running:
        """The process that serves: whoever holds the data directory."""
        pid = int((self.data / "lock").read_text("ascii"))
        return Running(
            target=Target(name="Ostiary", command=self.program), pid=pid, host=HOST, port=self.port
        )

    def start(self) -> None:
        """Does not wait until it answers."""
        self._await_lock()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._home,
                env=environment(self._home), start_new_session=True,
            )  # fmt: skip

    def await_ready(self) -> float:
        """How many seconds it took from now on. Raises `Broken`."""
        begun = time.monotonic()
        while fetch_status(self.host, self.port, ALIVE) != 200:
            if self._process is None or self._process.poll() is not None:
                self._process = None
                raise Broken(f"the server did not start:\n{self.said()[-2000:]}")
            if time.monotonic() - begun > 3 * START_SECONDS:
                raise Broken(f"the server does not answer:\n{self.said()[-2000:]}")
            time.sleep(0.01)
        return time.monotonic() - begun

    def kill(self) -> None:
        """It and its launcher, in one moment: nobody has time for a last word. Nothing happens where none runs."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._wait(STOP_SECONDS)

    def ask_to_end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def end(self) -> int:
        """Ends it politely: its exit code. Beyond the time that it has for that it is killed."""
        self.ask_to_end()
        try:
            return self._wait(2 * STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Broken("the server did not end when it was asked to") from None

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command of the same program, to its end."""
        return subprocess.run(
            (*self.program, *arguments, "--data-dir", str(self.data)),
            cwd=self._home, env=environment(self._home), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=3 * START_SECONDS, check=False,
        )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def _wait(self, seconds: float) -> int:
        if self._process is None:
            raise Broken("the server was not started")
        code = self._process.wait(seconds)
        self._process = None  # its number may be another's from now on
        return code

    def _await_lock(self) -> None:
        """A launcher may be gone a moment before the process that it launched."""
        lock = self.data / "lock"
        deadline = time.monotonic() + STOP_SECONDS
        while lock.exists():
            with lock.open("rb") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Broken("somebody still holds the data directory") from None
            time.sleep(0.01)


def lasting_port() -> int:
    while True:
        port = random.choice(PORTS)
        try:
            with socket.create_server((HOST, port)):
                return port
        except OSError:
            continue
