"""The terms of a server that sells, found from the URL of its MCP endpoint: where balances are filled, where calls are paid for over
plain HTTP, and whether people who pay may come in without a login.

The server publishes them in two documents that anybody may read: its list of what it sells to everybody (`/.well-known/x402`), and the
metadata of the protected resource. Whatever address they name, only its path is used: nothing is sent to another host than the one
that was typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import urljoin, urlsplit

import msgspec
import trio

from server.client.client_errors import BadAddress, ClientError
from server.client.http_exchange import exchange
from server.lib.http_client.http_client import HttpClient
from server.lib.json_objects import mapping
from server.lib.oauth_client.addresses import canonical, origin, same_place, well_known

PRICES: Final = "/.well-known/x402"
CALLS_ENDPOINT: Final = "ostiary_calls_endpoint"
DEPOSIT_ENDPOINT: Final = "ostiary_deposit_endpoint"
# The header with which each request over MCP says that its sender comes to pay and not to log in: a payment without anything in it. A
# payment for a call goes in the call.
NAMELESS: Final[Mapping[str, str]] = MappingProxyType({"PAYMENT-SIGNATURE": "e30="})
# The client id that an ostiary gives to a login that was bought.
PAYERS: Final = "ostiary-payers"
# How many servers of one list are read.
MAX_SERVERS: Final = 1000
MAX_LIST: Final = 4 * 1024 * 1024


class Seller(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one server. Its addresses are at the host that was typed; None: the server names no such address."""

    deposits: str | None = None
    calls: str | None = None  # tools are called below it
    nameless: bool = False  # whoever pays needs no login
    prices: Mapping[str, Any] = {}  # the list of what is sold to everybody


async def find_seller(client: HttpClient, url: str) -> Seller:
    """Return the terms on which the server at `url` sells. Raise `Unreachable` or `BadAnswer`.

    A server that publishes nothing about it sells nothing that could be found: the result is then empty.
    """
    listed = await _document(client, origin(url) + PRICES, MAX_LIST)
    metadata = await _document(client, well_known("oauth-protected-resource", url))
    entry = _entry(listed, url)
    return Seller(
        deposits=_beside(url, metadata.get(DEPOSIT_ENDPOINT)) or _beside(url, entry.get("deposit")),
        calls=_beside(url, metadata.get(CALLS_ENDPOINT)) or _beside(url, entry.get("calls")),
        nameless=bool(entry),
        prices=listed,
    )


class NamelessEntry:
    """The entry at `url` for people who pay and have no login. The server is asked once, after it refused them, whether it has one."""

    def __init__(self, client: HttpClient, url: str, *, taken: Callable[[], None] = lambda: None) -> None:
        """Create an entry that is not used yet; `taken` is called when it is."""
        self._client = client
        self._url = url
        self._tell = taken
        self._asking = trio.Lock()
        self._asked = False
        self.taken = False

    @property
    def headers(self) -> Mapping[str, str]:
        return NAMELESS if self.taken else {}

    async def take(self) -> bool:
        """Return whether people who pay may come in without a login; if so, requests need `headers` from now on.

        If that cannot be found out now, return False; the next caller asks again.
        """
        async with self._asking:
            if not self._asked:
                try:
                    listed = await _document(self._client, origin(self._url) + PRICES, MAX_LIST)
                except ClientError:
                    return False
                self.taken, self._asked = bool(_entry(listed, self._url)), True
                if self.taken:
                    self._tell()
        return self.taken


async def _document(client: HttpClient, address: str, limit: int = 1024 * 1024) -> Mapping[str, Any]:
    answer = await exchange(client, "GET", address, headers={"Accept": "application/json"}, limit=limit)
    return (answer.json_object() or {}) if answer.status == 200 else {}


def _entry(listed: Mapping[str, Any], url: str) -> Mapping[str, Any]:
    """Return the entry of the server at `url` in the list, or an empty one."""
    servers: object = listed.get("servers")
    for each in cast("list[object]", servers)[:MAX_SERVERS] if isinstance(servers, list) else ():
        entry = mapping(each)
        named: object = entry.get("mcp")
        if isinstance(named, str) and _is_same(_resolved(url, named), url):
            return entry
    return {}


def _resolved(url: str, named: str) -> str:
    """Return the absolute URL for `named`: a path is one at the host of `url`. Return "" if it is no URL."""
    try:
        return urljoin(origin(url), named)
    except ValueError:
        return ""


def _is_same(named: str, url: str) -> bool:
    try:
        return canonical(named) == canonical(url) or same_place(named, url)
    except BadAddress:
        return False


def _beside(url: str, named: object) -> str | None:
    """Return the path of `named` as a URL at the host of `url`; None if `named` is at another host, or no URL."""
    if not isinstance(named, str) or not named.isascii() or not named.isprintable() or len(named) > 2048:
        return None
    try:
        named = _resolved(url, named)
        path = urlsplit(named).path
        here = origin(url) + path
        fits = path.startswith("/") and _is_same(named, here)
    except (BadAddress, ValueError):
        return None
    return here if fits else None
