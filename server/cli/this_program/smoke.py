"""`ostiary --smoke-test`: does this very program work on this machine? It starts itself on a free port with a throw-away data
directory, looks at its pages and parts, logs in, calls a tool, ends the login, stops, and says what worked. Nearly every step
is the command a person would type.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import click

from server.cli import terminal
from server.cli.form import this_again

STEP_SECONDS = 60.0  # a cold start on a slow disk takes a few; what takes this long does not work
USER_CODE = re.compile(r"\b[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}\b")


class StepFailed(Exception):
    """What a step was expected to do, and what it did instead."""


@click.command("smoke", hidden=True)
def command() -> int:
    with tempfile.TemporaryDirectory(prefix="ostiary-smoke-") as scratch:
        try:
            for done in _steps(Path(scratch)):
                terminal.out(f"ok      {done}")
        except StepFailed as failed:
            terminal.error(str(failed), hint="run the step by hand to see more")
            return terminal.EXIT_FAILED
    terminal.out("this program works here")
    return 0


def _steps(scratch: Path) -> Generator[str]:
    data = str(scratch / "data")
    with _running(scratch, "serve", "--port", "0", "--data-dir", data, "--log-format", "json") as server:
        line = server.wait_for(re.compile(r"Listening on (http://\S+)"))
        url = f"{line.group(1)}/mcp"
        yield f"serve: listening on {line.group(1)}"
        yield from _parts(line.group(1), _run(scratch, "claim", "--json", "--data-dir", data))
        with _running(scratch, "login", url) as login:
            code = login.wait_for(USER_CODE).group(0)
            yield "login: got a code"
            _run(scratch, "approve", code, "--yes", "--data-dir", data)
            yield "approve: let it in over the admin socket"
            login.wait_for_end()
            yield "login: got its tokens"
        if "echo" not in _run(scratch, "tools", url):
            raise StepFailed("tools: echo is not among the tools")
        yield "tools: listed"
        if "it works" not in _run(scratch, "call", url, "echo", "text=it works"):
            raise StepFailed("call: echo did not return its text")
        yield "call: echo answered"
        _run(scratch, "logout", url)
        yield "logout: the login is ended"
        _run(scratch, "call", url, "echo", "text=too late", expected=terminal.EXIT_FAILED)
        yield "call: refused without a login"
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_end()
        yield "serve: stopped when told to"


def _parts(site: str, claimed: str) -> Generator[str]:
    """What is only read when somebody needs it, and would be missed on no other step: pages, scripts, files, libraries."""
    # A name, not a number: passkeys are offered to names alone.
    site = site.replace("127.0.0.1", "localhost")
    path = urlsplit(str(json.loads(claimed)["url"])).path
    nobody_yet = "This server has no owner yet"
    for where, wanted in ((path, "navigator.credentials"), ("/device", nobody_yet), ("/", nobody_yet)):
        if wanted not in _fetch(site + where):
            raise StepFailed(f"pages: {where.partition('/claim/')[0] or '/claim'} is not whole")
    yield "pages: the front page, claim and sign-in are whole"
    from auth.clients import pinned

    for client_id in pinned.names():
        try:
            named = json.loads(pinned.body(client_id) or b"{}").get("client_id")
        except (OSError, ValueError) as error:
            raise StepFailed(f"clients: the document of {client_id} cannot be read: {error}") from error
        if named != client_id:
            raise StepFailed(f"clients: the document of {client_id} is of another")
    yield f"clients: {len(pinned.names())} documents are there"
    for module in ("cbor", "cose", "server", "webauthn"):
        try:
            import_module(f"fido2.{module}")
        except Exception as error:  # of a library: a missing file of its data shows as whatever it likes
            raise StepFailed(f"passkeys: their library cannot be loaded: {error!r}") from error
    yield "passkeys: their library is there"


def _fetch(url: str) -> str:
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(url, timeout=STEP_SECONDS) as page:
            return page.read().decode("utf-8", "replace")
    except OSError as error:
        raise StepFailed(f"pages: {urlsplit(url).path.split('/')[1]} did not come: {error}") from error


class _Running:
    """A command of ours with its output, line by line, as it comes."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        seen = ""
        while True:
            try:
                line = self._lines.get(timeout=STEP_SECONDS)
            except queue.Empty:
                raise StepFailed(f"{self.name}: nothing more came for {STEP_SECONDS:g} seconds") from None
            if line is None:
                raise StepFailed(f"{self.name}: ended early: {seen.strip()[-500:]}")
            seen += line
            if found := pattern.search(line):
                return found

    def wait_for_end(self) -> None:
        try:
            code = self.process.wait(STEP_SECONDS)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"{self.name}: did not end within {STEP_SECONDS:g} seconds") from None
        if code != 0:
            raise StepFailed(f"{self.name}: ended with exit code {code}")


@contextlib.contextmanager
def _running(scratch: Path, *arguments: str) -> Generator[_Running]:
    process = subprocess.Popen(
        [*this_again(), *arguments],
        env=_environment(scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield _Running(arguments[0], process)
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
        process.wait()


def _run(scratch: Path, *arguments: str, expected: int = 0) -> str:
    try:
        done = subprocess.run(
            [*this_again(), *arguments],
            env=_environment(scratch),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{arguments[0]}: did not end within {STEP_SECONDS:g} seconds") from None
    if done.returncode != expected:
        raise StepFailed(
            f"{arguments[0]}: ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    return done.stdout


def _environment(scratch: Path) -> dict[str, str]:
    """Nobody's settings, nobody's tokens; and for an executable, its own fresh unpacking."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OSTIARY_")}
    return {
        **kept,
        "OSTIARY_CONFIG_HOME": str(scratch / "config"),
        "XDG_CONFIG_HOME": str(scratch / "config"),
        "PYINSTALLER_RESET_ENVIRONMENT": "1",
    }
