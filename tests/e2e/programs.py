"""Ostiary as its users run it: a program in its own process, in a home of its own, with everything it says kept.

`Program` is either the source (`python -m server`) or the finished file; the tests that use it do not know which.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from tests import forked

ROOT = Path(__file__).parent.parent.parent
SOURCE = (sys.executable, "-P", "-m", "server")
BINARY = (str(ROOT / "dist" / "ostiary"),)
NODE_BIN = ROOT / "tests" / "peers" / "node_modules" / ".bin"

# Bounds, not expectations: a loaded machine is slow, and a hanging program must still end the test.
WAIT_SECONDS = 60.0
USER_CODE = re.compile(r"\b[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}\b")

T = TypeVar("T")
Process = subprocess.Popen[bytes] | forked.Forked


def until(what: str, look: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
    """What `look` finds, soon after it finds it: a twentieth of the wait later at most."""
    began = time.monotonic()
    while (found := look()) is None:
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(min(max(0.02, waited / 20), 0.25))
    return found


@dataclass(kw_only=True)
class Background:
    """A program that runs while the test goes on; both its streams are in one file."""

    process: Process
    log: Path

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def await_words(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.said())
            if found is None and self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode} and said:\n{self.said()}")
            return found

        return until(f"{pattern!r} in what a program says", look)

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def wait(self) -> int:
        return self.process.wait(WAIT_SECONDS)


@dataclass(kw_only=True)
class Server(Background):
    url: str  # of the site; the endpoint is below it

    @property
    def endpoint(self) -> str:
        return f"{self.url}/mcp"


def _lines(said: bytes) -> str:
    return said.decode().replace("\r\n", "\n").replace("\r", "\n")


@dataclass(kw_only=True)
class Program:
    command: Sequence[str]
    home: Path
    script: Path | None = None  # around the program, in its place where it is the source
    alone: bool = False  # each command starts Python, as a user's does; else it is forked
    serves_alone: bool = False  # `serve` does, and no other command
    said: list[str] = field(default_factory=list[str])  # on stderr, by every command that ended
    settings: dict[str, str] = field(default_factory=dict[str, str])  # in the environment of every command

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    @property
    def token_file(self) -> Path:
        return self.home / "config" / "ostiary" / "tokens.json"

    def environment(self, **more: str) -> dict[str, str]:
        for name in ("config", "tmp", "run"):
            (self.home / name).mkdir(mode=0o700, exist_ok=True)
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "TMPDIR": str(self.home / "tmp"),
            **self.settings,
            **more,
        }

    def _forks(self, arguments: tuple[str, ...]) -> bool:
        alone = self.alone or (self.serves_alone and arguments[:1] == ("serve",))
        forks = self.command == SOURCE and not alone
        assert forks or self.script is None, "a script around the program is forked, and nothing else"
        return forks

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """One command to its end. Which exit code is right is part of what is tested."""
        environment = self.environment()
        if self._forks(arguments):
            ran = forked.run(
                arguments,
                environment=environment,
                folder=self.home,
                seconds=WAIT_SECONDS,
                script=self.script,
            )
            done = subprocess.CompletedProcess(arguments, ran.code, _lines(ran.stdout), _lines(ran.stderr))
        else:
            done = subprocess.run(
                (*self.command, *arguments),
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WAIT_SECONDS,
                check=False,
            )
        self.said.append(done.stderr)
        assert done.returncode == code, (
            f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
        return done

    def ask(self, *arguments: str) -> Any:
        """One command's result, as JSON."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def at_machine(self, *arguments: str) -> Any:
        """A command for the admin socket of the server that `serving` started."""
        return self.ask(*arguments, "--data-dir", str(self.data_dir))

    @contextmanager
    def starting(
        self, *arguments: str, command: Sequence[str] | None = None, folder: Path | None = None
    ) -> Generator[Background]:
        """A program in the background, ended with the block at the latest."""
        log = self.home / f"log-{len(list(self.home.glob('log-*')))}"
        process: Process
        with log.open("wb") as output, open(os.devnull, "rb") as nothing:
            if command is None and self._forks(arguments):
                process = forked.start(
                    arguments,
                    environment=self.environment(),
                    folder=folder or self.home,
                    files=(nothing.fileno(), output.fileno(), output.fileno()),
                    script=self.script,
                )
            else:
                process = subprocess.Popen(
                    (*(command or self.command), *arguments),
                    cwd=folder or self.home,
                    env=self.environment(),
                    stdin=nothing,
                    stdout=output,
                    stderr=output,
                )
        background = Background(process=process, log=log)
        try:
            yield background
        finally:
            background.end()

    @contextmanager
    def serving(self, *options: str) -> Generator[Server]:
        """The server on a free port, with the demo agent, as talkative as it gets."""
        quiet = (
            "--port",
            "0",
            "--data-dir",
            str(self.data_dir),
            "--log-level",
            "debug",
            "--log-format",
            "json",
        )
        with self.starting("serve", *quiet, *options) as background:
            found = background.await_words(r"Listening on (http://[^\s\"]+)")
            yield Server(
                process=background.process, log=background.log, url=re.sub(r"/(mcp)?$", "", found[1])
            )

    def log_in(self, server: Server) -> str:
        """`ostiary login` in one terminal, `ostiary approve` in another. The user code."""
        with self.starting("login", server.endpoint) as login:
            user_code = login.await_words(USER_CODE)[0]
            self.at_machine("approve", user_code, "--yes")
            assert login.wait() == 0, login.said()
        return user_code

    def tokens(self) -> dict[str, Any]:
        """The login that the token file keeps, whole."""
        (login,) = json.loads(self.token_file.read_text("utf-8"))["logins"].values()
        return login


def expire_access_token(program: Program) -> None:
    """As if an hour had passed: the next command must refresh."""
    kept = json.loads(program.token_file.read_text("utf-8"))
    for login in kept["logins"].values():
        login["expires_at"] = login["obtained_at"] + 1
    program.token_file.write_text(json.dumps(kept), "utf-8")


def claim_in_browser(link: str, passphrase: str) -> httpx2.Response:
    """What a browser does with an owner-claim link: follow it, fill in the form, post it. The page that comes then."""
    with httpx2.Client(follow_redirects=True, trust_env=False, timeout=WAIT_SECONDS) as browser:
        page = browser.get(link)
        page.raise_for_status()
        form = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text))
        action = re.search(r'<form method="post" action="([^"]*)"', page.text)
        assert action is not None
        form |= {"name": "olivia", "passphrase": passphrase, "passphrase_again": passphrase}
        origin = str(page.url.copy_with(path="/", query=None)).rstrip("/")
        return browser.post(page.url.join(action[1]), data=form, headers={"Origin": origin})


def needed(path: Path, script: str) -> Path:
    """A thing that another script makes. Its absence is a failure, never a skip."""
    assert path.exists(), f"{path.relative_to(ROOT)} is missing: run {script}"
    return path


@dataclass(frozen=True, kw_only=True)
class House:
    """A program, and the server that it runs."""

    program: Program
    server: Server
