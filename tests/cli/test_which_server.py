"""Which server a command means where it is not said, and which of its words is an address."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace
from shell import Terminal

from server.admin import control
from server.cli import local
from server.cli.terminal import CliError, Misuse
from server.cli.use import which_server
from server.client.token_file import CHOSEN, TokenFile
from tests.client.fake_server import FakeServer
from tests.client.test_token_file import login

HERE, THERE = "https://a.example/mcp", "https://b.example/mcp"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenFile:
    monkeypatch.setenv(CHOSEN, str(tmp_path))
    return TokenFile(tmp_path)


@pytest.mark.parametrize(
    ("words", "least", "typed", "rest"),
    [
        (["http://localhost:1/mcp", "echo"], 1, "http://localhost:1/mcp", ["echo"]),
        (["8420", "echo", "text=x"], 1, "8420", ["echo", "text=x"]),
        ([":8420"], 0, ":8420", []),
        (["localhost", "echo"], 1, "localhost", ["echo"]),
        (["[::1]:8420", "echo"], 1, "[::1]:8420", ["echo"]),
        (["a.example", "echo"], 1, "a.example", ["echo"]),
        (["c.example/mcp", "echo", "a=b"], 1, "c.example/mcp", ["echo", "a=b"]),
        (["c.example"], 0, "c.example", []),
        (["files.read", "path=x"], 1, "", ["files.read", "path=x"]),
        (["files.read", '{"path": "x"}'], 1, "", ["files.read", '{"path": "x"}']),
        (["files.read", "-"], 1, "", ["files.read", "-"]),
        (["files.read"], 1, "", ["files.read"]),
        (["echo", "text=http://localhost:1/"], 1, "", ["echo", "text=http://localhost:1/"]),
        (["echo"], 0, "", ["echo"]),
        ([], 0, "", []),
    ],
)
def test_a_first_word_is_an_address_where_it_can_be_nothing_else(
    file: TokenFile, words: Sequence[str], least: int, typed: str, rest: Sequence[str]
) -> None:
    file.begin(login(HERE))
    assert which_server.split(words, least=least) == (typed, tuple(rest))


def test_a_server_without_a_tool_to_call_is_asked_about(file: TokenFile) -> None:
    with pytest.raises(Misuse, match=r"which tool of http://localhost:1/mcp\?"):
        which_server.split(["http://localhost:1/mcp"], least=1)


def test_the_only_login_is_meant_else_the_last_that_was_made_and_never_one_by_chance(file: TokenFile) -> None:
    with pytest.raises(Misuse, match="no server is named"):
        which_server.usual()
    file.begin(login(HERE))
    assert which_server.usual().url == HERE
    file.begin(login(THERE))
    assert which_server.usual().url == THERE
    file.put(replace(login(HERE), scope="more"))  # a refresh is no new login
    assert which_server.usual().url == THERE
    file.begin(login("https://c.example/mcp"))
    file.drop("https://c.example/mcp")
    with pytest.raises(Misuse, match="logged in to 2 servers"):
        which_server.usual()
    assert which_server.of("a.example").url == HERE


def test_a_login_is_to_the_server_that_runs_here_where_none_is_named_else_to_the_usual_one(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: dict[str, object] = {}

    def ask(name: str) -> dict[str, object]:
        assert name == "status"
        if not running:
            raise CliError("no server is running")
        return running

    monkeypatch.setattr(local, "ask", ask)
    with pytest.raises(Misuse, match="no server is named"):
        which_server.to_log_in_to(None)
    file.begin(login(HERE))
    assert which_server.to_log_in_to(None).url == HERE
    running |= {"origin": "http://localhost:1", "paths": {"first": "/one", "second": "/two"}}
    assert which_server.to_log_in_to(None).url == "http://localhost:1/one"
    assert which_server.to_log_in_to("b.example").url == THERE


def test_a_login_waits_for_a_server_here_that_is_busy_and_goes_to_no_other(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(data_dir: Path, name: str, arguments: object) -> NoReturn:
        raise control.CommandNotAnswered("the server did not answer", "see its log")

    file.begin(login(THERE))
    monkeypatch.setattr(control, "ask", ask)
    with pytest.raises(local.ServerNotAnswered):
        which_server.to_log_in_to(None)


async def test_tools_are_listed_and_called_and_a_token_is_printed_without_naming_the_server(
    logged_in: Terminal, fake: FakeServer
) -> None:
    listed = await logged_in.run("tools")
    assert (listed.code, fake.url in listed.stderr) == (0, False)
    assert "hint: ostiary call echo text=…" in listed.stderr
    called = await logged_in.run("call", "echo", "text=hello")
    assert (called.code, called.stdout) == (0, "hello\n")
    shown = await logged_in.run("tools", "echo", "--json")
    assert json.loads(shown.stdout)["name"] == "echo"
    assert (await logged_in.run("token")).stdout.strip()
    wrong = await logged_in.run("call", "ecko", "text=hello")
    assert "did you mean echo?" in wrong.stderr
    many = await logged_in.run("tools", "echo", "clock")
    assert (many.code, "one tool at a time" in many.stderr) == (2, True)
