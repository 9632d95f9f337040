"""`ostiary uninstall CLIENT [NAME]`: take out of another program's configuration what `install` put there, and no more. Without
CLIENT: what of Ostiary itself is on this machine (leftovers.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from server.cli import local, terminal
from server.cli.terminal import clean, json_option, out, say
from server.cli.use import installing
from server.cli.use.installing import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.client.programs.config_file import Found
    from server.client.programs.installed_entries import Installed
    from server.client.programs.program_table import Program


# What may be named to be removed (leftovers.py).
KINDS = ("service", "clients", "logins", "data")


@click.command("uninstall")
@click.argument(
    "client", required=False, type=click.Choice(CLIENTS, case_sensitive=False), metavar="[CLIENT]"
)
@click.argument("name", required=False)
@click.option("--project", is_flag=True, help="the file of the project in this directory")
@click.option(
    "--remove",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="WHAT",
    help="without CLIENT: service, clients, logins or data; repeatable",
)
@click.option("--yes", "-y", is_flag=True, help="do not ask back; without CLIENT: do remove it")
@local.which_server
@json_option
def command(
    client: str | None, name: str | None, project: bool, kinds: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Take out of CLIENT the servers that `ostiary install` put there, or only the one called NAME.

    Without CLIENT: say what of ostiary is on this machine. --remove WHAT says what of it would go, and with --yes it goes.
    """
    if client is None:
        _ostiary_itself(kinds, yes=yes, as_json=as_json)
        return
    if kinds:
        raise terminal.Misuse("--remove is for ostiary itself, without CLIENT")
    _from_client(client, name, project=project, yes=yes, as_json=as_json)


def _ostiary_itself(kinds: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    from server.cli.use.leftovers import leftovers

    if yes and not kinds:
        raise terminal.Misuse(
            "what is to be removed has to be named",
            hint="ostiary uninstall says what there is; then --remove WHAT",
        )
    found = leftovers()
    going = [each for each in found if each.kind in kinds and each.remove is not None]
    for each in going if yes else ():
        if not as_json:
            say(f"removing {clean(each.where)}: {each.what}")
        assert each.remove is not None
        each.remove()
    left = [each for each in found if each not in going or not yes]
    if as_json:
        told = [{"kind": each.kind, "what": each.what, "where": each.where} for each in left]
        terminal.out_json({"left": told, "removed": [each.where for each in going] if yes else []})
        return
    say("this is left" if yes else "this is here")
    rows = [(each.kind, clean(each.where), each.what) for each in left]
    for line in terminal.columns(rows):
        out(line)
    if yes:
        return
    for each in going:
        say(f"would remove {clean(each.where)}: {each.what}")
    if going:
        terminal.say_hint("the same with --yes removes it")
    elif len(left) > 1:
        terminal.say_hint(
            "ostiary uninstall --remove WHAT --yes removes service, clients, logins or data; the rest is yours to remove"
        )


def _from_client(client: str, name: str | None, *, project: bool, yes: bool, as_json: bool) -> None:
    from server.client.programs.config_edit import UnreadableSettings
    from server.client.programs.config_file import FileRefused, remove, write
    from server.client.programs.install_plan import EDITORS, without

    program, found = installing.file_of(client, project=project)
    ledger = installing.ledger()
    records = ledger.of(found.path)
    try:
        there = EDITORS[program.format].read(found.text, program.key)
        names = _names(program, found, there, records, name)
        undone = without(program, found.text, set(names), records)
    except UnreadableSettings as error:
        raise FileRefused(f"{found.path} was left as it is: {error}", hint="take it out by hand") from None
    if not as_json:
        say(f"{', '.join(names)} goes out of {found.path}, of {program.title}")
    if not installing.agreed("take it out?", yes=yes):
        raise terminal.CliError("nothing was written")
    emptied = undone.made_file and not undone.text.strip()
    backup = remove(found) if emptied else write(found, undone.text)
    ledger.keep(found.path, undone.left)
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
    from server.client.programs.install_plan import address_of_ours

    ours = [each for each in there if address_of_ours(program, there[each], records.get(each)) is not None]
    if name is None:
        recorded = [each for each in ours if each in records]
        if not recorded:
            raise terminal.CliError(
                f"nothing that ostiary installed is in {found.path}",
                hint=f"name it, if it is: ostiary uninstall CLIENT NAME ({', '.join(there)})"
                if there
                else None,
            )
        return recorded
    if name not in there:
        raise terminal.CliError(f"{found.path} has no server called {name}")
    if name not in ours:
        raise terminal.CliError(
            f"{name} in {found.path} was not put there by ostiary", hint="take it out by hand, if it is to go"
        )
    return [name]
