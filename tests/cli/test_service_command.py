from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from shell import Terminal

from server.cli import run

SYSTEMCTL = """#!/bin/sh
echo "$(basename "$0") $*" >> "$HOME/ran"
case "$*" in *show*) cat "$HOME/shown" ;; esac
"""


@pytest.fixture
def supervised(shell: Terminal) -> Terminal:
    """A shell with a systemctl that writes down what it is asked."""
    programs = shell.home / "bin"
    programs.mkdir()
    for name in ("systemctl", "systemd-sysusers"):
        (programs / name).write_text(SYSTEMCTL, "utf-8")
        (programs / name).chmod(0o755)
    (shell.home / "shown").write_text("ActiveState=inactive\nSubState=dead\nMainPID=0\n", "utf-8")
    return shell


def path_of(shell: Terminal) -> str:
    return f"{shell.home / 'bin'}:{os.environ['PATH']}"


def ran(shell: Terminal) -> list[str]:
    file = shell.home / "ran"
    return file.read_text("utf-8").splitlines() if file.exists() else []


def unit_file(shell: Terminal) -> Path:
    return shell.home / ".config/systemd/user/ostiary.service"


async def test_a_user_installs_looks_at_and_takes_out_a_service(supervised: Terminal) -> None:
    shell = supervised
    done = await shell.run("service", "install", "--user", PATH=path_of(shell))
    assert done.code == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines()[:4] == [
        f"write {unit_file(shell)}",
        "run systemctl --user daemon-reload",
        "run systemctl --user enable ostiary.service",
        "run systemctl --user restart ostiary.service",
    ]
    assert "serves the demo" in done.stderr
    assert "hint: loginctl enable-linger" in done.stderr
    (started,) = re.findall(r"^ExecStart=(.*)$", unit_file(shell).read_text("utf-8"), re.MULTILINE)
    assert started.endswith(" serve")

    (shell.home / "shown").write_text(
        "ActiveState=active\nSubState=running\nStatusText=serving http://127.0.0.1:8420\nMainPID=77\n"
        "UnitFileState=enabled\nNRestarts=0\nActiveEnterTimestamp=Mon 2026-11-23 10:00:00 UTC\n",
        "utf-8",
    )
    done = await shell.run("service", "status", "--user", PATH=path_of(shell))
    assert done.code == 0
    assert "active (running) since Mon 2026-11-23 10:00:00 UTC" in done.stdout
    assert "serving http://127.0.0.1:8420" in done.stdout
    told = await shell.run("service", "status", "--user", "--json", PATH=path_of(shell))
    assert json.loads(told.stdout)["systemd"]["MainPID"] == "77"
    assert json.loads(told.stdout)["edited"] is False

    done = await shell.run("service", "uninstall", "--user", PATH=path_of(shell))
    assert done.code == 0
    assert not unit_file(shell).exists()
    assert "data and settings" in done.stderr
    done = await shell.run("service", "uninstall", "--user", PATH=path_of(shell))
    assert done.code == 1
    assert done.stderr == f"error: there is no {unit_file(shell)}\n"


async def test_a_dry_run_and_a_print_do_nothing(supervised: Terminal) -> None:
    shell = supervised
    done = await shell.run("service", "install", "--user", "--dry-run", PATH=path_of(shell))
    assert done.code == 0
    assert done.stderr.splitlines()[:2] == [
        f"would write {unit_file(shell)}",
        "would run systemctl --user daemon-reload",
    ]
    printed = await shell.run("service", "install", "--user", "--print", PATH=path_of(shell))
    assert printed.stdout.startswith("# Written by `ostiary")
    assert "\nType=notify\n" in printed.stdout
    assert not unit_file(shell).exists()
    assert ran(shell) == []


async def test_options_of_serve_are_checked_and_land_in_the_unit(supervised: Terminal) -> None:
    shell = supervised
    words = ("service", "install", "--user", "--print", "--")
    (shell.home / "agent.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n", "utf-8")
    done = await shell.run(*words, "--port", "443", "agent.py", PATH=path_of(shell))
    assert f" serve --port 443 {shell.home / 'agent.py'}\n" in done.stdout
    # An agent that is a program: it may do what programs do.
    assert "MemoryDenyWriteExecute" not in done.stdout

    done = await shell.run(*words, "--prot", "443", PATH=path_of(shell))
    assert done.code == 2
    assert "no such option '--prot'" in done.stderr
    done = await shell.run(*words, "--port", "70000", PATH=path_of(shell))
    assert done.code == 2
    assert "--port" in done.stderr
    done = await shell.run(*words, "--stdio", PATH=path_of(shell))
    assert done.code == 2


async def test_settings_are_read_first_and_named_by_their_whole_path(supervised: Terminal) -> None:
    shell = supervised
    settings = shell.home / "ostiary.toml"
    settings.write_text('port = 8500\n[[server]]\n[[server.agent]]\nkind = "demo"\n', "utf-8")
    done = await shell.run("service", "install", "--user", "--print", PATH=path_of(shell))
    assert f"serve --config {settings}\n" in done.stdout
    assert "MemoryDenyWriteExecute=yes" in done.stdout
    settings.write_text("prot = 8500\n", "utf-8")
    done = await shell.run("service", "install", "--user", PATH=path_of(shell))
    assert done.code == 2
    assert "prot" in done.stderr
    assert not unit_file(shell).exists()


async def test_without_systemd_it_says_so_and_how_to_get_the_unit(shell: Terminal) -> None:
    done = await shell.run("service", "status", "--user", PATH=str(shell.home))
    assert done.code == 1
    assert "there is no systemctl here" in done.stderr
    assert "ostiary service install --print" in done.stderr


@pytest.mark.parametrize("name", ["../evil", "Ostiary", "-x", "a" * 60, ""])
def test_a_name_that_could_be_a_path_or_an_option_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["service", "status", "--name", name]) == 2
    assert "small letters" in capsys.readouterr().err


def test_a_service_of_the_machine_is_not_started_from_somebodys_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ostiary"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("server.cli.this_program.service.PRIVATE", (str(tmp_path),))
    monkeypatch.setattr("sys.argv", [str(program)])
    assert run(["service", "install", "--system", "--print"]) == 1
    told = capsys.readouterr()
    assert "out of reach" in told.err
    assert told.out == ""
    monkeypatch.setattr("server.cli.this_program.service.PRIVATE", ())
    settings = tmp_path / "settings.toml"
    settings.write_text('[[server]]\n[[server.agent]]\nkind = "skills"\npath = "~/skills"\n', "utf-8")
    assert run(["service", "install", "--system", "--print", "--config", str(settings)]) == 0
    assert "\nProtectHome=read-only\n" in capsys.readouterr().out
    words = ["service", "install", "--system", "--print"]
    for options, user in (
        (["--", "--", "some-server"], "ostiary-programs"),
        (["--programs-run-as", "bob", "--", "--", "some-server"], "bob"),
        (["--programs-run-as", "ostiary", "--", "--", "some-server"], ""),
        ([], ""),
    ):
        assert run([*words, *options]) == 0
        unit = capsys.readouterr().out
        assert (f"\nEnvironment=OSTIARY_PROGRAMS_RUN_AS={user}\n" in unit) is bool(user)
        assert ("CAP_SETUID" in unit) is bool(user)
    assert f"ExecStart={program} serve --data-dir /var/lib/ostiary\n" in unit
    assert "\nUser=ostiary\n" in unit


def test_a_service_may_listen_on_port_80_beside_a_port_that_anybody_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ostiary"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("server.cli.this_program.service.PRIVATE", ())
    monkeypatch.setattr("sys.argv", [str(program)])
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'domain = ["agent.example.org"]\naccept_terms = true\nport = 8443\nhttp_port = 80\n', "utf-8"
    )
    assert run(["service", "install", "--system", "--print", "--config", str(settings)]) == 0
    assert "\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n" in capsys.readouterr().out
