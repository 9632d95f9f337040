from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from shlex import quote

import pytest

from server.cli import COMMANDS, run
from server.cli.this_program.completion import SHELLS
from server.cli.this_program.outline import CommandOutline, program, sections
from server.cli.use.installing import CLIENTS

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def outline() -> CommandOutline:
    return program(sections())


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "settings.toml").touch()
    (tmp_path / "state of things").mkdir()
    return tmp_path


def shell_program(name: str) -> str:
    """scripts/peers brings those that a machine does not have."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not here: scripts/peers system installs it")
    return found


def complete_in_bash(script: str, folder: Path, *words: str) -> set[str]:
    """What bash would offer for the last of `words`, as readline hands them on."""
    (folder.parent / "completion.bash").write_text(script, "utf-8")
    typed = " ".join(map(quote, words))
    asked = (
        f"source ../completion.bash; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _ostiary;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-u", "-c", asked],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return {line for line in done.stdout.splitlines() if line}


def complete_in_fish(script: str, folder: Path, *words: str) -> set[str]:
    (folder.parent / "completion.fish").write_text(script, "utf-8")
    asked = f"source ../completion.fish; complete -C {quote(' '.join(words))}"
    done = subprocess.run(
        [shell_program("fish"), "--no-config", "-c", asked],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"HOME": str(folder.parent), "PATH": "/usr/bin:/bin"},
    )
    assert done.stderr == ""
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


# Of zsh's completion system these three are what our function hands its findings to.
ZSH_HANDS = """
compdef() { :; }
compadd() { while [[ $1 == -* ]]; do [[ $1 == -a ]] && { shift; print -l -- ${(P)1}; return 0; }; shift; done; print -l -- "$@"; }
_describe() { local rows=${@[-1]}; local row; for row in ${(P)rows}; do print -r -- "${row%%:*}"; done; }
_files() { [[ $1 == -/ ]] && print -l -- *(/) || print -l -- *; }
compset() { PREFIX=${PREFIX#*=}; }
"""


def complete_in_zsh(script: str, folder: Path, *words: str) -> set[str]:
    (folder.parent / "completion.zsh").write_text(script, "utf-8")
    typed = " ".join(map(quote, words))
    asked = (
        f"{ZSH_HANDS}\nsource ../completion.zsh; words=({typed}); CURRENT={len(words)};"
        f" PREFIX={quote(words[-1])}; _ostiary"
    )
    done = subprocess.run(
        [shell_program("zsh"), "-f", "-c", asked],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    # The completion system itself keeps what begins as the word does.
    begun = words[-1].rpartition("=")[2]
    return {line for line in done.stdout.splitlines() if line.startswith(begun)}


COMPLETE = {"bash": complete_in_bash, "zsh": complete_in_zsh, "fish": complete_in_fish}
# Which need what not every machine has.
IN_EACH = pytest.mark.parametrize(
    "shell",
    ["bash", pytest.param("zsh", marks=pytest.mark.peers), pytest.param("fish", marks=pytest.mark.peers)],
)


@IN_EACH
def test_a_shell_offers_the_commands_then_those_below_and_their_options(
    shell: str, outline: CommandOutline, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, complete = script_of(shell, capsys), COMPLETE[shell]
    assert complete(script, folder, "ostiary", "") == set(COMMANDS)
    assert complete(script, folder, "ostiary", "ke") == {"keys"}
    keys = next(command for command in outline.commands if command.words == ("keys",))
    assert complete(script, folder, "ostiary", "keys", "") == {each.words[-1] for each in keys.commands}
    assert {"--data-dir", "--json", "--help"} <= complete(script, folder, "ostiary", "status", "--")
    assert "--json" not in complete(script, folder, "ostiary", "--")


@IN_EACH
def test_a_shell_offers_choices_and_files_where_they_are_meant_and_nothing_elsewhere(
    shell: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, complete = script_of(shell, capsys), COMPLETE[shell]
    assert complete(script, folder, "ostiary", "install", "") == set(CLIENTS)
    assert complete(script, folder, "ostiary", "audit", "--outcome", "") == {"ok", "refused"}
    assert complete(script, folder, "ostiary", "serve", "--config", "se") == {"settings.toml"}
    (only,) = complete(script, folder, "ostiary", "serve", "--data-dir", "st")
    assert only.rstrip("/") == "state of things"
    assert complete(script, folder, "ostiary", "serve", "--port", "") == set()
    assert complete(script, folder, "ostiary", "whoami", "") == set()


@IN_EACH
def test_a_shell_passes_over_what_is_typed_behind_an_option(
    shell: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, complete = script_of(shell, capsys), COMPLETE[shell]
    # `list` is a directory here, and no command.
    offered = complete(script, folder, "ostiary", "keys", "list", "--data-dir", "list", "--")
    assert {"--data-dir", "--json"} <= offered
    assert complete(script, folder, "ostiary", "status", "--data-dir", "keys", "") == set()


def test_bash_completes_a_value_that_an_equals_sign_joins_to_its_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of("bash", capsys)
    assert complete_in_bash(script, folder, "ostiary", "serve", "--config", "=", "se") == {"settings.toml"}
    assert complete_in_bash(script, folder, "ostiary", "serve", "--config", "=") == {
        "settings.toml",
        "state of things",
    }


@pytest.mark.peers
def test_zsh_takes_the_script_as_a_function_of_its_completion_system(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is installed: a file `_ostiary` in a folder of $fpath, found by its first line."""
    (folder / "_ostiary").write_text(script_of("zsh", capsys), "utf-8")
    asked = (
        f"fpath=({quote(str(folder))} $fpath); autoload -U compinit; compinit -u -D; print $_comps[ostiary]"
    )
    done = subprocess.run(
        [shell_program("zsh"), "-f", "-c", asked], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("_ostiary\n", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_the_script(
    shell: str, outline: CommandOutline, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of(shell, capsys)
    commands = [each for each in outline.all() if each.words]
    assert len(commands) > 60
    for each in commands:
        assert f" {' '.join(each.words)}" in script
        for option in each.options:
            long = option.names[-1]
            assert (f"-l {long[2:]} " in script) if shell == "fish" else (long in script), (each.words, long)


def test_a_shell_that_is_not_known_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


def test_what_help_shows_is_what_the_outline_holds(
    outline: CommandOutline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Completion and manual come from the same tables as help: no option of one is missing in the other."""
    for each in outline.all():
        if not each.words:
            continue
        assert run([*each.words, "--help"]) == 0
        told = capsys.readouterr().out
        for option in each.options:
            assert f"  {option.shown}" in told, json.dumps([each.words, option.shown])
