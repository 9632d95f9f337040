"""`ostiary token URL`: a fresh access token for scripts, alone on stdout."""

from __future__ import annotations

from shlex import quote

import click

from server.cli import terminal
from server.cli.terminal import json_option


@click.command("token")
@click.argument("url", required=False)
@json_option
def command(url: str | None, as_json: bool) -> None:
    """Print an access token for URL, refreshed if it is about to end. Without a URL: for the server that you are logged in to, or were last.

    \b
    curl -H "Authorization: Bearer $(ostiary token)" …
    """
    from server.cli.use import target, which_server
    from server.client.access_token import Access
    from server.client.http_exchange import open_client
    from server.client.token_file import StoredLogin

    address = which_server.of(url or "")

    async def main() -> StoredLogin:
        async with open_client() as client:
            return await Access(target.token_file(), address.url, client=client).login()

    login = terminal.run_async(main)
    if login.proof_key is not None:
        raise terminal.CliError(
            f"the login at {login.url} is bound to a key, so its token is worth nothing to another program",
            hint=f"ostiary login {quote(login.url)} makes one that is not",
        )
    if as_json:
        terminal.out_json(
            {
                "url": login.url,
                "access_token": login.access_token.reveal(),
                "token_type": "Bearer",
                "expires_at": login.expires_at,
                "scope": login.scope,
            }
        )
    else:
        terminal.out(login.access_token.reveal())
