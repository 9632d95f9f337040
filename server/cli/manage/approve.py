"""The command `ostiary approve CODE`: show who asks, and let them in. The answer is asked for, because the one who sent the code may not
be the one who should get in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from shlex import quote
from typing import Any

import click

from server.cli import local, terminal


def _show(approved: Mapping[str, Any]) -> None:
    program = terminal.clean(approved["client_name"] or approved["registered_name"])
    terminal.out(f"approved: {program} may use {approved['scope']}")
    terminal.say("the terminal that asked notices within a few seconds")
    terminal.say_hint("ostiary sessions lists who is logged in, ostiary revoke ID ends a login")


@click.command(help="Approve the login that shows CODE. Shows who asks, and asks back.")
@click.argument("code")
@click.option(
    "--scope",
    metavar="SCOPES",
    help="grant only these of the scopes asked for, in quotes, separated by spaces",
)
@terminal.yes_option
@local.shows(_show)
def command(code: str, scope: str | None, yes: bool) -> Any:
    request = local.ask("find", {"code": code})
    for line in terminal.record(local.describe_request(request, scope=scope), sys.stderr):
        terminal.say(line)
    if scope is None and request["moves_money"]:
        named = " ".join(request["moves_money"])
        terminal.say(f"left out, because it moves money: {named} (--scope grants it by name)")
    terminal.agree_or_end(
        "let it in", yes=yes, otherwise="nothing was decided", hint=f"ostiary deny {quote(code)}"
    )
    return local.ask("approve", {"id": request["id"], "scope": scope})
