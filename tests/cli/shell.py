"""A person's shell, for transcripts: a home of its own, and the program as a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from tests import forked

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
        ran = partial(
            forked.run,
            arguments,
            environment=self.environment(**environment),
            folder=self.home,
            stdin=stdin,
            seconds=WAIT_SECONDS,
        )
        done = await trio.to_thread.run_sync(ran, abandon_on_cancel=True)
        return Done(done.code, done.stdout.decode(), done.stderr.decode())

    async def run_alone(self, *arguments: str, **environment: str) -> Done:
        """Run a command in a process that starts Python."""
        with trio.fail_after(WAIT_SECONDS):
            done = await trio.run_process(
                self.command(arguments),
                stdin=b"",
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=self.environment(**environment),
                cwd=self.home,
            )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
