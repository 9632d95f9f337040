"""Every command of the program: its help, its answer where no server runs, and a true start of it beside the forked one of other tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from shell import Done, Terminal

from server import __version__
from server.cli import COMMANDS, run
from server.cli.this_program.outline import program, sections
from tests.snapshots import Snapshot

NOWHERE: Final = "http://127.0.0.1:1/mcp"
EVERY: Final = [" ".join(each.words) for each in program(sections()).all() if each.words]
# Arguments with which a command ends by itself; without a row, it is started without any.
ARGUMENTS: Final[Mapping[str, str]] = {
    "serve": "--config missing.toml",
    "backup": "copy.db",
    "restore": "copy.db",
    "store copy": "--to env:OTHER",
    "upstream diff": "math",
    "upstream accept": "math",
    "upstream forget": "math --all",
    "upstream login": "math",
    "upstream logout": "math",
    "certificate revoke": "--yes",
    "policy check": "echo",
    "doctor": NOWHERE,
    "check": NOWHERE,
    "skills new": "desk",
    "skills route": "hello",
    "skills get": "greet",
    "skills resolve": "greet",
    "skills run": "hello",
    "claim": "--json",
    "approve": "WDJB-MJHT",
    "deny": "WDJB-MJHT",
    "revoke": "--all --yes",
    "invite": "bob --json",
    "users show": "bob",
    "users set": "bob --tools all",
    "users reset": "bob --json",
    "users unlock": "bob --json",
    "users lock": "bob",
    "users remove": "bob --yes",
    "users disable": "bob",
    "users enable": "bob",
    "clients add": "desk",
    "clients rotate-secret": "desk",
    "clients disable": "desk",
    "clients enable": "desk",
    "clients remove": "desk --yes",
    "api-keys create": "ci",
    "api-keys revoke": "ci",
    "plans grant": "bob pro",
    "plans end": "1",
    "ledger resolve": "payment --refused --yes",
    "ledger refund": "1 --yes",
    "ledger grant": "bob $1",
    "vouchers new": "--amount $5",
    "vouchers revoke": "1",
    "login": NOWHERE,
    "logout": NOWHERE,
    "whoami": NOWHERE,
    "token": NOWHERE,
    "tools": NOWHERE,
    "call": f"{NOWHERE} echo",
    "snippets": "curl echo",
    "import": NOWHERE,
    "mock diff": "one.yaml other.yaml",
    "mock duplicate": "one.yaml other.yaml",
    "connect": NOWHERE,
    "mcp add": f"here {NOWHERE}",
    "mcp remove": "here",
    "wallet deposit": f"{NOWHERE} $1 --yes",
    "install": f"cursor {NOWHERE} --print",
    "uninstall": "cursor here",
    "service install": "--user --dry-run",
    "service uninstall": "--user",
    "service status": "--user",
    "completion": "bash",
}
LINES: Final = [f"{words} {ARGUMENTS.get(words, '')}".strip() for words in EVERY]


def shell_in(home: Path) -> Terminal:
    home.mkdir()
    return Terminal(home)


def told(done: Done, shell: Terminal) -> str:
    """Return what a command answered, as it is on every machine and on each run."""
    lines = [*done.stdout.splitlines(), *(f"! {each}" for each in done.stderr.splitlines()), f"= {done.code}"]
    text = "\n".join(lines).replace(str(shell.home), "~").replace(__version__, "VERSION")
    return re.sub(r"0x[0-9a-fA-F]{40}", "0xADDRESS", text)


def test_the_help_of_every_command(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    helps: list[str] = []
    for words in ["", *EVERY]:
        assert run([*words.split(), "--help"]) == 0
        said = capsys.readouterr()
        assert not said.err
        helps.append(f"$ ostiary {words} --help\n{said.out}")
    snapshot("commands_help", "\n".join(helps))


@pytest.mark.slow
async def test_what_every_command_says_where_no_server_runs(tmp_path: Path, snapshot: Snapshot) -> None:
    assert ARGUMENTS.keys() <= set(EVERY)
    answers: dict[str, list[str]] = {}
    for words, line in zip(EVERY, LINES, strict=True):
        shell = shell_in(tmp_path / words)
        done = await shell.run(*line.split(), PATH=str(shell.home))
        assert f"hint: ostiary {words} --help" not in done.stderr, "it needs arguments: give it a row above"
        answer = told(done, shell)
        if answer.startswith("! usage: ") or len(answer.splitlines()) > 30:  # read elsewhere
            answer = answer.partition("\n")[0] + "\n…"
        answers.setdefault(answer, []).append(f"$ ostiary {line}")
    snapshot(
        "commands_without_server", "\n\n".join("\n".join([*lines, each]) for each, lines in answers.items())
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", [*LINES, *(f"{words} --help" for words in COMMANDS)])
async def test_a_command_that_starts_python_says_what_a_forked_one_says(tmp_path: Path, line: str) -> None:
    forked, alone = shell_in(tmp_path / "forked"), shell_in(tmp_path / "alone")
    done = await alone.run_alone(*line.split(), PATH=str(alone.home))
    assert told(done, alone) == told(await forked.run(*line.split(), PATH=str(forked.home)), forked)
    assert not line.endswith(" --help") or (done.code == 0 and not done.stderr)
