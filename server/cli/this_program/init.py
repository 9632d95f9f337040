"""`ostiary init`: write a commented `ostiary.toml`. Never over an existing one."""

from __future__ import annotations

import os
from pathlib import Path

import click

from server.cli import terminal
from server.lib.own_files import make_file


@click.command(help="Write a commented ostiary.toml, here or to PATH. An existing file is left alone.")
@click.argument("path", default="ostiary.toml")
@terminal.json_option
def command(path: str, as_json: bool) -> None:
    from server.settings.settings_template import commented_configuration

    target = Path(path)
    if target.is_dir():
        target /= "ostiary.toml"
    try:
        handle = make_file(target)
    except FileExistsError:
        raise terminal.CliError(
            f"{target} is there already", hint=f"ostiary init OTHER.toml, or look at it: {target}"
        ) from None
    except OSError as error:
        raise terminal.CliError(f"{target} cannot be written: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(commented_configuration())
    if as_json:
        terminal.out_json({"path": str(target)})
    else:
        terminal.out(str(target))
        terminal.say_hint("edit [[server.agent]] to point at your agent, then: ostiary serve")
