"""Hints run as they are printed, and what was mistyped is asked about in one voice."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from server.cli import hints, terminal
from server.cli.use import which_server
from server.lib import paths


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
    # A checkout, whose script says by itself how it was started: its whole way, where the shell found it by its name.
    monkeypatch.setenv("OSTIARY_PROGRAM", str(here / "ostiary"))
    assert terminal.program() == "ostiary"
    monkeypatch.setenv("PATH", str(elsewhere))
    assert terminal.program() == str(here / "ostiary")
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
    given = {"--data-dir": "/a b", "--config": "o.toml"}
    both = " --data-dir '/a b' --config o.toml"
    for text, repeated in (
        ("ostiary approve CODE, with it", f"ostiary approve CODE{both}, with it"),
        ("ostiary deny WDJB-MJHT", f"ostiary deny WDJB-MJHT{both}"),
        (
            "ostiary sessions lists them, ostiary revoke ID",
            f"ostiary sessions{both} lists them, ostiary revoke ID{both}",
        ),
        ("ostiary api-keys revoke ID ends it", f"ostiary api-keys revoke ID{both} ends it"),
        ("`ostiary keys list` or `ostiary doctor`", f"`ostiary keys list{both}` or `ostiary doctor{both}`"),
        # It says so itself, takes no such option, is no command, is none of ours.
        ("ostiary serve --port 1 --data-dir DIR", "ostiary serve --config o.toml --port 1 --data-dir DIR"),
        ("ostiary tools URL", "ostiary tools URL"),
        ("what ostiary is, and ostiary keys besides", "what ostiary is, and ostiary keys besides"),
        ("my-ostiary approve CODE", "my-ostiary approve CODE"),
    ):
        assert hints.for_the_same(text, given) == repeated
        assert hints.for_the_same(repeated, given) == repeated, "said twice, it says the same"
        assert hints.for_the_same(text, {}) == text


async def test_a_hint_repeats_which_server_was_meant(shell: Terminal) -> None:
    done = await shell.run("pending", "--data-dir", "my data")
    assert done.code == 1
    assert "start one with `ostiary serve --data-dir 'my data'`" in done.stderr


async def test_a_login_names_the_data_directory_of_the_server_that_it_is_at(
    shell: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server runs, elsewhere than usually; then a second one, where it usually is."""
    elsewhere = shell.home / "else where"
    async with AsyncExitStack() as stack:
        # Short: where the name of a socket would be too long for one, it is elsewhere, and servers are not found by looking.
        runtime = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        for name, value in shell.environment(XDG_RUNTIME_DIR=runtime).items():
            monkeypatch.setenv(name, value)
        first = await stack.enter_async_context(serving_at(shell, elsewhere, runtime=runtime))
        assert await of_server_at(first) == f" --data-dir '{elsewhere}'"
        assert await of_server_at("http://localhost:1") is None, "it is none of this user's"
        usual = await stack.enter_async_context(serving_at(shell, paths.data_home(), runtime=runtime))
        assert await of_server_at(usual) == ""
        assert await of_server_at(first) == f" --data-dir '{elsewhere}'"
        assert await of_server_at("http://localhost:1") is None


async def of_server_at(origin: str) -> str | None:
    return await trio.to_thread.run_sync(which_server.of_server_at, f"{origin}/device")


@asynccontextmanager
async def serving_at(shell: Terminal, data: Path, *, runtime: str = "") -> AsyncGenerator[str]:
    environment = shell.environment(**({"XDG_RUNTIME_DIR": runtime} if runtime else {}))
    server = await trio.lowlevel.open_process(
        shell.command(["serve", "--port", "0", "--data-dir", str(data)]),
        stdout=-1,
        env=environment,
        cwd=shell.home,
    )
    try:
        assert server.stdout is not None
        with trio.fail_after(WAIT_SECONDS):
            said = (await server.stdout.receive_some()).decode()
        assert said, "it has not started"
        yield said.split()[-1]
    finally:
        server.send_signal(signal.SIGTERM)
        with trio.move_on_after(WAIT_SECONDS, shield=True):
            await server.wait()


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        (("install", "cursr"), "did you mean 'cursor'?"),
        (
            ("serve", "--prt", "1"),
            "error: no such option '--prt', did you mean '--http-port', '--port' or '--prefix'?",
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


@pytest.mark.parametrize("command", ["check", "tools", "login"])
async def test_a_file_in_place_of_a_url_is_named_as_one(shell: Terminal, command: str) -> None:
    done = await shell.run(command, "tools.json", HTTPS_PROXY="http://127.0.0.1:1")
    assert done.code == 1
    assert re.match(r"hint: tools\.json is .* not .* a file.* URL\n", done.stderr)


async def test_a_port_that_another_ostiary_has_is_said_to_be_its(shell: Terminal) -> None:
    async with serving_at(shell, shell.home / "one") as origin:
        port = origin.rpartition(":")[2]
        refused = await shell.run("serve", "--port", port, "--data-dir", str(shell.home / "two"))
        assert refused.code == 1
        assert f"error: port {port} " in refused.stderr and f" another Ostiary, {origin}\n" in refused.stderr
        assert f"ostiary serve --port {int(port) + 1} --data-dir DIR" in refused.stderr


async def test_help_of_serve_has_headings_and_every_flag_once(shell: Terminal) -> None:
    from server.settings.plain_settings import PLAIN_SETTINGS

    done = await shell.run("serve", "--help", COLUMNS="200")
    for title, rows in PLAIN_SETTINGS.items():
        assert f"\n{title.lower()}:\n" in done.stdout
        for name, _, text in rows:
            assert done.stdout.count(f"\n  --{name.replace('_', '-')} ") == 1, name
            assert text in " ".join(done.stdout.split())
    assert os.linesep + "  [TARGET]" not in done.stdout
