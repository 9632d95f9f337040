"""`ostiary deny CODE`: turn a waiting login away."""

from __future__ import annotations

import click

from server.cli import local, terminal


@click.command(help="Deny the login that shows CODE. Also takes back an approval that was not used yet.")
@click.argument("code")
@local.which_server
@terminal.json_option
def command(code: str, as_json: bool) -> None:
    request = local.ask("find", {"code": code})
    denied = local.ask("deny", {"id": request["id"]})
    if as_json:
        terminal.out_json(denied)
    else:
        terminal.out(f"denied: {terminal.clean(denied['client_name'] or denied['registered_name'])}")
