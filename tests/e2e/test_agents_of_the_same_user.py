"""A Python agent runs as the user of the server, and cannot look into it all the same."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from programs import SOURCE, Program

from server.store.keyfile import new_key_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has /proc, and closes it")

NOBODY = 65534
# Root may look into everything, so root's tests start the programs as somebody else.
AS_NOBODY = (
    ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups") if os.getuid() == 0 else ()
)
AGENT = """
    import os
    from ostiary import tool

    def tried(look) -> str:
        try:
            return str(look())
        except OSError as error:
            return type(error).__name__

    @tool
    def peek() -> dict:
        server, own = f"/proc/{os.getppid()}", f"/proc/{os.getpid()}"
        looks = {
            "environ": lambda of: open(f"{of}/environ", "rb").read(),
            "fd": lambda of: os.listdir(f"{of}/fd"),
            "mem": lambda of: open(f"{of}/mem", "rb").close(),
            "maps": lambda of: open(f"{of}/maps", "rb").read(10),
            "cwd": lambda of: os.readlink(f"{of}/cwd"),
        }
        return {
            "uid": os.getuid(),
            "server": {name: tried(lambda: look(server)) for name, look in looks.items()},
            "own": {name: tried(lambda: look(own)) for name, look in looks.items()},
        }
"""
SETTINGS = """
    auth = "none"
    key_file = "env:DOOR_KEY"
    [[server]]
    [[server.agent]]
    kind = "python"
    file = "agent.py"
"""


@pytest.fixture
def ostiary(home: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    program = Program(command=(*AS_NOBODY, *SOURCE), home=home)
    environment = program.environment
    monkeypatch.setattr(program, "environment", lambda: environment(DOOR_KEY=new_key_text(os.urandom)))
    (home / "agent.py").write_text(dedent(AGENT), "utf-8")
    (home / "ostiary.toml").write_text(dedent(SETTINGS), "utf-8")
    program.environment()  # which makes the folders
    (home / "data").mkdir(mode=0o700)
    if os.getuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    try:
        subprocess.run((*program.command, "--version"), cwd=home, env=program.environment(), check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("another user than root cannot start this checkout")
    return program


def test_an_agent_reads_neither_the_environment_nor_the_files_nor_the_memory_of_its_server(
    ostiary: Program,
) -> None:
    with ostiary.serving() as server:
        seen = ostiary.ask("call", server.endpoint, "peek")["structuredContent"]
        assert seen["uid"] != 0
        assert set(seen["server"].values()) == {"PermissionError"}
        assert "PermissionError" not in seen["own"].values()
        assert server.end(signal.SIGTERM) == 0


def test_a_server_that_crashes_leaves_no_core(ostiary: Program) -> None:
    soft, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))  # what is started has it from us
    try:
        with ostiary.serving() as server:
            limits = Path(f"/proc/{server.process.pid}/limits").read_text("ascii").splitlines()
            (core,) = (line.split() for line in limits if line.startswith("Max core file size"))
            assert core[4:6] == ["0", "unlimited" if most == resource.RLIM_INFINITY else str(most)]
            assert server.end(signal.SIGABRT) == -signal.SIGABRT
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, most))
    assert not list(ostiary.home.rglob("core*"))
