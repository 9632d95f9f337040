"""`ostiary version`: which version this is, and for programs where it came from."""

from __future__ import annotations

import sys

import click

from server import __version__
from server.cli import terminal


@click.command("version")
@terminal.json_option
def command(as_json: bool) -> None:
    """Name this version. With --json also how it was installed, and the Python that runs it."""
    if not as_json:
        terminal.out(f"ostiary {__version__}")
        return
    import platform

    from server.cli.form import form_of_this

    terminal.out_json(
        {
            "version": __version__,
            "form": form_of_this(),
            "python": platform.python_version(),
            "platform": f"{sys.platform}-{platform.machine()}",
        }
    )
