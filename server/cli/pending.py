"""`ostiary pending`: the device logins that wait for a decision. Codes are not shown: the server does not know them."""

from __future__ import annotations

import click

from server.cli import local, terminal


@click.command(help="List the logins that wait for approval. The code is on the requester's screen only.")
@local.which_server
@terminal.json_option
def command(data_dir: str | None, config: str | None, as_json: bool) -> None:
    waiting = local.ask("pending", data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(waiting)
        return
    if not waiting:
        terminal.say("no login is waiting")
        return
    rows = [("client", "computer, as claimed", "from", "asked", "runs out in")]
    rows += [
        (
            terminal.clean(request["client_name"] or request["registered_name"]),
            terminal.clean(request["hostname"] or "-"),
            request["ip"],
            local.ago(request["created_at"]),
            local.left(request["expires_at"]),
        )
        for request in waiting
    ]
    for line in terminal.columns(rows):
        terminal.out(line)
    terminal.say_hint("ostiary approve CODE, with the code that the requester sees")
