"""Hints run as they are printed, and what was mistyped is asked about in one voice."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from server.cli import local, terminal


def started(monkeypatch: pytest.MonkeyPatch, way: str, *, path: Path) -> str:
    monkeypatch.delenv("OSTIARY_PROGRAM", raising=False)
    monkeypatch.setattr(sys, "argv", [way, "serve"])
    monkeypatch.setenv("PATH", str(path))
    return terminal.as_started("ostiary login URL, or `ostiary tools`")


def test_commands_are_spelled_as_the_program_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "else where"
    for folder in (here, elsewhere):
        folder.mkdir()
        (folder / "ostiary").write_text("#!/bin/sh\n", "utf-8")
        (folder / "ostiary").chmod(0o700)
    usual = "ostiary login URL, or `ostiary tools`"
    # Found by its name: no way is needed, however it was started.
    assert started(monkeypatch, str(here / "ostiary"), path=here) == usual
    assert started(monkeypatch, "ostiary", path=elsewhere) == usual
    assert started(monkeypatch, "/x/server/__main__.py", path=here) == usual
    monkeypatch.chdir(here)
    assert started(monkeypatch, "./ostiary", path=here) == usual
    # Not found, or another one is.
    assert started(monkeypatch, "./ostiary", path=elsewhere) == "./ostiary login URL, or `./ostiary tools`"
    way = str(elsewhere / "ostiary")
    assert started(monkeypatch, way, path=tmp_path) == f"'{way}' login URL, or `'{way}' tools`"


def test_what_is_for_another_terminal_runs_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, spaced = tmp_path / "home", tmp_path / "else where"
    for folder in (home, spaced):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)

    def there(way: str) -> str:
        monkeypatch.setenv("OSTIARY_PROGRAM", way)
        return terminal.program_anywhere()

    assert there("ostiary") == "ostiary"
    assert there("./ostiary") == "~/ostiary"
    assert there("scripts/ostiary") == "~/scripts/ostiary"
    assert there("/opt/ostiary") == "/opt/ostiary"
    assert there("'/x y/ostiary'") == "'/x y/ostiary'"
    monkeypatch.chdir(spaced)
    assert there("./ostiary") == f"'{spaced}/ostiary'"


def test_the_next_command_means_the_same_server() -> None:
    assert local.again(None, None) == ""
    assert local.again("/a b", None) == " --data-dir '/a b'"
    assert local.again(None, "o.toml") == " --config o.toml"


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        (("install", "cursr"), "did you mean 'cursor'?"),
        (
            ("serve", "--prt", "1"),
            "error: no such option '--prt', did you mean '--http-port', '--port' or '--tcp'?",
        ),
        (("audit", "--limit", "0"), "error: invalid value for '--limit': 0 is not from 1 to 100000"),
        (
            ("audit", "--outcome", "zzz"),
            "error: invalid value for '--outcome': 'zzz' is not one of 'ok', 'refused'",
        ),
        (("keys", "lis"), "error: no such command 'lis', did you mean 'list'?"),
    ],
)
async def test_what_was_mistyped_is_asked_about(shell: Terminal, typed: tuple[str, ...], error: str) -> None:
    done = await shell.run(*typed)
    assert done.code == 2
    assert error in done.stderr
    assert "(Did you" not in done.stderr


async def test_a_name_that_is_nearly_one_given_here_is_asked_about(shell: Terminal) -> None:
    await shell.run("mcp", "add", "door", "http://127.0.0.1:1/mcp")
    done = await shell.run("tools", "dor")
    assert done.stderr.startswith("hint: dor is taken for a host; did you mean door?\n")
    assert "did you mean" not in (await shell.run("tools", "door")).stderr


async def test_a_port_that_another_ostiary_has_is_said_to_be_its(shell: Terminal) -> None:
    flags = ("--host", "127.0.0.1", "--data-dir")
    server = await trio.lowlevel.open_process(
        shell.command(["serve", "--port", "0", *flags, str(shell.home / "one")]),
        stdout=-1,
        stderr=-3,
        env=shell.environment(),
        cwd=shell.home,
    )
    try:
        assert server.stdout is not None
        with trio.fail_after(WAIT_SECONDS):
            said = (await server.stdout.receive_some()).decode()
        origin = said.split()[-1]
        port = origin.rpartition(":")[2]
        refused = await shell.run("serve", "--port", port, *flags, str(shell.home / "two"))
        assert refused.code == 1
        assert f"error: port {port} is in use by another Ostiary, {origin}\n" in refused.stderr
        assert f"ostiary serve --port {int(port) + 1} --data-dir DIR" in refused.stderr
    finally:
        server.send_signal(signal.SIGTERM)
        with trio.move_on_after(WAIT_SECONDS):
            await server.wait()


async def test_help_of_serve_has_headings_and_every_flag_once(shell: Terminal) -> None:
    from server.cli.serve import FLAGS, HEADINGS

    done = await shell.run("serve", "--help", COLUMNS="200")
    assert [f"\n{title}:\n" in done.stdout for title in HEADINGS.values()] == [True] * len(HEADINGS)
    for name, _, text in FLAGS:
        assert done.stdout.count(f"\n  --{name} ") == 1, name
        assert text in " ".join(done.stdout.split())
    assert os.linesep + "  [TARGET]" not in done.stdout
