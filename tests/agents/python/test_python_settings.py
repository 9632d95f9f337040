"""The settings of a Python agent, and the interpreter that they come to."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.agents.python import interpreter
from server.agents.python.find_interpreter import find_interpreter
from server.agents.python.interpreter import check_interpreter, check_version
from server.agents.python.python_settings import PythonConfig, problems
from server.mcp.call_failures import BackendError
from tests.agents.python.python_pair import DOUBLE, PARROT, Log, at_work, make_backend


def config(**settings: Any) -> PythonConfig:
    return msgspec.convert(settings, PythonConfig)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "file"),
        ({"file": "a.py", "module": "a"}, "module"),
        ({"module": "a-b"}, "module"),
        ({"module": "a.b."}, "module"),
        ({"file": "a.py", "in_process": True, "python": "python3"}, "python"),
        ({"file": "a.py", "in_process": True, "environment": ["A"]}, "environment"),
        ({"file": "a.py", "environment": ["A B"]}, "environment"),
        ({"file": "a.py", "pass_headers": ["Authorization"]}, "pass_headers"),
        ({"file": "a.py", "pass_headers": ["cookie"]}, "pass_headers"),
        ({"file": "a.py", "pass_headers": ["X-API-Key"]}, "pass_headers"),
        ({"file": "a.py", "pass_headers": ["Mcp-Session-Id"]}, "pass_headers"),
        ({"file": "a.py", "pass_headers": ["two words"]}, "pass_headers"),
    ],
)
def test_settings_that_contradict_themselves_are_told_by_their_key(
    settings: dict[str, Any], key: str
) -> None:
    assert [found for found, _ in problems(config(**settings))] == [key]


@pytest.mark.parametrize(
    "settings",
    [{"file": "a.py"}, {"module": "company.agent"}, {"file": "a.py", "in_process": True, "reload": False}],
)
def test_settings_that_are_sound_have_no_problems(settings: dict[str, Any]) -> None:
    assert problems(config(**settings)) == []


def test_the_executable_runs_no_agent_in_its_own_process() -> None:
    ((key, what),) = problems(config(file="a.py", in_process=True), frozen=True)
    assert key == "in_process"
    assert "source" in what


def test_settings_that_are_printed_show_no_value_of_the_environment() -> None:
    assert "s3cret" not in repr(config(file="a.py", environment={"KEY": "s3cret"}))


def test_a_file_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*agent\.py"):
        make_backend(tmp_path / "agent.py", Log(), shim=DOUBLE)


def executable(path: Path, script: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script, "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_interpreter_is_the_named_one_else_that_beside_the_file_else_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ValueError, match=r'no python3 .* set python = "/path/to/python"'):
        find_interpreter("", tmp_path)
    machines = executable(tmp_path / "bin" / "python3")
    assert find_interpreter("", tmp_path) == str(machines)
    plain = executable(tmp_path / "venv" / "bin" / "python")
    assert find_interpreter("", tmp_path) == str(plain)
    hidden = executable(tmp_path / ".venv" / "bin" / "python")
    assert find_interpreter("", tmp_path) == str(hidden)
    assert find_interpreter("python3", tmp_path) == str(machines)
    assert find_interpreter(str(plain), tmp_path) == str(plain)
    with pytest.raises(ValueError, match="there is no Python interpreter python9"):
        find_interpreter("python9", tmp_path)


@pytest.mark.parametrize("version", ["3.8.18", "2.7.18", "3", "", "Python"])
def test_a_version_that_is_too_old_or_none_is_refused(version: str) -> None:
    with pytest.raises(BackendError):
        check_version(version)


@pytest.mark.parametrize("version", ["3.9.0", "3.14.2", "4.0.0"])
def test_a_version_that_is_new_enough_will_do(version: str) -> None:
    check_version(version)


async def test_an_interpreter_that_is_too_old_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    old = executable(tmp_path / "python2", "#!/bin/sh\nprintf 2.7.18\n")
    with pytest.RaisesGroup(
        pytest.RaisesExc(BackendError, match=r"python2 is Python 2\.7\.18; .* 3\.9 or newer"),
        flatten_subgroups=True,
    ):
        async with at_work(tmp_path, PARROT, python=str(old)):
            raise AssertionError("it must not start")


async def test_a_program_that_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="as a Python interpreter"):
        await check_interpreter(str(executable(tmp_path / "what")), os.environ)
    broken = executable(tmp_path / "broken", "#!/nonexistent\n")
    with pytest.raises(BackendError, match="cannot be started"):
        await check_interpreter(str(broken), os.environ)


async def test_an_interpreter_that_is_slow_is_not_called_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "ANSWER_SECONDS", 0)
    slow = executable(tmp_path / "slow", "#!/bin/sh\nread line < fifo\n")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BackendError, match="within 0 s"):
        await check_interpreter(str(slow), os.environ)


async def test_nothing_secret_is_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", "s3cret")
    script = """
        import json, os, sys
        ready()
        call = hear()
        said = json.dumps([sys.orig_argv, os.environ["KEY"]])
        say("final", id=call["id"], result=text(said))
        hear()
    """
    async with at_work(tmp_path, script, environment={"KEY": "env:AGENT_KEY"}) as work:
        argv, key = msgspec.json.decode(await work.say())
        assert key == "s3cret"
        assert "s3cret" not in " ".join(argv)
