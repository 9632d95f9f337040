"""The first steps of every command that talks to a server: find the address that was meant, the token file, an MCP client."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import PurePath
from shlex import quote
from typing import Final

from server.cli import terminal
from server.client.access_token import Access
from server.client.address import Address, complete
from server.client.client_errors import ScopeNeeded
from server.client.http_exchange import open_client
from server.client.mcp_client import NO_MODES, McpClient
from server.client.named_servers import Places
from server.client.opened_clients import TCP, client_over_http, client_over_tcp
from server.client.seller_terms import NamelessEntry
from server.client.server_questions import Mode
from server.client.token_file import TokenFile, token_directory
from server.lib.oauth_client.addresses import same_place

# What `serve` takes in place of a URL.
FILES: Final = frozenset({".py", ".json", ".3md", ".toml"})


def address_of(typed: str) -> Address:
    """Return the address that was meant, or that has this name; if it is more than was typed, tell people so."""
    _question(typed)
    return told(meant(typed))


def logged_in_address(typed: str, *, tcp: bool = False) -> Address:
    """Return the address that was meant; if its login is stored under another name of this machine, return that one.

    All else is as with `address_of`. Nothing is sent anywhere but to the very address that was logged in to. `tcp`: it may be an address
    without logins, of lines on a port.
    """
    _question(typed)
    address = meant(typed, tcp=tcp)
    if address.url.startswith(TCP):
        return address
    logins = [login.url for login in token_file().all()]
    others = [url for url in logins if same_place(url, address.url)]
    if address.url not in logins and len(others) == 1:
        address = Address(url=others[0], completed=True)
    return told(address)


def _question(typed: str) -> None:
    """Tell people who mistyped the name of a server, or typed that of a file, that it is taken for a host."""
    if "://" not in typed and PurePath(typed).suffix.lower() in FILES:
        terminal.say_hint(f"{typed} is taken for a host, not for a file: what is wanted here is a URL")
    names = places().all()
    if not typed.isidentifier() or typed in names:
        return
    from difflib import get_close_matches

    if near := get_close_matches(typed, names, n=1):
        terminal.say_hint(f"{typed} is taken for a host; did you mean {near[0]}?")


def token_file() -> TokenFile:
    return TokenFile(token_directory(os.environ))


def places() -> Places:
    return Places(token_directory(os.environ))


def meant(typed: str, *, tcp: bool = False) -> Address:
    """Return the address that was meant, or that has this name, without telling people anything."""
    named = places().get(typed)
    return complete(typed, tcp=tcp) if named is None else Address(url=named, completed=True)


def told(address: Address) -> Address:
    """Return the address, after telling people if more is meant than they typed."""
    # Only to people: what a script typed is in the script.
    if address.completed and terminal.is_terminal(sys.stderr):
        terminal.say(terminal.paint(f"using {address.url}", "dim", sys.stderr))
    return address


def _with_what_is_held(needed: ScopeNeeded, url: str) -> ScopeNeeded:
    """Return `needed` with a hint to log in with the needed scopes and those of the login at `url`.

    A new login replaces the one before, so it has to ask for what that one had as well.
    """
    login = token_file().get(url)
    if login is None or not needed.scope:
        return needed
    union = " ".join(dict.fromkeys([*login.scope.split(), *needed.scope.split()]))
    return ScopeNeeded(
        str(needed), hint=f"ostiary login {quote(url)} --scope {quote(union)}", scope=needed.scope
    )


async def sells_to_all(url: str) -> bool:
    """Return whether the server at `url` says that people who pay need no login."""
    async with open_client() as client:
        return await NamelessEntry(client, url).take()


@asynccontextmanager
async def connected(
    url: str, *, pays: bool = False, modes: frozenset[Mode] = NO_MODES
) -> AsyncGenerator[McpClient, None]:
    """Open an MCP client that has settled how to speak with the server at `url`.

    `pays`: without a login it comes in as somebody who pays, where such people may. `modes`: the ways in which somebody answers questions.
    """
    if url.startswith(TCP):
        async with client_over_tcp(url, modes=modes) as mcp:
            yield mcp
        return
    async with open_client() as client:
        access = Access(token_file(), url, client=client)
        nameless = NamelessEntry(client, url) if pays else None
        try:
            async with client_over_http(client, url, access, nameless=nameless, modes=modes) as mcp:
                yield mcp
        except ScopeNeeded as needed:
            raise _with_what_is_held(needed, url) from None
