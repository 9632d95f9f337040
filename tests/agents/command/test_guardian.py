"""Programs of a server that is killed end with it; those that are over are nobody's business any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_pair import PYTHON, call, code, command, soon

from server.agents.command.guardian import Guardian
from tests.agents.python.python_pair import text_of
from tests.killed_child import alive


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    made = [subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(3)]
    yield made
    for each in made:
        with suppress(ProcessLookupError):
            each.kill()
        each.wait()


async def test_what_is_left_is_killed_when_the_pipe_ends_and_nothing_else(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    guardian = Guardian()
    guardian.be_there()
    one, two, three = sleepers
    for each in sleepers:
        guardian.watch(each.pid)
    guardian.forget(two.pid)
    guardian.forget(12345678)
    guardian.close()
    await soon(lambda: one.poll() == three.poll() == -signal.SIGKILL)
    assert two.poll() is None


async def test_one_that_was_killed_is_replaced_and_told_of_all(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    guardian = Guardian()
    guardian.be_there()
    one, two, _ = sleepers
    guardian.watch(one.pid)
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, guardian._pipe)  # pyright: ignore[reportPrivateUsage] - nobody reads there any more
    os.close(writing)
    guardian.watch(two.pid)  # which finds it gone; the first one has ended, and killed its own
    await soon(lambda: one.poll() is not None)
    guardian.be_there()
    guardian.close()
    await soon(lambda: two.poll() is not None)


async def test_a_call_leaves_nothing_to_be_killed(tmp_path: Path) -> None:
    backend = command(code("print(os.getpid())"))
    pid = int(text_of(await call(backend)))
    groups = backend._programs._guardian._groups  # pyright: ignore[reportPrivateUsage] - what it would kill
    assert not alive(pid)
    assert groups == set()
    await backend.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_program_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    script = tmp_path / "script.py"
    script.write_text(
        "child = os.fork()\n"
        "if not child: time.sleep(1000)\n"
        "open(sys.argv[1] + '.new', 'w').write(f'{os.getpid()} {child}')\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(1000)"
    )
    server = (
        "import sys, trio\n"
        "from pathlib import Path\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[3])!r}]\n"
        "from command_pair import call, code, command\n"
        f"trio.run(call, command(code(Path({str(script)!r}).read_text(), {str(mark)!r})))\n"
    )
    process = subprocess.Popen([PYTHON, "-c", server])
    try:
        await soon(mark.exists)
        pids = [int(pid) for pid in mark.read_text().split()]
        assert all(map(alive, pids))
    finally:
        process.kill()
        process.wait()
    await soon(lambda: not any(map(alive, pids)))
