"""`ostiary pending`: the device logins that wait for a decision. Codes are not shown: the server does not know them."""

from __future__ import annotations

import time
from typing import Final

import click

from server.cli import local, terminal

HEADINGS: Final = ("program", "computer, as claimed", "from", "server", "asked at", "ends in")


@click.command(help="List the logins that wait for approval. The code is on the requester's screen only.")
@local.which_server
@terminal.json_option
def command(as_json: bool) -> None:
    waiting = local.ask("pending")
    if as_json:
        terminal.out_json(waiting)
        return
    if not waiting:
        terminal.say("no login is waiting")
        return
    rows = [
        (
            terminal.clean(request["client_name"] or request["registered_name"]),
            terminal.clean(request["hostname"] or "-"),
            request["ip"],
            request["server"] or "-",
            # To the second: of several by the same program, the one that was just begun is looked for.
            f"{time.strftime('%H:%M:%S', time.localtime(request['created_at'] / 1000))}, {local.ago(request['created_at'])}",
            local.left(request["expires_at"]),
        )
        for request in waiting
    ]
    for line in terminal.table(HEADINGS, rows):
        terminal.out(line)
    terminal.say_hint("ostiary approve CODE, with the code that the requester sees")
