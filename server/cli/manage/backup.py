"""`ostiary backup FILE`: a copy of the database as of now, while the server runs. The key file is not in it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import click

from server.cli import database_tools, local, terminal


@click.command(
    help="Copy the database to the new FILE, or into the directory FILE under a name with the time in it, while the server runs."
    " Keep the key file, too: it is not in the copy."
)
@click.argument("file")
@click.option(
    "--keep",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="in a directory: then remove all but the newest N",
)
@local.which_server
@terminal.json_option
def command(file: str, keep: int | None, as_json: bool) -> None:
    from server.store.backup import back_up, fingerprint_of
    from server.store.data_directory import DataDirectory
    from server.store.jobs import StoreError
    from server.store.keyfile import id_in
    from server.store.rotation import back_up_into

    settings = local.settings().config
    home = DataDirectory(local.directory())
    local.in_a_file(
        settings,
        partial(database_tools.dump, file=file),
        before="a copy of it as of now, while it is served:",
        then=f"keep the key file with the copy, in another place ({settings.key_file or home.key_file}); docs/scale.md",
    )
    target = Path(file)
    if keep is not None and not target.is_dir():
        raise terminal.Misuse(f"{file} is no directory", hint="--keep counts the back-ups of a directory")
    try:
        if target.is_dir():
            target = back_up_into(home.database, target, keep=keep, now=time.time_ns() // 1_000_000)
        else:
            back_up(home.database, target)
        key_id = id_in(fingerprint_of(target))
    except StoreError as error:
        raise terminal.CliError(str(error), hint=error.hint) from error
    if as_json:
        terminal.out_json({"path": str(target), "bytes": target.stat().st_size, "key": key_id})
    else:
        terminal.out(str(target))
        terminal.say_hint(
            f"keep the key {key_id} with it, in another place ({settings.key_file or home.key_file}):"
            " without it the copy is of no use"
        )
