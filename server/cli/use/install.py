"""`ostiary install CLIENT [URL]`: write a server into another program's configuration, and see whether it answers."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from server.cli import terminal
from server.cli.terminal import json_option, out, say, say_hint
from server.cli.use import installing
from server.cli.use.installing import which_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.client.programs.config_file import Found
    from server.client.programs.installed_entries import Installed
    from server.client.programs.program_table import Entry, Program


@click.command("install")
@which_file
@click.argument("url", required=False)
@click.option(
    "--name",
    metavar="NAME",
    help="what the server is called in CLIENT; without it, a name that is free there",
)
@click.option(
    "--bridge", is_flag=True, help="let CLIENT start `ostiary connect`, even if it could go there itself"
)
@click.option("--print", "only_print", is_flag=True, help="print what would be written, and write nothing")
@click.option("--yes", "-y", is_flag=True, help="do not ask back")
@click.option("--no-verify", is_flag=True, help="do not ask the server for its tools afterwards")
@json_option
def command(
    client: str,
    project: bool,
    url: str | None,
    name: str | None,
    bridge: bool,
    only_print: bool,
    yes: bool,
    no_verify: bool,
    as_json: bool,
) -> None:
    """Put the MCP server at URL into the configuration of CLIENT.

    CLIENT is claude-code, claude-desktop, cursor, vscode, codex, gemini, windsurf or hermes. One that logs in over HTTP
    is given the address, and logs in by itself; one that only starts programs is given `ostiary connect URL`, which uses
    the login of `ostiary login URL`. The file's other content stays as it is, a back-up is kept (of a project's file, not in
    the project), and no secret is written.
    """
    from server.cli.use import target
    from server.client.named_servers import check_name
    from server.client.programs.config_edit import UnreadableSettings
    from server.client.programs.config_file import write
    from server.client.programs.install_plan import EDITORS, to_install
    from server.client.programs.installed_entries import Installed
    from server.client.programs.manual_steps import name_for

    program, found = installing.file_of(client, project=project)
    typed = url if url is not None else _only_known(client)
    address = target.meant(typed)
    base = check_name(
        name if name is not None else typed if target.places().get(typed) else name_for(address.url)
    )
    direct = program.direct is not None and not bridge
    entry = _entry(program, address.url, direct=direct)
    ledger = installing.ledger()
    records = ledger.of(found.path)
    named = base if name is not None else _name_in(program, found, base, address.url, entry, records)
    alone = EDITORS[program.format].alone(program.key, named, entry)
    result: dict[str, Any] = {
        "client": client,
        "file": str(found.path),
        "name": named,
        "url": address.url,
        "entry": entry,
        "changed": False,
        "backup": None,
        "tools": None,
    }
    if only_print:
        if as_json:
            terminal.out_json(result)
            return
        say(f"for {program.title}, in {found.path}")
        out(alone.rstrip("\n"))
        return
    new = Installed(
        program=client, file=str(found.path), name=named, url=address.url, made_file=found.data is None
    )
    try:
        plan = to_install(program, found.text, new, entry, records=records)
    except UnreadableSettings as error:
        raise _by_hand(program, found, alone, str(error)) from None
    if plan is not None:
        if not as_json:
            say(f"this goes into {found.path}, for {program.title}")
            installing.show(alone)
        if plan.replaces:
            say(f"it replaces {named}, which is {terminal.clean(plan.replaces)} there")
            if yes:
                raise terminal.CliError(
                    "nothing was written: --yes replaces no other address",
                    hint=f"give it another name, or first: ostiary uninstall {quote(client)} {quote(named)}",
                )
        if not installing.agreed("write it?", yes=yes):
            raise terminal.CliError("nothing was written")
        backup = write(found, plan.text)
        ledger.keep(found.path, plan.records)
        result |= {"changed": True, "backup": str(backup) if backup else None}
    verified = None if no_verify else _verified(address.url, direct=direct)
    result["tools"] = verified[0] if verified else None
    if as_json:
        terminal.out_json(result)
        return
    if plan is None:
        say(f"{program.title} has {named} already, and nothing was written")
    else:
        say(
            f"{program.title} has {named} now" + (f"; before: {result['backup']}" if result["backup"] else "")
        )
    if verified:
        say(verified[1])
    _say_next(
        program, named, address.url, direct=direct, logged_in=target.token_file().get(address.url) is not None
    )


def _name_in(
    program: Program, found: Found, base: str, url: str, entry: Entry, records: Mapping[str, Installed]
) -> str:
    """Return the name by which the file has this address from us, or else one that is free there."""
    from server.client.programs.config_edit import UnreadableSettings
    from server.client.programs.install_plan import EDITORS, address_of_ours, free_name, holds

    try:
        there = EDITORS[program.format].read(found.text, program.key)
    except UnreadableSettings:
        return base  # `to_install` says what is wrong with it
    for each in (base, *records):
        if each not in there:
            continue
        if holds(there[each], entry) or address_of_ours(program, there[each], records.get(each)) == url:
            return each
    return free_name(base, url, there)


def _entry(program: Program, url: str, *, direct: bool) -> dict[str, Any]:
    from server.client.token_file import needed_variables

    if direct and program.direct is not None:
        return dict(program.direct(url))
    first, *rest = installing.this_program()
    # Nobody sees what it would ask: programs keep its stderr to themselves, and give up before an answer could be there.
    entry = dict(program.bridge(first, [*rest, "connect", "--no-login", url]))
    # Programs start it without most of what is set here, and then it would not find the login.
    variables = needed_variables(os.environ)
    return entry | ({"env": dict(variables)} if variables else {})


def _only_known(client: str) -> str:
    """The one server that can be meant where none is named."""
    from server.cli.use import target

    known = {**{login.url: login.url for login in target.token_file().all()}}
    known |= {url: name for name, url in target.places().all().items()}
    if len(known) != 1:
        said = "no server is known here" if not known else f"{len(known)} servers are known here"
        raise terminal.Misuse(
            f"{said}, so one has to be named",
            hint=f"ostiary install {quote(client)} {quote(next(iter(known.values()), 'URL'))}",
        )
    return next(iter(known.values()))


def _by_hand(program: Program, found: Found, alone: str, why: str) -> terminal.CliError:
    say(f"{program.title} wants this in {found.path}")
    installing.show(alone)
    return terminal.CliError(
        f"{found.path} was left as it is: {why}", hint="mend the file, or add the lines above by hand"
    )


def _verified(url: str, *, direct: bool) -> tuple[int | None, str]:
    """What the server answers now, with the login that is here. It is no failure if it wants one of its own."""
    from server.cli.use import target
    from server.client.client_errors import ClientError, NotLoggedIn

    async def count() -> int:
        async with target.connected(url) as mcp:
            return len(await mcp.tools())

    try:
        tools = terminal.run_async(count)
    except NotLoggedIn:
        return None, "the server is there, and wants a login first"
    except ClientError as error:
        return None, f"the server could not be asked for its tools: {terminal.clean(str(error))}"
    return tools, f"the server answers, with {tools} tool{'' if tools == 1 else 's'}"


def _say_next(program: Program, name: str, url: str, *, direct: bool, logged_in: bool) -> None:
    if direct and program.log_in is not None:
        say_hint(f"{program.then}; log in with: {program.log_in.format(name=quote(name))}")
    elif direct:
        say_hint(f"{program.then}; it logs in by itself")
    elif logged_in:
        say_hint(program.then)
    else:
        say_hint(f"ostiary login {quote(url)}, then {program.then}")
