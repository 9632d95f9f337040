from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tests.client.fake_server import FakeServer, serving

# A bound, not an expectation: an interpreter starts slowly on a busy machine.
WAIT_SECONDS = 60


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Terminal:
    """A person's shell: a home of its own, and the program."""

    home: Path

    @property
    def config(self) -> Path:
        return self.home / "config"

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "OSTIARY_CONFIG_HOME": str(self.config),
            "XDG_RUNTIME_DIR": str(self.home),
            "PYTHONWARNINGS": "error",
            **more,
        }

    @staticmethod
    def command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-P", "-m", "server", *arguments]

    async def run(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Done:
        with trio.fail_after(WAIT_SECONDS):
            done = await trio.run_process(
                self.command(arguments),
                stdin=stdin,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=self.environment(**environment),
                cwd=self.home,
            )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def shell(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with serving(FakeServer()) as server:
        yield server


@pytest.fixture
async def logged_in(shell: Terminal, fake: FakeServer) -> Terminal:
    """A shell from which somebody logged in a moment ago."""
    done = await shell.run("login", fake.url)
    assert done.code == 0, done.stderr
    fake.seen.clear()
    return shell
