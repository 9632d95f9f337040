"""A run of pytest that is ended takes what its tests started with it (started_programs.py)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.postgres_server import programs

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60
TESTS = """
import os, signal, subprocess
import pytest, trio

@pytest.fixture
def cared_for():
    process = subprocess.Popen(["sleep", "1000"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()

KEPT = []

def started():
    # One that nobody cares for, and the orphan of another, with a session of its own.
    deaf = "trap '' TERM; sleep 1000 & echo $! && wait"
    alone = subprocess.Popen(["sh", "-c", deaf], stdout=subprocess.PIPE, start_new_session=True)
    orphan = subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null & echo $!"], stdout=subprocess.PIPE)
    KEPT.append(alone)
    return [alone.pid, int(alone.stdout.readline()), int(orphan.stdout)]

def test_that_is_ended(cared_for):
    print("\\nstarted", os.getpid(), cared_for.pid, *started(), flush=True)
    cared_for.wait()

async def test_that_is_ended_in_trio(cared_for):
    print("\\nstarted", os.getpid(), cared_for.pid, *started(), flush=True)
    await trio.sleep_forever()

def test_that_has_a_database(postgres_server):
    print("\\nstarted", os.getpid(), postgres_server.process(), flush=True)
    signal.pause()

def test_that_passes():
    print("\\nstarted", os.getpid(), *started(), flush=True)
"""


class EndedRun:
    """A pytest that runs one of the tests above, and handles on what that started."""

    def __init__(self, process: subprocess.Popen[str], run: int, started: list[int]) -> None:
        self.process = process
        self.run = run
        self._handles = [os.pidfd_open(pid) for pid in started]

    def ends(self) -> int:
        """Wait for the run and all that it started."""
        code = self.process.wait(WAIT_SECONDS)
        for handle in self._handles:
            assert select.select([handle], [], [], WAIT_SECONDS)[0], "a program goes on"
        return code

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self.process.kill()


@contextmanager
def ran(folder: Path, name: str) -> Generator[EndedRun]:
    (folder / "test_it.py").write_text(TESTS)
    words = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider", "-s"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, f"{folder}/test_it.py::{name}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("started "):
                run, *started = map(int, line.split()[1:])
                break
        else:
            raise AssertionError("".join(said))
        ended = EndedRun(process, run, started)
        try:
            yield ended
        finally:
            ended.close()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose orphan a process is")


@pytest.mark.parametrize("name", ["test_that_is_ended", "test_that_is_ended_in_trio"])
def test_who_is_asked_to_end_leaves_nothing_running(name: str, tmp_path: Path) -> None:
    with ran(tmp_path, name) as run:
        run.process.send_signal(signal.SIGTERM)
        assert run.ends() == pytest.ExitCode.INTERRUPTED


def test_a_run_that_is_killed_leaves_nothing_running(tmp_path: Path) -> None:
    with ran(tmp_path, "test_that_is_ended_in_trio") as run:
        os.kill(run.run, signal.SIGKILL)
        assert run.ends() == 128 + signal.SIGKILL


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
def test_a_run_that_is_killed_with_its_group_leaves_no_database_running(tmp_path: Path) -> None:
    with ran(tmp_path, "test_that_has_a_database") as run:
        os.killpg(run.process.pid, signal.SIGKILL)
        assert run.ends() == -signal.SIGKILL


def test_a_run_that_passes_leaves_nothing_running(tmp_path: Path) -> None:
    with ran(tmp_path, "test_that_passes") as run:
        assert run.ends() == 0
