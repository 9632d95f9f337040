"""`ostiary approve CODE`: show who asks, and let them in. The answer is asked for, because the one who sent the code may not be the
one who should get in."""

from __future__ import annotations

import sys
from shlex import quote

import click

from server.cli import local, terminal


@click.command(help="Approve the login that shows CODE. Shows who asks, and asks back.")
@click.argument("code")
@click.option(
    "--scope",
    metavar="SCOPES",
    help="grant only these of the scopes asked for, in quotes, separated by spaces",
)
@click.option("--yes", "-y", is_flag=True, help="do not ask back")
@local.which_server
@terminal.json_option
def command(code: str, scope: str | None, yes: bool, as_json: bool) -> int | None:
    request = local.ask("find", {"code": code})
    for line in terminal.record(local.describe_request(request, scope=scope), sys.stderr):
        terminal.say(line)
    if scope is None and request["moves_money"]:
        named = " ".join(request["moves_money"])
        terminal.say(f"left out, because it moves money: {named} (--scope grants it by name)")
    if not terminal.agreed("let it in", yes=yes):
        terminal.say("nothing was decided")
        terminal.say_hint(f"ostiary deny {quote(code)}")
        return terminal.EXIT_FAILED
    approved = local.ask("approve", {"id": request["id"], "scope": scope})
    if as_json:
        terminal.out_json(approved)
    else:
        terminal.out(
            f"approved: {terminal.clean(approved['client_name'] or approved['registered_name'])} may use {approved['scope']}"
        )
        terminal.say("the terminal that asked notices within a few seconds")
        terminal.say_hint("ostiary sessions lists who is logged in, ostiary revoke ID ends a login")
    return None
