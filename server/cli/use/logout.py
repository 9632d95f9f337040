"""`ostiary logout URL`: end a login at its server, then forget it here."""

from __future__ import annotations

from shlex import quote

import click

from server.cli import terminal
from server.cli.terminal import json_option


@click.command("logout")
@click.argument("url")
@click.option("--forget", is_flag=True, help="forget the login even if the server cannot be told")
@json_option
def command(url: str, forget: bool, as_json: bool) -> None:
    """End the login at URL: revoke it there, remove it here."""
    import trio

    from server.cli.use import target
    from server.client.client_errors import ClientError, NotLoggedIn
    from server.client.device_login import end
    from server.client.http_exchange import open_client
    from server.client.seller_terms import PAYERS

    address = target.logged_in_address(url)
    file = target.token_file()

    async def main() -> bool:
        if await trio.to_thread.run_sync(file.get, address.url) is None:
            raise NotLoggedIn(f"not logged in at {address.url}", hint="ostiary whoami")
        lock = await trio.to_thread.run_sync(file.lock_of, address.url)
        async with lock.held_async():
            login = await trio.to_thread.run_sync(file.get, address.url)
            if login is None:  # another process was quicker, and it is done
                return True
            bought.append(login.client_id == PAYERS)
            try:
                async with open_client() as client:
                    revoked = await end(client, login)
            except ClientError as error:
                if not forget:
                    raise terminal.CliError(
                        f"{error}, so the login was not ended",
                        hint=f"try again later, or forget it here only: ostiary logout {quote(address.url)} --forget",
                    ) from None
                revoked = False
            await trio.to_thread.run_sync(file.drop, address.url)
            return revoked

    bought: list[bool] = []
    revoked = terminal.run_async(main)
    if as_json:
        terminal.out_json({"url": address.url, "revoked": revoked})
        return
    terminal.say(f"logged out of {address.url}")
    if any(bought):
        terminal.say(
            "what is left on the balance stays there: the next deposit of the same wallet opens it again"
        )
    if not revoked:
        terminal.say("the server was not told: the login there lives until it expires or is revoked")
