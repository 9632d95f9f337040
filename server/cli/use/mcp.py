"""`ostiary mcp add NAME URL`, `remove NAME`, `list`: servers under names of one's own."""

from __future__ import annotations

from shlex import quote

import click

from server.cli import terminal
from server.cli.terminal import json_option, out, say


@click.group("mcp")
def command() -> None:
    """Give servers names, to be used wherever a URL is taken.

    \b
    ostiary mcp add door https://agent.example.org/mcp
    ostiary call door TOOL key=value
    """


@command.command("add")
@click.argument("name")
@click.argument("url")
@click.option("--replace", is_flag=True, help="let the name stand for another server than before")
@json_option
def add(name: str, url: str, replace: bool, as_json: bool) -> None:
    """Let NAME stand for the MCP server at URL."""
    from server.cli.use import target
    from server.client.address import complete
    from server.client.named_servers import check_name

    check_name(name)
    address, places = complete(url), target.places()
    before = places.get(name)
    if before is not None and before != address.url and not replace:
        raise terminal.CliError(
            f"{name} stands for {before} already",
            hint=f"ostiary mcp add {quote(name)} {quote(url)} --replace",
        )
    places.put(name, address.url)
    if as_json:
        terminal.out_json({"name": name, "url": address.url})
        return
    say(f"{name} stands for {address.url}")
    known = target.token_file().get(address.url) is not None
    terminal.say_hint(f"ostiary tools {quote(name)}" if known else f"ostiary login {quote(name)}")


@command.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Forget NAME. A login at its server stays."""
    from server.cli.use import target

    url = target.places().drop(name)
    if url is None:
        raise terminal.CliError(f"no server has the name {name}", hint="ostiary mcp list")
    if as_json:
        terminal.out_json({"name": name, "url": url})
        return
    say(f"{name} is forgotten")
    if target.token_file().get(url) is not None:
        terminal.say_hint(f"you are still logged in there: ostiary logout {quote(url)}")


@command.command("list")
@json_option
def list_them(as_json: bool) -> None:
    """List the names and their servers."""
    from server.cli.use import target

    known = target.places().all()
    logins = {login.url for login in target.token_file().all()}
    if as_json:
        found = [{"name": name, "url": url, "logged_in": url in logins} for name, url in known.items()]
        terminal.out_json({"servers": found})
        return
    if not known:
        say("no server has a name yet")
        terminal.say_hint("ostiary mcp add NAME URL")
        return
    rows = [(name, url, "yes" if url in logins else "no") for name, url in known.items()]
    for line in terminal.table(("name", "server", "logged in"), rows):
        out(line)
