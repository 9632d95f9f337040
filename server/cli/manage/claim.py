"""The command `ostiary claim`: a fresh one-time link for whoever owns this server to set a passphrase in a browser."""

from __future__ import annotations

import click

from server.cli import local, terminal
from server.cli.manage import people


@click.command(
    help="Show a fresh owner-claim link. It works once, for 30 minutes; an earlier one stops working."
)
@local.which_server
@terminal.json_option
def command(as_json: bool) -> None:
    from server.lib.oauth_client.addresses import is_loopback

    people.may_show(as_json)
    answer = local.ask("claim")
    if as_json:
        terminal.out_json(answer)
        return
    terminal.out(answer["url"])
    where = "a browser on this machine" if is_loopback(answer["url"]) else "any browser"
    terminal.tell(f"open it in {where}, and choose a passkey or a passphrase; it works once, for 30 minutes")
