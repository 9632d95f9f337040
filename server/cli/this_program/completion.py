"""`ostiary completion SHELL`: print what makes the shell complete our commands."""

from __future__ import annotations

from typing import Final

import click

from server.cli import terminal

# The three writers are not imported for `--help`.
SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print a script that completes commands, options and files in SHELL.

    \b
    bash   source <(ostiary completion bash)        in ~/.bashrc
    zsh    source <(ostiary completion zsh)         in ~/.zshrc, after compinit
    fish   ostiary completion fish | source         in ~/.config/fish/config.fish
    """
    from server.cli.this_program.outline import program, sections
    from server.cli.this_program.shells import script_for

    terminal.out(script_for(shell, program(sections())).rstrip("\n"))
