"""`ostiary api-keys`: keys for machines that cannot log in."""

from __future__ import annotations

import re
from typing import Any

import click

from server.cli import local, terminal

_DAYS = re.compile(r"([1-9][0-9]{0,3})d")


@click.group(help="Make, list and revoke keys for machines.")
def command() -> None: ...


def _days(_context: click.Context, _parameter: click.Parameter, value: str) -> int | None:
    if value == "never":
        return None
    found = _DAYS.fullmatch(value)
    if found is None:
        raise click.BadParameter('a number of days, like 90d, or "never"')
    return int(found[1])


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
    "days",
    metavar="90d|never",
    default="90d",
    show_default=True,
    callback=_days,
    help="when it ends",
)
@local.which_server
@terminal.json_option
def create(
    name: str,
    user: str | None,
    server: str | None,
    scope: str | None,
    tools: str | None,
    days: int | None,
    data_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    arguments: dict[str, Any] = {
        "name": name,
        "user": user,
        "server": server,
        "scope": scope,
        "tools": tools,
        "days": days,
    }
    made = local.ask("api_keys.create", arguments, data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(made)
        return
    terminal.facts(
        [
            ("key", made["key"]),
            ("id", made["id"]),
            ("may", _may(made)),
            ("at", made["server"] or "every server of this installation"),
            ("ends", _end(made)),
        ]
    )
    terminal.say("the key is not shown again; send it as `Authorization: Bearer …` or `X-API-Key: …`")


@command.command("list", help="List the keys.")
@local.which_server
@terminal.json_option
def list_keys(data_dir: str | None, config: str | None, as_json: bool) -> None:
    found = local.ask("api_keys", data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(found)
        return
    if not found:
        terminal.say("there are no keys")
        terminal.say_hint("ostiary api-keys create NAME")
        return
    rows = [("id", "name", "ends with", "user", "server", "may", "last used", "ends")]
    rows += [
        (
            key["id"],
            terminal.clean(key["name"]),
            f"…{key['hint']}",
            terminal.clean(key["user"] or "-"),
            key["server"] or "all",
            _may(key),
            _last_use(key),
            _end(key),
        )
        for key in found
    ]
    for line in terminal.columns(rows):
        terminal.out(line)


@command.command("revoke", help="End a key, and all that runs for it, at once.")
@click.argument("key_id")
@local.which_server
@terminal.json_option
def revoke(key_id: str, data_dir: str | None, config: str | None, as_json: bool) -> None:
    answer = local.ask("api_keys.revoke", {"id": key_id}, data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(answer)
    else:
        terminal.out(f"revoked: {answer['id']}")


def _may(key: dict[str, Any]) -> str:
    return key["scope"] + (f" ({key['tools']})" if key["tools"] else "")


def _last_use(key: dict[str, Any]) -> str:
    if not key["last_used_at"]:
        return "never"
    return f"{local.ago(key['last_used_at'])} from {key['last_used_ip'] or '-'}"


def _end(key: dict[str, Any]) -> str:
    if key["state"] == "disabled":
        return "user disabled"
    if key["expires_at"] is None:
        return "never"
    return "expired" if key["state"] == "expired" else f"in {local.left(key['expires_at'])}"
