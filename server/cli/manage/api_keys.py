"""`ostiary api-keys`: keys for machines that cannot log in."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from server.cli import local, spans, terminal

LONGEST_DAYS: Final = 3_650


@click.group(help="Make, list and revoke keys for machines.")
def command() -> None: ...


def _show_new(made: Mapping[str, Any]) -> None:
    terminal.facts(
        [
            ("key", made["key"]),
            ("id", made["id"]),
            ("may", _may(made)),
            ("at", made["server"] or "every server of this installation"),
            ("ends", _end(made).removeprefix("ends ").replace("never ends", "never")),
        ]
    )
    terminal.say("the key is not shown again")
    terminal.say("send it as `Authorization: Bearer KEY`, or as `X-API-Key: KEY`")


@command.command("create", help="Make a key called NAME. It is shown once.")
@click.argument("name")
@click.option(
    "--user", metavar="NAME", help="whose key: it may never do more than they; otherwise the owner's"
)
@click.option("--server", metavar="NAME", help="the one server it is for; otherwise all of them")
@click.option(
    "--scope", metavar="SCOPES", help="what it may do, in quotes, separated by spaces; otherwise mcp"
)
@click.option(
    "--tools", metavar="SELECTION", help="which tools it may know of, like readonly or search,-delete"
)
@click.option(
    "--expires",
    "lasts",
    metavar="TIME",
    default="90d",
    show_default=True,
    type=spans.TimeSpan(days=LONGEST_DAYS),
    help="when it ends: after 30d or 12h, on 2027-01-31, or never",
)
@local.shows(_show_new)
def create(lasts: int | str, **wanted: str | None) -> Any:
    return local.ask("api_keys.make", {**wanted, **spans.until(lasts)})


def _show(keys: Sequence[Mapping[str, Any]]) -> None:
    """Show each in three lines: too much for a table of 80 columns."""
    for key in keys:
        name = terminal.paint(key["id"], "bold", sys.stdout)
        terminal.out(f"{name}  {terminal.clean(key['name'])}, ends with …{key['hint']}")
        whose = terminal.clean(key["user"] or "a machine")
        terminal.out(f"    {whose}; {_may(key)}; at {key['server'] or 'every server'}")
        over = {"disabled": "refused, because its user is disabled", "expired": "expired"}.get(key["state"])
        terminal.out(f"    {_last_use(key)}, {over or _end(key)}")


@command.command("list", help="List the keys.")
@local.shows(_show, nothing="there are no keys", hint="ostiary api-keys create NAME")
def list_keys() -> Any:
    return sorted(local.ask("api_keys"), key=lambda key: (-key["created_at"], key["id"]))


local.add_act(
    command,
    "revoke",
    "End a key, and all that runs for it, at once.",
    act="api_keys.revoke",
    done="revoked",
    argument="id",
    metavar="KEY_ID",
)


def _may(key: Mapping[str, Any]) -> str:
    return key["scope"] + (f" ({key['tools']})" if key["tools"] else "")


def _last_use(key: Mapping[str, Any]) -> str:
    if not key["last_used_at"]:
        return "never used"
    return f"used {local.lately(key['last_used_at'])} from {key['last_used_ip'] or '-'}"


def _end(key: Mapping[str, Any]) -> str:
    return "never ends" if key["expires_at"] is None else f"ends in {local.left(key['expires_at'])}"
