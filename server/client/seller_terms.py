"""What a server says of selling, to whoever knows the address of its MCP endpoint: where balances are filled, where calls are paid for by
plain HTTP, and whether it lets in those who pay and have no login.

It says so in two documents that anybody may read: its list of what is sold to everybody (`/.well-known/x402`), and the metadata of the
protected resource. Whatever address they name, only its path is taken: nothing goes to another host than the one that was typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import urljoin, urlsplit

import msgspec
import trio

from server.client.address import canonical, origin, same_place, well_known
from server.client.client_errors import BadAddress, ClientError
from server.client.http_exchange import exchange
from server.client.mcp_answers import mapping
from server.lib.http_client.http_client import HttpClient

PRICES: Final = "/.well-known/x402"
CALLS_ENDPOINT: Final = "ostiary_calls_endpoint"
DEPOSIT_ENDPOINT: Final = "ostiary_deposit_endpoint"
# What somebody sends with each request over MCP who comes to pay and not to log in: a payment without anything in it. One that pays
# for a call goes in the call.
NAMELESS: Final[Mapping[str, str]] = MappingProxyType({"PAYMENT-SIGNATURE": "e30="})
# As whom an ostiary knows those who bought their login.
PAYERS: Final = "ostiary-payers"
# Servers of one list that are looked at.
MAX_SERVERS: Final = 1000
MAX_LIST: Final = 4 * 1024 * 1024


class Seller(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses at the host that was typed; None: it does not say that there is such a thing."""

    deposits: str | None = None
    calls: str | None = None  # tools are called below it
    nameless: bool = False  # whoever pays needs no login
    prices: Mapping[str, Any] = {}  # the list of what is sold to everybody


async def find_seller(client: HttpClient, url: str) -> Seller:
    """Raises `Unreachable` and `BadAnswer`. A server that says nothing of all this sells nothing that could be found."""
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
    """Whether somebody without a login, who pays, may come in at `url`: asked once, when they were turned away."""

    def __init__(self, client: HttpClient, url: str, *, taken: Callable[[], None] = lambda: None) -> None:
        """`taken` is told when it is."""
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
        """True: with `headers`, from now on. Where it cannot be found out now, the next one asks again."""
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
    """What the list says of the server at `url`."""
    servers: object = listed.get("servers")
    for each in cast("list[object]", servers)[:MAX_SERVERS] if isinstance(servers, list) else ():
        entry = mapping(each)
        named: object = entry.get("mcp")
        if isinstance(named, str) and _is_same(_resolved(url, named), url):
            return entry
    return {}


def _resolved(url: str, named: str) -> str:
    """A path is one at the host that was asked."""
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
    """The same path at the host that was typed, if it is that host that is named."""
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
