from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from server import __version__
from server.cli import COMMANDS, run

HEAVY = (
    "trio",
    "quart",
    "quart_trio",
    "hypercorn",
    "cryptography",
    "authlib",
    "joserfc",
    "msgspec",
    "jinja2",
    "segno",
    "jsonschema_rs",
)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], [], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from server.cli import run\n"
        f"code = run({arguments!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    assert done.stdout


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr() == (f"ostiary {__version__}\n", "")


def test_without_a_command_every_command_is_listed_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    overview = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == overview
    longest = max(map(len, COMMANDS))
    for name, entry in COMMANDS.items():
        assert f"  {name.ljust(longest)}  {entry.help}\n" in overview
    assert "usage: ostiary COMMAND …" in overview


@pytest.mark.parametrize("words", [[], ["login"], ["keys"], ["keys", "list"]], ids=" ".join)
def test_help_can_be_asked_for_in_three_ways(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    explained = capsys.readouterr()
    for asked in (["help", *words], [*words, "-h"]):
        assert run(asked) == 0
        assert capsys.readouterr() == explained


def test_help_for_what_there_is_not_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "logn"]) == 2
    said = "error: no such command 'logn', did you mean 'login'?\nhint: ostiary --help\n"
    assert capsys.readouterr() == ("", said)


def test_version_is_a_command_as_well_and_says_more_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr() == (f"ostiary {__version__}\n", "")
    assert run(["version", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == __version__
    assert told["form"] == "checkout"
    assert told["python"].startswith("3.")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_in_our_voice(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    explained = capsys.readouterr().out
    assert explained.startswith(f"usage: ostiary {name}")
    assert "Show this message" not in explained
    assert "Options:" not in explained


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_is_wider_than_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    helps = [capsys.readouterr().out]
    listed = helps[0].partition("\ncommands:\n")[2]
    for below in re.findall(r"^  (\S+)", listed, re.MULTILINE):
        assert run([name, below, "--help"]) == 0
        helps.append(capsys.readouterr().out)
    assert [line for told in helps for line in told.splitlines() if len(line) > 80] == []
    assert "..." not in listed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["install"],
            "error: missing argument 'CLIENT', choose from: claude-code, claude-desktop, cursor, vscode, codex, gemini,"
            " windsurf, hermes\nhint: ostiary install --help\n",
        ),
        (["logn"], "error: no such command 'logn', did you mean 'login'?\nhint: ostiary --help\n"),
        (["xyzzy"], "error: no such command 'xyzzy'\nhint: ostiary --help\n"),
        (["--vers"], "error: no such option '--vers', did you mean '--version'?\nhint: ostiary --help\n"),
        (["logout"], "error: missing argument 'URL'\nhint: ostiary logout --help\n"),
        (["token", "a", "b"], "error: got unexpected extra argument (b)\nhint: ostiary token --help\n"),
        (
            ["call", "x", "y", "--timeout", "long"],
            "error: invalid value for '--timeout': 'long' is no time: write 90, 90s or 5m\nhint: ostiary call --help\n",
        ),
    ],
)
def test_a_misused_command_says_how_to_use_it(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr() == ("", said)


def test_the_clients_of_install_are_those_of_its_table() -> None:
    from server.cli.use.installing import CLIENTS
    from server.client.programs.program_table import PROGRAMS

    assert tuple(PROGRAMS) == CLIENTS
