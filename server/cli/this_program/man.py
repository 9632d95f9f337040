"""`ostiary man`: the manual page, shown on a terminal and printed for everything else."""

from __future__ import annotations

import shutil
import sys

import click

from server.cli import terminal


@click.command("man")
def command() -> int:
    """Show the manual page, with every command and option. Where stdout is no terminal, print its source: for a file
    ostiary.1 in a folder of manual pages."""
    from server.cli.this_program.outline import program, sections
    from server.cli.this_program.roff import manual

    groups = sections()
    page = manual(groups, program(groups))
    reader = shutil.which("man") if terminal.is_terminal(sys.stdout) else None
    if reader is None:
        terminal.out(page.rstrip("\n"))
        return 0
    import subprocess
    from tempfile import NamedTemporaryFile

    from server.cli.browser import environment_of_others

    # By its name: not every `man` reads from a pipe.
    with NamedTemporaryFile("w", prefix="ostiary-", suffix=".1", encoding="utf-8") as file:
        file.write(page)
        file.flush()
        return subprocess.run([reader, "-l", file.name], env=environment_of_others(), check=False).returncode
