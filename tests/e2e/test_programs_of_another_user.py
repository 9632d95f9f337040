"""Programs that run as another user than their server, of root's and of a user's that was given no more than the right to start them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_calls import call_tool
from programs import SOURCE, House, Program, Server, until

from server.lib.landlock import landlock_abi

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")

PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable
HOSTILE = Path(__file__).with_name("hostile_server.py")
USER, PROGRAMS = 65533, 65534
NEEDED = "+setuid,+setgid,+kill"
AS_USER = (
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
    *(f"--inh-caps={NEEDED}", f"--ambient-caps={NEEDED}"),
)
SETTINGS = """
auth = "none"
[[server]]
[[server.agent]]
kind = "mcp"
id = "up"
trust = "first-use"
command = ["{python}", "{hostile}", "{home}"]
run_as = "{programs}"
[[server.agent]]
kind = "python"
file = "{home}/agents/agent.py"
python = "{python}"
run_as = "{programs}"
{more}
[[server.agent]]
kind = "command"
run_as = "{programs}"
[[server.agent.tool]]
name = "who"
run = ["/usr/bin/id"]
[[server.agent.tool]]
name = "by_name"
run = ["/bin/sh", "-c", "echo said > /dev/stdout"]
"""
AGENT = """
import os, signal
from ostiary import tool

@tool
def who_am_i() -> dict:
    said = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    return {
        "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(), "home": os.environ["HOME"],
        "rights": [said[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")], "final": said["NoNewPrivs"],
    }

@tool
def read_it(path: str) -> str:
    try:
        return repr(open(path, "rb").read(64))
    except OSError as error:
        return type(error).__name__

@tool
def back_to(uid: int) -> str:
    try:
        os.setuid(uid)
    except OSError as error:
        return type(error).__name__
    return "done"

@tool
def end_it(pid: int) -> str:
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        return type(error).__name__
    return "done"
"""


def settled(home: Path, user: tuple[str, ...], more: str = "") -> Program:
    program = Program(command=(*user, *SOURCE), home=home, serves_alone=True)
    program.environment()  # which makes the folders
    for name in ("data", "agents", "settings"):
        (home / name).mkdir(mode=0o700)
    (home / "keys").mkdir()
    (home / "agents" / "agent.py").write_text(AGENT, "utf-8")
    (home / "hostile.py").write_bytes(HOSTILE.read_bytes())
    (home / "settings" / "ostiary.toml").write_text(
        SETTINGS.format(home=home, python=PYTHON, hostile=home / "hostile.py", programs=PROGRAMS, more=more),
        "utf-8",
    )
    owner = USER if user == AS_USER else 0
    for path in (home, *home.rglob("*")):
        os.chown(path, owner, owner)
    for path in (home, home / "agents", home / "agents" / "agent.py", home / "hostile.py"):
        path.chmod(0o755)
    (home / "tmp").chmod(0o1777)
    checked = (
        "setpriv",
        f"--reuid={PROGRAMS}",
        f"--regid={PROGRAMS}",
        "--clear-groups",
        *SOURCE,
        "--version",
    )
    if subprocess.run(checked, cwd=home, env=program.environment(), check=False).returncode != 0:
        pytest.skip("another user than root cannot start this checkout")
    return program


@pytest.fixture(scope="module", params=[pytest.param((), id="roots"), pytest.param(AS_USER, id="a-users")])
def served(request: pytest.FixtureRequest) -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="ostiary-", ignore_cleanup_errors=True) as folder:
        program = settled(Path(folder), request.param)
        with program.serving("--config", str(program.home / "settings" / "ostiary.toml")) as server:
            yield House(program=program, server=server)


def called(server: Server, tool: str, **arguments: Any) -> Any:
    answer = call_tool(server.endpoint, tool, arguments)
    assert not answer.get("isError"), answer
    return answer.get("structuredContent", answer["content"][0]["text"])


def test_a_program_is_that_user_and_has_no_rights(served: House) -> None:
    found = called(served.server, "who_am_i")
    assert found["uid"] == found["gid"] == [PROGRAMS] * 3
    assert set(found["groups"]) <= {PROGRAMS}
    assert {int(each, 16) for each in found["rights"]} == {0}
    assert found["final"] == "1"
    assert found["home"] != str(served.program.home)
    assert f"uid={PROGRAMS}" in called(served.server, "who")
    assert "said" in called(served.server, "by_name")
    for uid in (0, USER):
        assert called(served.server, "back_to", uid=uid) == "PermissionError"


def test_it_opens_nothing_of_the_servers_and_makes_no_key(served: House) -> None:
    found = called(served.server, "up__take_over")
    assert set(found["files"].values()) <= {"PermissionError", "FileNotFoundError"}
    assert found["socket"] == {}, "the folder of the socket can be looked into"
    assert called(served.server, "up__change")["socket"] == {}
    parent = found["parent"]
    for name in ("mem", "environ", "maps", "root/etc/hostname", "cwd/data/ostiary.db"):
        assert called(served.server, "read_it", path=f"/proc/{parent}/{name}") == "PermissionError"
    assert called(served.server, "end_it", pid=parent) == "PermissionError"
    assert served.program.at_machine("api-keys", "list") == []


@pytest.mark.parametrize("user", [pytest.param((), id="roots"), pytest.param(AS_USER, id="a-users")])
def test_a_stop_ends_what_runs_as_another_user(home: Path, user: tuple[str, ...]) -> None:
    program = settled(home, user)
    with program.serving("--config", str(home / "settings" / "ostiary.toml")) as server:
        left = called(server, "up__linger")["pid"]
        assert os.stat(f"/proc/{left}").st_uid == PROGRAMS
        assert server.end(signal.SIGTERM) == 0
        until("the end of an orphan", lambda: None if Path(f"/proc/{left}").exists() else True)


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_a_program_of_another_user_is_confined_too(home: Path) -> None:
    program = settled(home, (), more=f'reads = ["{home}/tmp"]')
    (home / "tmp" / "given").write_text("given", "utf-8")
    (home / "tmp" / "given").chmod(0o644)
    (home / "open").write_text("open", "utf-8")
    (home / "open").chmod(0o644)
    with program.serving("--config", str(home / "settings" / "ostiary.toml")) as server:
        assert "given" in called(server, "read_it", path=str(home / "tmp" / "given"))
        assert called(server, "read_it", path=str(home / "open")) == "PermissionError"
        assert called(server, "who_am_i")["uid"] == [PROGRAMS] * 3


def test_a_flag_is_for_all_programs_that_say_nothing(home: Path) -> None:
    program = settled(home, ())
    settings = home / "settings" / "ostiary.toml"
    text = settings.read_text("utf-8").replace(f'run_as = "{PROGRAMS}"', "", 2)
    settings.write_text(text.replace(f'run_as = "{PROGRAMS}"', 'run_as = "daemon"'), "utf-8")
    with program.serving("--config", str(settings), "--programs-run-as", str(PROGRAMS)) as server:
        assert called(server, "who_am_i")["uid"] == [PROGRAMS] * 3
        assert os.stat(f"/proc/{called(server, 'up__take_over')['pid']}").st_uid == PROGRAMS
        assert "(daemon)" in called(server, "who")


@pytest.mark.parametrize(
    ("user", "programs", "said"),
    [
        (("setpriv", "--bounding-set=-setuid"), str(PROGRAMS), "CAP_SETUID"),
        ((), "no-such-user", "there is no user"),
        ((), "daemon", ""),
    ],
)
def test_a_user_that_nothing_can_be_started_as_is_refused_in_words(
    home: Path, user: tuple[str, ...], programs: str, said: str
) -> None:
    program = settled(home, user)
    settings = home / "settings" / "ostiary.toml"
    settings.write_text(
        settings.read_text("utf-8").replace(f'run_as = "{PROGRAMS}"', f'run_as = "{programs}"')
    )
    if not said:
        with program.serving("--config", str(settings)) as server:
            assert "(daemon)" in called(server, "who")
        return
    started = subprocess.run(
        (
            *program.command,
            "serve",
            "--config",
            str(settings),
            "--port",
            "0",
            "--data-dir",
            str(program.data_dir),
        ),
        cwd=home,
        env=program.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode != 0
    assert said in started.stderr + started.stdout
    doctor = (
        *program.command,
        "doctor",
        "--json",
        "--config",
        str(settings),
        "--data-dir",
        str(program.data_dir),
    )
    told = subprocess.run(
        doctor, cwd=home, env=program.environment(), capture_output=True, text=True, check=False
    )
    steps = json.loads(told.stdout)["steps"]
    assert any(said in step["detail"] for step in steps if step["step"] == "agent"), steps
