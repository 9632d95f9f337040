"""Addresses of the web: when two are the same resource (RFC 9728 §3.3, RFC 8707 §2), and which may be named by whom.

Nothing here asks the network.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from server.lib.host_names import authority, in_ascii
from server.lib.http_client.public_addresses import is_public

# Long enough for every real endpoint, short enough to print.
MAX_ADDRESS: Final = 2048
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNIQUE_LOCAL: Final = ipaddress.IPv6Network("fc00::/7")


class NotAUrl(ValueError):
    """The error of a text that is no URL."""


def canonical(url: str) -> str:
    """Return `url` as addresses are compared and stored: host in lower case and ASCII, no default port, no trailing slash, no fragment.

    A text that is no URL is returned as it is, equal only to itself."""
    try:
        return canonical_parts(split(url))
    except NotAUrl:
        return url


def same_resource(one: str, other: str) -> bool:
    """Tell whether two addresses are the same resource."""
    return canonical(one) == canonical(other)


def origin(url: str) -> str:
    """Return scheme, host and port of `url` as they are compared. Raise `NotAUrl`."""
    parts = split(url)
    return urlunsplit((parts.scheme, _netloc(parts), "", "", ""))


def well_known(name: str, url: str) -> str:
    """Return the address of a document about `url`: the suffix goes between host and path (RFC 8414 §3.1, RFC 9728 §3.1)."""
    parts = split(url)
    path = "" if parts.path == "/" else parts.path.removesuffix("/")
    return urlunsplit((parts.scheme, parts.netloc, f"/.well-known/{name}{path}", parts.query, ""))


def is_loopback(url: str) -> bool:
    """Tell whether `url` is on this machine."""
    try:
        return is_loopback_host(split(url).hostname)
    except NotAUrl:
        return False


def same_place(one: str, other: str) -> bool:
    """Tell whether two names of this machine have the same port and path: one server, yet two resources."""
    here, there = split(one), split(other)
    return is_loopback(one) and is_loopback(other) and (here.port, here.path) == (there.port, there.path)


def may_follow(url: str, *, typed: str) -> bool:
    """Tell whether a server that a person named by `typed` may send us to `url`: over https, or to this machine if it is on it itself.
    To a private address only if it has one itself, and to an odd one (link-local, one of IPv6 that leads to another, or a number that
    only resolvers read) only if it is the same host. The addresses that a name resolves to are not looked at."""
    try:
        parts = split(url)
    except NotAUrl:
        return False
    if not parts.hostname or parts.username is not None or parts.fragment or len(url) > MAX_ADDRESS:
        return False
    if any(c.isspace() or not c.isprintable() for c in url):
        return False
    if parts.scheme == "https":
        place = _place_of(parts.hostname)
        return place == "public" or _is_near(parts.hostname, place, typed)
    return parts.scheme == "http" and is_loopback_host(parts.hostname) and is_loopback(typed)


def _is_near(host: str, place: str, typed: str) -> bool:
    try:
        start = split(typed).hostname or ""
    except NotAUrl:
        return False
    return host == start or (place != "odd" and place == _place_of(start))


def _place_of(host: str) -> str:
    """Say where an https server with this host is: here | private | odd | public."""
    try:
        name = _ascii(host.lower()).removesuffix(".")
    except NotAUrl:
        return "odd"
    if is_loopback_host(name):
        return "here"
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        # 2130706433 and 0x7f.1 are 127.0.0.1 to a resolver; no domain ends so.
        last = name.rpartition(".")[2]
        return "odd" if not last or last.isdigit() or last.startswith("0x") else "public"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    if address.is_loopback:
        return "here"
    if is_public(address):
        return "public"
    if isinstance(address, ipaddress.IPv6Address):
        # Others lead to an IPv4 address that they hold, or nowhere.
        return "private" if address in _UNIQUE_LOCAL else "odd"
    odd = address.is_link_local or address.is_unspecified or address.is_multicast or address.is_global
    return "odd" if odd else "private"


def host_of(url: str) -> str:
    """Return host and port of `url`, as people are told them."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url
    except ValueError:
        return url


def is_fit(url: str) -> bool:
    """Tell whether an owner may name `url` as an issuer: https, or http to this machine, and nothing that could be read in two ways."""
    return url.isascii() and (may_follow(url, typed=url))


def split(url: str) -> SplitResult:
    """Return the parts of `url`. Raise `NotAUrl`."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise NotAUrl(f"that is no URL ({error})".lower()) from None
    return parts


def canonical_parts(parts: SplitResult) -> str:
    return urlunsplit((parts.scheme.lower(), _netloc(parts), parts.path.removesuffix("/"), parts.query, ""))


def _netloc(parts: SplitResult) -> str:
    host = _ascii((parts.hostname or "").removesuffix("."))
    return authority(host, None if parts.port == DEFAULT_PORTS.get(parts.scheme.lower()) else parts.port)


def _ascii(host: str) -> str:
    """Write a host as it is looked up. Raise `NotAUrl`."""
    try:
        return in_ascii(host)
    except UnicodeError:
        raise NotAUrl("that host name cannot be written as a DNS name") from None


def is_loopback_host(host: str | None) -> bool:
    if not host:
        return False
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
