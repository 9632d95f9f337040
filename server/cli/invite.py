"""`ostiary invite NAME`: an account for somebody else, and the one-time link that makes it theirs."""

from __future__ import annotations

import click

from server.cli import local, people, terminal


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
    metavar="SPAN",
    type=people.Span(),
    help="when their account ends, like 30d",
)
@click.option(
    "--link-hours",
    metavar="HOURS",
    type=click.IntRange(1, 720),
    help="how long the link works, otherwise 72 hours",
)
@local.which_server
@terminal.json_option
def command(
    name: str,
    scope: str | None,
    tools: str | None,
    account_ms: int | str | None,
    link_hours: int | None,
    data_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    people.may_show(as_json)
    arguments = {
        "name": name,
        "scope": scope,
        "tools": tools,
        "account_ms": None if account_ms == people.NEVER else account_ms,
        "link_ms": None if link_hours is None else link_hours * 3_600_000,
    }
    answer = local.ask("invite", arguments, data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(answer)
        return
    people.show_link(answer, f"send it to {terminal.clean(answer['name'])} alone")
    terminal.say_hint("ostiary users list shows who has come")
