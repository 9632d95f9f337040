"""`ostiary uninstall CLIENT [NAME]`: take out of another program's configuration what `install` put there, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from server.cli import installing, terminal
from server.cli.installing import which_file
from server.cli.terminal import json_option, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.client.programs.file import Found
    from server.client.programs.ledger import Installed
    from server.client.programs.table import Program


@click.command("uninstall")
@which_file
@click.argument("name", required=False)
@click.option("--yes", "-y", is_flag=True, help="do not ask back")
@json_option
def command(client: str, project: bool, name: str | None, yes: bool, as_json: bool) -> None:
    """Take out of CLIENT the servers that `ostiary install` put there, or only the one called NAME."""
    from server.client.programs.edit import UnreadableSettings
    from server.client.programs.file import FileRefused, remove, write
    from server.client.programs.plan import EDITORS, without

    program, found = installing.file_of(client, project=project)
    ledger = installing.ledger()
    records = ledger.of(found.path)
    try:
        there = EDITORS[program.format].read(found.text, program.key)
        names = _names(program, found, there, records, name)
        text = found.text
        for each in names:
            text = without(program, text, each, records.get(each)).text
    except UnreadableSettings as error:
        raise FileRefused(f"{found.path} was left as it is: {error}", hint="take it out by hand") from None
    if not as_json:
        say(f"{', '.join(names)} goes out of {found.path}, of {program.title}")
    if not installing.agreed("take it out?", yes=yes):
        raise terminal.CliError("nothing was written")
    made = any(records[each].made_file for each in names if each in records)
    backup = remove(found) if made and not text.strip() else write(found, text)
    for each in names:
        ledger.drop(found.path, each)
    if as_json:
        terminal.out_json(
            {
                "client": client,
                "file": str(found.path),
                "names": names,
                "backup": str(backup) if backup else None,
            }
        )
        return
    say(f"{program.title} has {', '.join(names)} no more; before: {backup}")
    terminal.say_hint(program.then)


def _names(
    program: Program,
    found: Found,
    there: Mapping[str, Mapping[str, object]],
    records: Mapping[str, Installed],
    name: str | None,
) -> list[str]:
    from server.client.programs.plan import looks_like_ours

    if name is None:
        ours = [each for each in there if each in records]
        if not ours:
            raise terminal.CliError(
                f"nothing that ostiary installed is in {found.path}",
                hint=f"name it, if it is: ostiary uninstall CLIENT NAME ({', '.join(there) or 'there is none'})",
            )
        return ours
    if name not in there:
        raise terminal.CliError(f"{found.path} has no server called {name}")
    if name not in records and not looks_like_ours(program, there[name]):
        raise terminal.CliError(
            f"{name} in {found.path} was not put there by ostiary", hint="take it out by hand, if it is to go"
        )
    return [name]
