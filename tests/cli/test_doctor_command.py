"""`ostiary doctor` without a URL: this machine's own server, its settings and its data directory first."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from shell import Terminal

from server.admin import control_socket
from server.lib.log.structured_log import make_logger

# Nobody listens on port 1, whatever else runs on this machine.
SILENT = "✗ connection      nothing answers on port 1 of 127.0.0.1\n"


GOOD = """
import os
from pathlib import Path
from pathlib import Path
Path("own", "ran").write_text(str(os.getpid()))
def hello() -> str:
    "Says hello."
    return "hello"
"""
AGENTS = """
[[server]]
name = "main"
[[server.agent]]
kind = "chat"
url = "http://127.0.0.1:1/chat"
agent = "kaya"
[[server.agent]]
kind = "mcp"
id = "files"
command = ["sh", "-c", "exit 3"]
[[server.agent]]
kind = "python"
file = "bad.py"
[[server.agent]]
kind = "python"
file = "good.py"
"""


async def test_a_machine_without_a_server_is_told_what_to_do(shell: Terminal) -> None:
    data = shell.home / "data"
    done = await shell.run("doctor", "--data-dir", str(data), OSTIARY_PORT="1")
    assert done.code == 1
    # Each of both hints repeats which server is meant.
    assert done.stdout.count(f"  hint: `ostiary serve --data-dir {data}` makes it\n") == 1
    assert done.stdout.endswith(f"`ostiary serve --data-dir {data}` starts it\n")


async def test_a_data_directory_open_to_others_is_a_fault(shell: Terminal) -> None:
    data = shell.home / "data"
    data.mkdir()
    data.chmod(0o755)
    done = await shell.run("doctor", "--data-dir", str(data), OSTIARY_PORT="1")
    assert f"\n  hint: chmod 700 {data}\n" in done.stdout


async def test_a_data_directory_that_no_server_holds_is_told(shell: Terminal) -> None:
    data = shell.home / "data"
    data.mkdir(mode=0o700)
    done = await shell.run("doctor", "--data-dir", str(data), OSTIARY_PORT="1")
    assert f"✗ data directory  no server is running on {data}\n" in done.stdout
    assert SILENT in done.stdout


async def test_where_this_machines_own_server_has_an_address_that_nobody_knows_its_setting_is_named(
    shell: Terminal,
) -> None:
    data = str(shell.home / "data")
    for arguments, named in (("--data-dir", data), True), (("https://ostiary.invalid/mcp",), False):
        done = await shell.run("doctor", "--json", *arguments, OSTIARY_ISSUER="https://ostiary.invalid")
        (step,) = [each for each in json.loads(done.stdout)["steps"] if each["step"] == "connection"]
        assert (step["state"], "issuer" in step["hint"]) == ("failed", named)


async def test_the_settings_of_a_server_that_runs_are_not_taken_for_those_found_here(
    shell: Terminal, nursery: trio.Nursery
) -> None:
    async def nothing(arguments: Mapping[str, Any], actor: str) -> dict[str, Any]:
        return {"problems": [], "origin": "http://127.0.0.1:1"}

    data = shell.home / "data"
    data.mkdir(mode=0o700)
    log = make_logger(level="error", style="json")
    answers = {"status": nothing, "self_test": nothing}
    await nursery.start(control_socket.serve, data, lambda: answers, log)
    done = await shell.run("doctor", "--data-dir", str(data))
    assert "none found" in done.stdout and "--config FILE" in done.stdout


async def test_where_no_server_runs_each_agent_is_tried_and_left_as_it_was(shell: Terminal) -> None:
    (shell.home / "bad.py").write_text("import nonesuch\n", "utf-8")
    (shell.home / "good.py").write_text(GOOD, "utf-8")
    (shell.home / "own").mkdir()
    file = shell.home / "ostiary.toml"
    file.write_text(AGENTS, "utf-8")
    done = await shell.run("doctor", "--config", str(file), "--data-dir", "data", OSTIARY_PORT="1")
    assert (done.code, done.stderr) == (1, "")
    steps = done.stdout.split("makes it\n")[1].split("\nhttp://")[0].splitlines()
    for row, start, fact in (
        (0, "✗ agent           main[1] (chat) ", "connection refused"),
        (2, "✗ upstream        main/files: ", "(exit status 3)"),
        (4, "✗ agent           main[3] (bad.py): ", "No module named 'nonesuch'"),
    ):
        assert steps[row].startswith(start) and fact in steps[row]
        assert steps[row + 1].startswith("  hint: ") and steps[row + 1].endswith(
            f" see [[server.agent]] in {file}"
        )
    assert "a server starts" in steps[1] and steps[1] == steps[3] and "no server starts" in steps[5]
    assert len(steps) == 6
    # The one that is well was started, and has ended.
    with pytest.raises(ProcessLookupError):
        os.kill(int((shell.home / "own" / "ran").read_text("utf-8")), 0)
    assert not (shell.home / "data").exists()


async def test_settings_that_cannot_be_used_end_it_with_every_problem_listed(shell: Terminal) -> None:
    file = shell.home / "ostiary.toml"
    file.write_text('colour = "red"\nport = "many"\n')
    done = await shell.run("doctor", "--config", str(file))
    assert done.code == 1
    assert "colour" in done.stderr
    assert "port" in done.stderr
    assert done.stdout.startswith("✗ settings ")
    assert "connection" not in done.stdout


async def test_doctor_and_serve_find_the_same_wrong_with_the_settings(shell: Terminal) -> None:
    (shell.home / "bad.py").write_text("def f(\n", "utf-8")
    file = shell.home / "ostiary.toml"
    lacks = (
        '[[server]]\n[[server.agent]]\nkind = "python"\nfile = "bad.py"\nenvironment = { A = "env:NOPE" }\n'
    )
    for text, lines in ((lacks, 2), (f"colour = 1\n{lacks}", 3)):
        file.write_text(text, "utf-8")
        doctor = await shell.run("doctor", "--config", str(file), OSTIARY_PROT="1")
        serve = await shell.run("serve", "--config", str(file), OSTIARY_PROT="1")
        told, hint = (
            doctor.stderr.splitlines(),
            "hint: OSTIARY_PROT is not a setting; did you mean OSTIARY_PORT?",
        )
        assert told[0] == hint
        assert len(told) == 1 + lines
        assert all(line.startswith("  line ") for line in told[1:])
        assert serve.stderr.splitlines()[:-1] == told
        assert serve.stderr.splitlines()[-1].startswith(f"error: {lines} problems in ")
        assert f"✗ settings        {lines} problems in " in doctor.stdout
        # What is not here now may be there for a server that runs.
        assert ("connection" in doctor.stdout) is (lines == 2)
        assert serve.code == (1 if lines == 2 else 2)


async def test_the_report_in_json_has_one_entry_per_step(shell: Terminal) -> None:
    done = await shell.run("doctor", "--json", "--data-dir", str(shell.home / "data"), OSTIARY_PORT="1")
    report = json.loads(done.stdout)
    assert (done.code, done.stderr) == (1, "")
    assert (report["url"], report["ok"]) == ("http://127.0.0.1:1/mcp", False)
    assert [(step["step"], step["state"]) for step in report["steps"]] == [
        ("settings", "ok"),
        ("data directory", "skipped"),
        ("agents", "ok"),
        ("connection", "failed"),
    ]
    assert all(set(step) == {"step", "state", "detail", "hint"} for step in report["steps"])
