"""What every command that talks to a server needs first: the address that was meant, the token file, an MCP client."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from server.cli import terminal
from server.client.access import Access
from server.client.address import Address, complete, same_place
from server.client.mcp import McpClient
from server.client.rpc import Endpoint
from server.client.tokens import TokenFile, token_directory
from server.client.wire import open_client


def address_of(typed: str) -> Address:
    """The address that was meant; where something was added to what was typed, that is said."""
    return _told(complete(typed))


def logged_in_address(typed: str) -> Address:
    """Like `address_of`, but where the login is kept under another name of this machine, that name is used.

    Nothing is sent anywhere but to the very address that was logged in to.
    """
    address = complete(typed)
    logins = [login.url for login in token_file().all()]
    others = [url for url in logins if same_place(url, address.url)]
    if address.url not in logins and len(others) == 1:
        address = Address(url=others[0], completed=True)
    return _told(address)


def token_file() -> TokenFile:
    return TokenFile(token_directory(os.environ))


def _told(address: Address) -> Address:
    # Only to people: what a script typed is in the script.
    if address.completed and terminal.is_terminal(sys.stderr):
        terminal.say(terminal.paint(f"using {address.url}", "dim", sys.stderr))
    return address


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[McpClient, None]:
    """An MCP client that has settled how to speak with the server at `url`."""
    async with open_client(url) as client:
        mcp = McpClient(Endpoint(client, url, Access(token_file(), url, client=client)))
        try:
            await mcp.connect()
            yield mcp
        finally:
            await mcp.aclose()
