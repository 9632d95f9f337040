"""`ostiary api-keys`: keys for machines that cannot log in."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from server.cli import local, spans, terminal

LONGEST_DAYS: Final = 3_650


@click.group(help="Make, list and revoke keys for machines.")
def command() -> None: ...


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
@local.which_server
@terminal.json_option
def create(
    name: str,
    user: str | None,
    server: str | None,
    scope: str | None,
    tools: str | None,
    lasts: int | str,
    as_json: bool,
) -> None:
    arguments: dict[str, Any] = {
        "name": name,
        "user": user,
        "server": server,
        "scope": scope,
        "tools": tools,
        "never": lasts == spans.NEVER,
        "lasts_ms": None if lasts == spans.NEVER else lasts,
    }
    made = local.ask("api_keys.make", arguments)
    if as_json:
        terminal.out_json(made)
        return
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


@command.command("list", help="List the keys.")
@local.which_server
@terminal.json_option
def list_keys(as_json: bool) -> None:
    found = local.ask("api_keys")
    found = local.in_order(found, lambda key: (-key["created_at"], key["id"]))
    if as_json:
        terminal.out_json(found)
        return
    if not found:
        terminal.say("there are no keys")
        terminal.say_hint("ostiary api-keys create NAME")
        return
    for key in found:
        _show(key)


def _show(key: dict[str, Any]) -> None:
    """Three lines: too much for a table of 80 columns."""
    name = terminal.paint(key["id"], "bold", sys.stdout)
    terminal.out(f"{name}  {terminal.clean(key['name'])}, ends with …{key['hint']}")
    whose = terminal.clean(key["user"] or "a machine")
    terminal.out(f"    {whose}; {_may(key)}; at {key['server'] or 'every server'}")
    over = {"disabled": "refused, because its user is disabled", "expired": "expired"}.get(key["state"])
    terminal.out(f"    {_last_use(key)}, {over or _end(key)}")


@command.command("revoke", help="End a key, and all that runs for it, at once.")
@click.argument("key_id")
@local.which_server
@terminal.json_option
def revoke(key_id: str, as_json: bool) -> None:
    answer = local.ask("api_keys.revoke", {"id": key_id})
    if as_json:
        terminal.out_json(answer)
    else:
        terminal.out(f"revoked: {answer['id']}")


def _may(key: dict[str, Any]) -> str:
    return key["scope"] + (f" ({key['tools']})" if key["tools"] else "")


def _last_use(key: dict[str, Any]) -> str:
    if not key["last_used_at"]:
        return "never used"
    return f"used {local.lately(key['last_used_at'])} from {key['last_used_ip'] or '-'}"


def _end(key: dict[str, Any]) -> str:
    return "never ends" if key["expires_at"] is None else f"ends in {local.left(key['expires_at'])}"
