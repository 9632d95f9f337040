"""`ostiary sessions`: every login that lives, from where, and when it was last used."""

from __future__ import annotations

import click

from server.cli import local, terminal


@click.command(help="List who is logged in.")
@local.which_server
@terminal.json_option
def command(data_dir: str | None, config: str | None, as_json: bool) -> None:
    sessions = local.ask("sessions", data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(sessions)
        return
    if not sessions:
        terminal.say("nobody is logged in")
        return
    rows = [("login", "client", "computer, as claimed", "from", "may", "last used", "ends in")]
    rows += [
        (
            session["id"],
            terminal.clean(session["client_name"] or session["registered_name"]),
            terminal.clean(session["hostname"] or "-"),
            session["ip"],
            session["scope"],
            local.ago(session["last_used_at"]),
            local.left(session["expires_at"]),
        )
        for session in sessions
    ]
    for line in terminal.columns(rows):
        terminal.out(line)
