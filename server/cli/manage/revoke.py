"""The command `ostiary revoke`: end logins and browsers, by id, by person, by program, or all. Refused from their next request on."""

from __future__ import annotations

from typing import Any

import click

from server.cli import local, terminal
from server.lib.counted import counted


@click.command(
    help="End logins and browsers, by their ids from `ostiary sessions`, or all of a person or program. It takes effect"
    " at once."
)
@click.argument("logins", metavar="[LOGIN…]", nargs=-1)
@click.option("--user", metavar="NAME", help="every login that this person let in")
@click.option("--client", metavar="ID", help="every login of this program")
@click.option("--all", "everything", is_flag=True, help="every login there is")
@terminal.yes_option
@local.which_server
@terminal.json_option
def command(
    logins: tuple[str, ...], user: str | None, client: str | None, everything: bool, yes: bool, as_json: bool
) -> None:
    if bool(logins) + bool(user or client) + everything != 1:
        raise terminal.Misuse(
            "name logins, or --user or --client, or --all", hint="ostiary sessions lists them"
        )
    if logins:
        answer = local.ask("revoke", {"ids": list(logins)})
    else:
        which = {"user": user, "client": client}
        found = local.ask("sessions.count", which)["logins"]
        if not found:
            terminal.say("there is nothing to revoke")
            if as_json:
                terminal.out_json({"ended": 0})
            elif client is None:
                _say_what_goes_on(user)
            return
        terminal.agree_or_end(f"end {counted(found, 'login')}", yes=yes, otherwise="nothing was ended")
        answer = _revoke_all({**which, "all": everything})
    if as_json:
        terminal.out_json(answer)
    elif logins:
        for each in answer["ids"]:
            terminal.out(f"revoked: {each}")
    else:
        terminal.out(f"revoked: {counted(answer['ended'], 'login')}")
        if client is None:
            _say_what_goes_on(user)


def _revoke_all(which: dict[str, Any]) -> dict[str, Any]:
    """End them, so many at a time, until none is left."""
    ended = 0
    while True:
        answer = local.ask("revoke", which)
        ended += answer["ended"]
        if not answer["more"]:
            return {"ended": ended}


def _say_what_goes_on(user: str | None) -> None:
    """Say what else there is: whoever wants somebody out must not take the logins for all."""
    keys = local.ask("api_keys")
    browsers = local.ask("browsers", {"user": user})
    mine = [key for key in keys if user is None or key["user"] == user.casefold()]
    if mine:
        many = "1 API key goes on" if len(mine) == 1 else f"{len(mine)} API keys go on"
        terminal.say(f"{many}: `ostiary api-keys list`, and `ostiary api-keys revoke ID` ends one")
    if browsers:
        many = "1 browser stays" if len(browsers) == 1 else f"{len(browsers)} browsers stay"
        terminal.say(f"{many} signed in: `ostiary sessions --browsers`, and `ostiary revoke ID` ends one")
