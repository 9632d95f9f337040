"""`ostiary clients`: programs that may ask for a login, besides the ones built in."""

from __future__ import annotations

from typing import Any

import click

from server.cli import local, terminal

# The short names that people type, for the long ones of RFC 8628.
GRANT_TYPES = {
    "device_code": "urn:ietf:params:oauth:grant-type:device_code",
    "refresh_token": "refresh_token",
}


@click.group(help="Add, list and disable client programs.")
def command() -> None: ...


@command.command("list", help="List the client programs.")
@local.which_server
@terminal.json_option
def list_clients(data_dir: str | None, config: str | None, as_json: bool) -> None:
    found = local.ask("clients", data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(found)
        return
    rows = [("client id", "name", "secret", "state", "last used")]
    rows += [
        (
            client["id"],
            terminal.clean(client["name"]),
            "none" if client["auth_method"] == "none" else "yes",
            client["state"],
            local.ago(client["last_used_at"]) if client["last_used_at"] else "never",
        )
        for client in found
    ]
    for line in terminal.columns(rows):
        terminal.out(line)


@command.command("add", help="Add a client program called NAME. A secret, if it has one, is shown once.")
@click.argument("name")
@click.option("--id", "client_id", metavar="ID", help="the client id; otherwise one is made up")
@click.option("--secret", is_flag=True, help="a confidential client: make a secret for it")
@click.option(
    "--redirect-uri", "redirect_uris", multiple=True, metavar="URI", help="may be given several times"
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    type=click.Choice(["device_code", "refresh_token"]),
    help="what it may use, may be given several times; otherwise both",
)
@click.option(
    "--scope", metavar="SCOPES", help="the most that it may ask for, in quotes, separated by spaces"
)
@local.which_server
@terminal.json_option
def add(
    name: str,
    client_id: str | None,
    secret: bool,
    redirect_uris: tuple[str, ...],
    grants: tuple[str, ...],
    scope: str | None,
    data_dir: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    arguments: dict[str, Any] = {
        "name": name,
        "id": client_id,
        "auth_method": "client_secret_basic" if secret else "none",
        "redirect_uris": list(redirect_uris),
        "grant_types": [GRANT_TYPES[grant] for grant in grants],
        "scope": scope,
    }
    added = local.ask("clients.add", arguments, data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(added)
        return
    terminal.facts(
        [
            ("client id", added["id"]),
            *([("client secret", added["client_secret"])] if added["client_secret"] else []),
        ]
    )
    if added["client_secret"]:
        terminal.say("the secret is not shown again")


@command.command("disable", help="Refuse a client program and all its logins, at once.")
@click.argument("client_id")
@local.which_server
@terminal.json_option
def disable(client_id: str, data_dir: str | None, config: str | None, as_json: bool) -> None:
    _switch("disable", client_id, data_dir, config, as_json)


@command.command("enable", help="Let a disabled client program in again.")
@click.argument("client_id")
@local.which_server
@terminal.json_option
def enable(client_id: str, data_dir: str | None, config: str | None, as_json: bool) -> None:
    _switch("enable", client_id, data_dir, config, as_json)


def _switch(verb: str, client_id: str, data_dir: str | None, config: str | None, as_json: bool) -> None:
    answer = local.ask(f"clients.{verb}", {"id": client_id}, data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(answer)
    else:
        terminal.out(f"{verb}d: {answer['id']}")
