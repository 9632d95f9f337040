"""`ostiary uninstall` without a program's name: what it finds of Ostiary, and what it takes away."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from shell import Terminal

from server.store.data_directory import open_home


@pytest.fixture
def lived_in(shell: Terminal) -> Terminal:
    """A home in which a server ran, somebody was logged in, and a program was given a server."""
    data = shell.home / ".local/share/ostiary"
    (data / "backups").mkdir(parents=True, mode=0o700)
    data.chmod(0o700)
    for name in ("ostiary.db", "ostiary.db-wal", "master.key", "audit.head", "backups/ostiary-1.db"):
        (data / name).write_bytes(b"x" * 100)
    shell.config.mkdir(mode=0o700)
    (shell.config / "tokens.json").write_text("{}", "utf-8")
    (shell.config / "backups").mkdir(mode=0o700)
    (shell.config / "backups/.mcp.json-0123abcd.bak-20260101T000000").write_text("{}", "utf-8")
    units = shell.home / ".config/systemd/user"
    units.mkdir(parents=True)
    (units / "other.service").write_text("[Service]\nExecStart=/bin/other\n", "utf-8")
    return shell


def data_of(shell: Terminal) -> Path:
    return shell.home / ".local/share/ostiary"


async def test_what_is_here_is_listed_and_left(lived_in: Terminal) -> None:
    shell = lived_in
    before = sorted(path for path in shell.home.rglob("*") if path.is_file())
    done = await shell.run("uninstall")
    assert done.code == 0
    kinds = [line.split()[0] for line in done.stdout.splitlines()]
    assert kinds == ["logins", "data", "program"]
    assert str(data_of(shell)) in done.stdout
    assert "1 back-ups" not in done.stdout
    assert "1 back-up" in done.stdout
    assert "--remove WHAT --yes" in done.stderr
    named = await shell.run("uninstall", "--remove", "data")
    assert f"would remove {data_of(shell)}" in named.stderr
    assert sorted(path for path in shell.home.rglob("*") if path.is_file()) == before


async def test_only_what_is_named_goes_and_only_with_yes(lived_in: Terminal) -> None:
    shell = lived_in
    done = await shell.run("uninstall", "--yes")
    assert done.code == 2
    assert "--remove" in done.stderr
    assert data_of(shell).exists()
    done = await shell.run("uninstall", "--remove", "data", "--yes", "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["removed"] == [str(data_of(shell))]
    assert not data_of(shell).exists()
    assert (shell.config / "tokens.json").exists()
    done = await shell.run("uninstall", "--remove", "logins", "--yes")
    assert done.code == 0
    assert not shell.config.exists()


async def test_what_is_not_ours_in_the_same_folders_stays(lived_in: Terminal) -> None:
    shell = lived_in
    (data_of(shell) / "holiday.jpg").write_bytes(b"x")
    (shell.config / "wallet-main.pem").write_bytes(b"x")
    done = await shell.run("uninstall", "--remove", "data", "--remove", "logins", "--yes")
    assert done.code == 0, done.stderr
    assert [path.name for path in data_of(shell).iterdir()] == ["holiday.jpg"]
    assert [path.name for path in shell.config.iterdir()] == ["wallet-main.pem"]


async def test_keys_of_certificates_go_and_what_is_not_ours_stays_in_each_folder(lived_in: Terminal) -> None:
    shell = lived_in
    data = data_of(shell)
    for name in ("acme/certificate.pem", "acme/account.json", "acme/account.lock", "paying/spending.json"):
        (data / name).parent.mkdir(mode=0o700, exist_ok=True)
        (data / name).write_bytes(b"x")
    (data / "backups/notes.txt").write_bytes(b"x")
    done = await shell.run("uninstall", "--remove", "data", "--yes")
    assert done.code == 0, done.stderr
    assert [path for path in data.rglob("*") if path.is_file()] == [data / "backups/notes.txt"]
    assert [path.name for path in data.iterdir()] == ["backups"]


async def test_what_a_link_in_the_data_leads_to_stays(lived_in: Terminal) -> None:
    shell = lived_in
    theirs = shell.home / "certificates"
    theirs.mkdir()
    (theirs / "account.json").write_bytes(b"x")
    (data_of(shell) / "acme").symlink_to(theirs)
    done = await shell.run("uninstall", "--remove", "data", "--yes")
    assert done.code == 0, done.stderr
    assert (theirs / "account.json").exists()


async def test_the_data_of_a_server_that_runs_is_not_removed(lived_in: Terminal) -> None:
    shell = lived_in
    with open_home(data_of(shell)):
        done = await shell.run("uninstall", "--remove", "data", "--yes")
    assert done.code == 1
    assert "is in use by process" in done.stderr
    assert (data_of(shell) / "ostiary.db").exists()


async def test_a_service_and_a_programs_settings_are_found_and_taken_out(shell: Terminal) -> None:
    programs = shell.home / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text("#!/bin/sh\nexit 0\n", "utf-8")
    (programs / "systemctl").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    done = await shell.run("service", "install", "--user", PATH=path)
    assert done.code == 0, done.stderr
    done = await shell.run("install", "cursor", "https://a.example/mcp", "--yes", "--no-verify")
    assert done.code == 0, done.stderr
    unit = shell.home / ".config/systemd/user/ostiary.service"
    found = await shell.run("uninstall", "--json")
    left = {each["kind"]: each["where"] for each in json.loads(found.stdout)["left"]}
    assert left["service"] == str(unit)
    assert left["clients"] == str(shell.home / ".cursor/mcp.json")
    done = await shell.run("uninstall", "--remove", "service", "--remove", "clients", "--yes", PATH=path)
    assert done.code == 0, done.stderr
    assert not unit.exists()
    assert not (shell.home / ".cursor/mcp.json").exists()


async def test_removing_belongs_to_ostiary_itself(shell: Terminal) -> None:
    done = await shell.run("uninstall", "cursor", "--remove", "data", "--yes")
    assert done.code == 2
    assert "without CLIENT" in done.stderr
