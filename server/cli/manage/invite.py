"""The command `ostiary invite NAME`: an account for somebody else, and the one-time link that makes it theirs."""

from __future__ import annotations

from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.manage import people

LINK_DAYS: Final = 30  # as long as the server keeps one open (auth/people/one_time_links.py)


@click.command(
    help="Invite somebody. Shows a link with which NAME chooses a passphrase; inviting again before they have come"
    " replaces it."
)
@click.argument("name")
@click.option(
    "--scope", metavar="SCOPES", help="the most that they may grant, in quotes, separated by spaces"
)
@click.option("--tools", metavar="SPEC", help="the tools that they may use at most, like readonly,search")
@click.option(
    "--account-expires",
    "account_ms",
    metavar="TIME",
    type=spans.TimeSpan(days=spans.ACCOUNT_DAYS),
    help="when their account ends: after 30d or 12h, on 2027-01-31, or never",
)
@click.option(
    "--link-expires",
    "link_ms",
    metavar="TIME",
    type=spans.TimeSpan(days=LINK_DAYS, never=False),
    help=f"when the link ends, otherwise after 72h; {LINK_DAYS}d at most",
)
@local.which_server
@terminal.json_option
def command(account_ms: int | str | None, as_json: bool, **wanted: Any) -> None:
    people.may_show(as_json)
    account_ms = None if account_ms == spans.NEVER else account_ms
    answer = local.ask("invite", {**wanted, "account_ms": account_ms})
    if as_json:
        terminal.out_json(answer)
        return
    people.show_link(answer, f"send it to {terminal.clean(answer['name'])} alone")
    terminal.say_hint("ostiary users list shows who has come")
