"""What a reverse proxy says about its caller, believed only if the proxy's own address is listed. Off by default.

Hops are walked from the right, from the peer that we see to the first address that is not ours: counting them would believe
whatever the caller wrote in front. One family of headers is believed, the configured one, because a proxy that sets one kind
passes the other on as the caller sent it. RFC 7239.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from .connection_table import IpAddress, Network, plain_address
from .handler import Scope
from .request_head import HOST

# More hops than this are no deployment that anybody runs.
_MAX_HOPS: Final = 16
_FORWARDED_PAIR: Final = re.compile(
    r'\s*([!#$%&\'*+\-.^_`|~0-9A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^;,"\s]*)\s*(?:([;,])|$)'
)
_SCHEMES: Final = frozenset(("http", "https"))


class Proxies(msgspec.Struct, frozen=True, kw_only=True):
    """`networks` are those of the proxies, and of nobody else."""

    networks: tuple[Network, ...]
    headers: Literal["x-forwarded", "forwarded"] = "x-forwarded"
    unix_socket: bool = False  # whoever can reach our Unix socket is a proxy

    def resolve(self, scope: Scope) -> Scope:
        """The scope as the proxy's caller would have had it; the same object if there is nothing to believe."""
        client = scope.get("client")
        if client is None:
            if not self.unix_socket:
                return scope
        elif not self._trusts(_address(client[0])):
            return scope
        hops = _x_forwarded(scope) if self.headers == "x-forwarded" else _forwarded(scope)
        if not hops:
            return scope
        caller: str | None = None
        scheme = host = None
        for hop in hops:  # the nearest first
            scheme, host = hop.get("proto", scheme), hop.get("host", host)
            address = _address(hop.get("for", ""))
            if address is None:
                break
            caller = str(address)
            if not self._trusts(address):
                break
        changed = dict(scope)
        changed["state"] = {**scope["state"], "proxied": True}
        if caller is not None:
            changed["client"] = (caller, 0)
        if scheme is not None and scheme.lower() in _SCHEMES:
            changed["scheme"] = scheme.lower()
        if host is not None and HOST.fullmatch(host.encode("latin-1")):
            headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
            changed["headers"] = [(b"host", host.encode("latin-1")), *headers]
        return changed

    def _trusts(self, address: IpAddress | None) -> bool:
        return address is not None and any(address in network for network in self.networks)


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _x_forwarded(scope: Scope) -> list[dict[str, str]]:
    """The nearest hop first. Each list is aligned from the right; a shorter one was written by the nearest proxies only."""
    lists: dict[str, list[str]] = {}
    for key, header in (
        ("for", b"x-forwarded-for"),
        ("proto", b"x-forwarded-proto"),
        ("host", b"x-forwarded-host"),
    ):
        items = [item.strip() for value in _values(scope, header) for item in value.split(",")]
        lists[key] = list(reversed(items))[:_MAX_HOPS]
    length = max(len(items) for items in lists.values())
    return [
        {key: items[index] for key, items in lists.items() if index < len(items)} for index in range(length)
    ]


def _forwarded(scope: Scope) -> list[dict[str, str]]:
    """RFC 7239 §4, the nearest hop first. Not empty if there is such a header: whatever its writers put in front of it, it
    came through a proxy."""
    hops: list[dict[str, str]] = []
    for text in reversed(_values(scope, b"forwarded")):
        elements = _elements(text)
        if elements is None:  # only what the nearest proxy appended can be told apart from what it was sent
            return [*hops, *(_elements(text.rpartition(",")[2]) or [{}])]
        hops.extend(reversed(elements))
    return hops[:_MAX_HOPS]


def _elements(text: str) -> list[dict[str, str]] | None:
    elements: list[dict[str, str]] = []
    element: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _FORWARDED_PAIR.match(text, at)
        if match is None:
            return None
        name, value, separator = match.groups()
        element[name.lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        at = match.end()
        if separator != ";":
            elements.append(element)
            element = {}
    return [*elements, element] if element else elements


def _address(node: str) -> IpAddress | None:
    """An address, with or without a port; None for `unknown`, obfuscated names and everything else."""
    if node.startswith("["):
        node = node[1:].partition("]")[0]
    elif node.count(":") == 1:
        node = node.partition(":")[0]
    try:
        return plain_address(node)
    except ValueError:
        return None
