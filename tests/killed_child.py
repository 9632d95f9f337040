"""Processes that end: a script that is killed in the middle of its work, with what it had acknowledged; and whether one lives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).parents[1]


@contextmanager
def running(script: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Start the script, and kill it at the end where it still runs."""
    with subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_CHECKOUT,
        env={"PYTHONPATH": str(_CHECKOUT)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said_until_killed(script: Path, *arguments: str, lines: int) -> list[str]:
    """Kill the script when it has said so many lines. Return them and those that it had said besides."""
    with running(script, *arguments) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += [line for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -9
    return [line.strip() for line in said]


def say(line: str) -> None:
    """Acknowledge something: in a script that is to be killed."""
    os.write(1, f"{line}\n".encode())  # one system call: a line is out, whole, when this returns


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        told = Path(f"/proc/{pid}/stat").read_text("ascii")
    except ProcessLookupError:  # also while it is read
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # a system that has none of these
    # Nobody reaps an orphan in a bare container: what has ended there stays as a zombie.
    return told.rpartition(")")[2].split()[0] != "Z"
