"""`ostiary backup FILE`: a copy of the database as of now, while the server runs. The key file is not in it."""

from __future__ import annotations

from pathlib import Path

import click

from server.cli import local, terminal


@click.command(
    help="Copy the database to the new FILE, while the server runs. Keep the key file, too: it is not in the copy."
)
@click.argument("file")
@local.which_server
@terminal.json_option
def command(file: str, data_dir: str | None, config: str | None, as_json: bool) -> None:
    from server.store.backup import back_up
    from server.store.home import DataDirectory
    from server.store.jobs import StoreError

    home = DataDirectory(local.directory(data_dir=data_dir, config=config))
    target = Path(file)
    try:
        back_up(home.database, target)
    except StoreError as error:
        raise terminal.CliError(str(error), hint=error.hint) from error
    if as_json:
        terminal.out_json({"path": str(target), "bytes": target.stat().st_size})
    else:
        terminal.out(str(target))
        terminal.say_hint(
            f"keep {home.key_file} with it, in another place: without the key the copy is of no use"
        )
