"""What `install` and `uninstall` share: which program and file are meant, and how a change is shown, asked about and written."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from server.cli import terminal
from server.cli.form import this_again
from server.cli.terminal import say

if TYPE_CHECKING:
    from server.client.programs.config_file import Found
    from server.client.programs.installed_entries import InstalledEntries
    from server.client.programs.program_table import Program

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# The table is not imported for `--help`.
CLIENTS: Final = (
    "claude-code",
    "claude-desktop",
    "cursor",
    "vscode",
    "codex",
    "gemini",
    "windsurf",
    "hermes",
)

# In the folder of the command line: how projects' files were.
BACKUPS: Final = "backups"


def which_file(command: Decorated) -> Decorated:
    """The program, and whether its file for this project is meant instead of the one for everything."""
    command = click.option("--project", is_flag=True, help="the file of the project in this directory")(
        command
    )
    return click.argument("client", metavar="CLIENT", type=click.Choice(CLIENTS, case_sensitive=False))(
        command
    )


def file_of(client: str, *, project: bool) -> tuple[Program, Found]:
    """The program's row and its file as it is now. Raises `CliError`, `FileRefused`."""
    from server.client.programs.config_file import look
    from server.client.programs.program_table import PROGRAMS, Surroundings
    from server.client.token_file import token_directory

    program = PROGRAMS[client]
    if not project:
        where = Surroundings(home=Path.home(), platform=sys.platform, environ=os.environ)
        return program, look(program.user_file(where), new_mode=0o600)
    if program.project_file is None:
        raise terminal.Misuse(f"{program.title} has no file for a project", hint="leave out --project")
    # What is left in a project is soon somebody's commit.
    backups = token_directory(os.environ) / BACKUPS
    return program, look(Path.cwd() / program.project_file, new_mode=0o644, backups=backups)


def ledger() -> InstalledEntries:
    from server.client.programs.installed_entries import InstalledEntries
    from server.client.token_file import token_directory

    return InstalledEntries(token_directory(os.environ))


def this_program() -> list[str]:
    """How somebody else's program starts us, from whatever directory."""
    again = this_again()
    if len(again) == 1:
        return [*again]
    started = Path(sys.argv[0])
    if started.name.startswith("ostiary") and os.access(started, os.X_OK):
        return [str(started.resolve())]
    found = shutil.which("ostiary")
    return [found] if found else [*again]


def agreed(question: str, *, yes: bool) -> bool:
    """Whether to go on. A program that cannot be asked has to say so beforehand."""
    if yes:
        return True
    if not terminal.is_terminal(sys.stdin):
        raise terminal.Misuse("nobody is here to be asked", hint="--yes goes ahead, --print only shows it")
    return terminal.confirmed(question)


def show(text: str) -> None:
    """Words of a file, set in."""
    say()
    for line in text.strip("\r\n").splitlines():
        say(f"    {terminal.clean(line, keep_lines=True)}")
    say()
