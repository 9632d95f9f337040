"""The command `ostiary login [URL]`: its options, and which way to log in they mean. login_screen.py shows the login."""

from __future__ import annotations

import sys
from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from server.cli import terminal
from server.cli.terminal import json_option, paint, say

if TYPE_CHECKING:
    from server.client.signing_in import Wish
    from server.lib.oauth_client.client_identity import ClientIdentity

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def login_options(command: Decorated) -> Decorated:
    """Add the options that say in which way to log in, and as which client; `asked` reads them."""
    for option in (
        click.option(
            "--port", type=int, metavar="PORT", help="the port of its redirect address, if it is a fixed one"
        ),
        click.option("--client-secret", metavar="REF", help="its secret: env:NAME, file:/path or ask"),
        click.option("--client-id", metavar="ID", help="log in as a client that was registered by hand"),
        click.option("--scope", metavar="SCOPES", help="ask for these scopes only, separated by spaces"),
        click.option(
            "--no-browser", is_flag=True, help="as --browser, but open none: print the link, take the answer"
        ),
        click.option(
            "--browser", "way", flag_value="browser", help="log in through a browser on this machine"
        ),
        click.option(
            "--device", "way", flag_value="device", help="show a code, even where a browser would do"
        ),
    ):
        command = option(command)
    return command


@click.command("login")
@click.argument("url", required=False)
@login_options
@click.option("--dpop", is_flag=True, help="bind the login to a key kept here; `token` then prints none")
@click.option("--qr/--no-qr", default=None, help="draw the address as a QR code, or never")
@json_option
def command(url: str | None, no_browser: bool, qr: bool | None, as_json: bool, **wanted: Any) -> None:
    """Log in to the MCP server at URL, ours or anybody's, or to the one that runs on this machine.

    Where the server offers it, a code is shown: somebody approves it in any browser, on any device, or at the machine
    that runs the server. That works from everywhere, over SSH too, so it comes first. Other servers are logged in to
    through a browser on this machine; over SSH its last address is pasted back here.
    """
    import os

    import trio

    from server.cli.browser import would_be_seen
    from server.cli.use import target, which_server
    from server.cli.use.login_screen import LoginScreen
    from server.client.http_exchange import open_client
    from server.client.signing_in import sign_in
    from server.client.token_file import StoredLogin

    wish = asked(no_browser=no_browser, **wanted)
    address = which_server.to_log_in_to(url)
    file = target.token_file()
    opens = not no_browser and would_be_seen(os.environ, sys.platform)
    screen = LoginScreen(local=address.loopback, qr=qr, opens=opens)

    async def main() -> StoredLogin:
        await trio.to_thread.run_sync(file.get, address.url)  # an unusable token file is told before the wait
        async with open_client() as client:
            return await sign_in(client, file, address.url, screen=screen, wish=wish)

    try:
        login = terminal.run_async(main)
    finally:
        screen.clear()
    if as_json:
        terminal.out_json({"url": login.url, "scope": login.scope, "expires_at": login.expires_at})
        return
    tick = "✓ " if terminal.can_draw(sys.stderr) else ""
    say(f"{paint(f'{tick}logged in', 'green', sys.stderr)} to {login.url}")
    terminal.say_hint(f"ostiary tools {quote(login.url)}")


def asked(
    way: str | None,
    *,
    no_browser: bool,
    scope: str | None,
    client_id: str | None,
    client_secret: str | None,
    port: int | None,
    dpop: bool = False,
) -> Wish:
    """Return the options of a login as a `Wish`. Raise `Misuse` if one is wrong or contradicts another."""
    from server.client.signing_in import Wish
    from server.lib.oauth_client.proof_key import ProofKey

    if no_browser and way == "device":
        raise terminal.Misuse("--device opens no browser anyway", hint="leave out --no-browser")
    if port is not None and not 0 < port < 65536:
        raise terminal.Misuse("--port is a number from 1 to 65535")
    return Wish(
        way="browser" if way == "browser" or no_browser else "device" if way == "device" else None,
        scope=scope,
        identity=_identity(client_id, client_secret),
        port=port or 0,
        key=ProofKey.new() if dpop else None,
    )


def _identity(client_id: str | None, reference: str | None) -> ClientIdentity | None:
    """Return the client named on the command line, or None. Raise `Misuse` if its secret cannot be read, or has no client.

    The secret itself is never on a command line, which everybody can read: there is only a reference to it.
    """
    from server.lib.oauth_client.client_identity import BASIC, NONE, ClientIdentity
    from server.lib.secret import Secret
    from server.settings.secret_reference import SecretUnreadable, read_secret

    if client_id is None:
        if reference is not None:
            raise terminal.Misuse("--client-secret belongs to a --client-id")
        return None
    if reference is None:
        return ClientIdentity(client_id=client_id, method=NONE)
    try:
        secret = (
            Secret(click.prompt("client secret", hide_input=True, err=True))
            if reference == "ask"
            else read_secret(reference)
        )
    except SecretUnreadable as error:
        raise terminal.Misuse(str(error), hint="env:NAME, file:/path, or ask to be asked") from None
    return ClientIdentity(client_id=client_id, secret=secret, method=BASIC)
