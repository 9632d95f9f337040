"""`ostiary help [COMMAND …]`: what `--help` says, for those who ask in this order."""

from __future__ import annotations

import click


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND …]")
def command(words: tuple[str, ...]) -> int:
    """Explain COMMAND, as `ostiary COMMAND --help` does. Without one: list all commands."""
    from server.cli import run

    return run([*words, "--help"])
