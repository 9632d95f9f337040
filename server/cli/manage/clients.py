"""The commands `ostiary clients`: programs that may ask for a login, besides the one built in. Many register themselves; these are added by hand."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from server.cli import local, terminal
from server.lib.counted import counted

# The short names that people type, for the long ones of the specifications.
GRANT_TYPES: Final[Mapping[str, str]] = {
    "authorization_code": "authorization_code",
    "device_code": "urn:ietf:params:oauth:grant-type:device_code",
    "refresh_token": "refresh_token",
    "client_credentials": "client_credentials",
    "jwt-bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}

# What each lets a program do, in the order in which people care.
DOES: Final[Mapping[str, str]] = {
    "authorization_code": "login by browser",
    "urn:ietf:params:oauth:grant-type:device_code": "login by code",
    "client_credentials": "acts for itself",
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "login by a provider's word",
    "refresh_token": "stays logged in",
}
KINDS: Final[Mapping[str, str]] = {
    "builtin": "built in",
    "registered": "added by hand",
    "dynamic": "registered itself",
    "document": "known by its address",
}
SHOWS: Final[Mapping[str, str]] = {
    "none": "no secret",
    "private_key_jwt": "signs with a key",
}
KEY_FILE_BYTES: Final = 16 * 1024


@click.group(help="Add, list, disable and remove client programs.")
def command() -> None: ...


def _show(client: Mapping[str, Any]) -> None:
    """Show one in a few lines: too much for a table of 80 columns."""
    state = (
        "" if client["state"] == "enabled" else f"  {terminal.paint(client['state'], 'yellow', sys.stdout)}"
    )
    name = terminal.paint(terminal.clean(client["id"]), "bold", sys.stdout)
    terminal.out(f"{name}  {terminal.clean(client['name'])}{state}")
    does = [DOES[grant] for grant in DOES if grant in client["grant_types"]]
    does += ["asks about tokens"] if client["introspects"] else []
    does += [f"for {terminal.clean(client['server'])} alone"] if client["server"] else []
    shows = SHOWS.get(client["auth_method"], "has a secret")
    hosts = list(dict.fromkeys(_host(uri) for uri in client["redirect_uris"]))
    terminal.out(f"  {shows}; {', '.join(does) or 'may do nothing'}")
    if hosts:
        terminal.out(f"  sends browsers back to {', '.join(hosts)}")
    origin = KINDS.get(client["kind"], client["kind"])
    where = f" from {terminal.clean(client['network'])}" if client["network"] else ""
    used = f"used {local.lately(client['last_used_at'], 'hour')}" if client["last_used_at"] else "never used"
    terminal.out(f"  {origin}{where} {local.ago(client['created_at'])}, {used}")


def _show_all(clients: Sequence[Mapping[str, Any]]) -> None:
    for each in clients:
        _show(each)


@command.command("list", help="List the client programs.")
@local.shows(_show_all)
def list_clients() -> Any:
    return local.ask("clients")


def _host(uri: str) -> str:
    """Return the host of a redirect address, or the scheme of an application."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname
    except ValueError:
        return "?"
    return terminal.clean(host if parts.scheme in ("http", "https") and host else f"{parts.scheme}:")


def _show_secret(client: Mapping[str, Any]) -> None:
    shown = client["client_secret"]
    terminal.facts([("client id", client["id"]), *([("client secret", shown)] if shown else [])])
    if shown:
        terminal.say("the secret is not shown again")


@command.command("add", help="Add a client program called NAME. A secret, if it has one, is shown once.")
@click.argument("name")
@click.option("--id", "client_id", metavar="ID", help="the client id; otherwise one is made up")
@click.option("--secret", is_flag=True, help="make a secret for it")
@click.option(
    "--public-key",
    metavar="FILE",
    help="it signs with the key to this one: PEM, JWK or JWK set (private_key_jwt)",
)
@click.option("--jwks-uri", metavar="URL", help="the same, with its public keys at an https address")
@click.option(
    "--redirect-uri", "redirect_uris", multiple=True, metavar="URI", help="may be given several times"
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="GRANT",
    type=click.Choice(list(GRANT_TYPES)),
    help=f"what it may use: {', '.join(GRANT_TYPES)}; may be given several times; otherwise all that people are asked"
    " about",
)
@click.option(
    "--scope", metavar="SCOPES", help="the most that it may ask for, in quotes, separated by spaces"
)
@click.option("--server", metavar="NAME", help="the one server that it is for; otherwise any")
@click.option(
    "--introspect",
    "introspects",
    is_flag=True,
    help="it may ask what a token is worth (needs a secret or a key)",
)
@local.shows(_show_secret)
def add(
    client_id: str | None, secret: bool, public_key: str | None, grants: tuple[str, ...], **wanted: Any
) -> Any:
    if secret + (public_key is not None) + (wanted["jwks_uri"] is not None) > 1:
        raise terminal.Misuse(
            "a client proves itself in one way", hint="one of --secret, --public-key and --jwks-uri"
        )
    arguments = {
        **wanted,
        "id": client_id,
        "auth_method": "client_secret_basic" if secret else "none",
        "public_key": None if public_key is None else _read_key(public_key),
        "grant_types": [GRANT_TYPES[grant] for grant in grants],
    }
    return local.ask("clients.add", arguments)


def _read_key(name: str) -> str:
    """Read the public key in a file. A private key is refused right here: it would be at home in no other process."""
    from auth.jose.public_keys import is_secret

    try:
        with Path(name).expanduser().open("rb") as file:
            raw = file.read(KEY_FILE_BYTES + 1)
    except OSError as error:
        raise terminal.CliError(f"{name} cannot be read: {error.strerror}") from error
    text = raw[:KEY_FILE_BYTES].decode("utf-8", "replace")
    if is_secret(text):
        raise terminal.CliError(
            f"{name} holds a private key", hint="openssl pkey -in KEY -pubout makes the public one"
        )
    if len(raw) > KEY_FILE_BYTES:
        raise terminal.CliError(f"{name} is too long for a public key")
    return text


@command.command(
    "rotate-secret", help="Give a client another secret, shown once. The old one ends; its logins go on."
)
@click.argument("client_id")
@local.shows(_show_secret)
def rotate_secret(client_id: str) -> Any:
    return local.ask("clients.rotate_secret", {"id": client_id})


for _verb, _text in (
    ("disable", "Refuse a client program and all its logins, at once."),
    ("enable", "Let a disabled client program in again."),
):
    local.add_act(
        command,
        _verb,
        _text,
        act=f"clients.{_verb}",
        done=f"{_verb}d",
        argument="id",
        metavar="CLIENT_ID",
    )


@command.command(
    "remove",
    help="Forget a client program, and end all its logins. One that registers itself may come back; disable keeps it out.",
)
@click.argument("client_id")
@terminal.yes_option
@local.shows(local.says("removed", "id"))
def remove(client_id: str, yes: bool) -> Any:
    logins = local.ask("sessions.count", {"client": client_id})["logins"]
    question = f"remove {terminal.clean(client_id)}, with {counted(logins, 'login')}"
    terminal.agree_or_end(question, yes=yes or not logins, otherwise="nothing was removed")
    return local.ask("clients.remove", {"id": client_id})
