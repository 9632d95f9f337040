"""The address of an MCP server as a person types it, and when two addresses are the same resource (RFC 9728 §3.3,
RFC 8707 §2). Which further addresses a server may send us to is decided here too. No network in here.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from server.client.client_errors import BadAddress
from server.lib.http_client.public_addresses import is_public

# Long enough for every real endpoint, short enough to print.
MAX_ADDRESS = 2048
DEFAULT_PORTS = {"http": 80, "https": 443}
_UNIQUE_LOCAL = ipaddress.IPv6Network("fc00::/7")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    completed: bool  # something was added to what was typed

    @property
    def loopback(self) -> bool:
        return is_loopback(self.url)


def complete(typed: str) -> Address:
    """The address meant by `typed`: a scheme and `/mcp` are added where missing. Raises `BadAddress`."""
    text = typed.strip()
    if not text or len(text) > MAX_ADDRESS or any(c.isspace() or not c.isprintable() for c in text):
        raise BadAddress("that is no URL of an MCP server", hint="try http://localhost:8420/mcp")
    if text.isdigit():
        text = f"127.0.0.1:{text}"
    elif text.startswith(":") and text[1:].isdigit():
        text = f"127.0.0.1{text}"
    if "://" not in text:
        text = f"{'http' if _is_loopback_host(_split(f'http://{text}').hostname) else 'https'}://{text}"
    parts = _split(text)
    if parts.scheme not in DEFAULT_PORTS:
        raise BadAddress(
            f"{parts.scheme} is not spoken here", hint="use an https:// address, or http:// on this machine"
        )
    if not parts.hostname:
        raise BadAddress("that URL names no host", hint="try http://localhost:8420/mcp")
    if parts.username is not None or parts.password is not None:
        raise BadAddress(
            "that URL carries a user name or password", hint="leave them out; `ostiary login` logs in"
        )
    if parts.fragment:
        raise BadAddress("that URL has a fragment (#…)", hint="leave it out")
    if parts.scheme == "http" and not _is_loopback_host(parts.hostname):
        near = 8420 if (parts.port or 80) < 1024 else parts.port  # ports below are for root alone
        raise BadAddress(
            f"http to {parts.hostname} would send tokens in the clear",
            hint=f"use https://{parts.netloc}{parts.path}, or a tunnel: `ssh -L {near}:127.0.0.1:{parts.port or 80} USER@{parts.hostname}`,"
            f" then http://127.0.0.1:{near}{parts.path}",
        )
    url = _canonical(parts._replace(path=parts.path if parts.path.strip("/") else "/mcp"))
    return Address(url=url, completed=url != canonical(typed.strip()))


def canonical(url: str) -> str:
    """The form in which addresses are compared and stored: host in lower case and ASCII, no default port, no trailing
    slash, no fragment. A text that is no URL is returned as it is, equal only to itself."""
    try:
        return _canonical(_split(url))
    except BadAddress:
        return url


def same_resource(one: str, other: str) -> bool:
    return canonical(one) == canonical(other)


def origin(url: str) -> str:
    parts = _split(url)
    return urlunsplit((parts.scheme, _netloc(parts), "", "", ""))


def well_known(name: str, url: str) -> str:
    """RFC 8414 §3.1, RFC 9728 §3.1: the suffix goes between the host and the path (and its query)."""
    parts = _split(url)
    path = "" if parts.path == "/" else parts.path.removesuffix("/")
    return urlunsplit((parts.scheme, parts.netloc, f"/.well-known/{name}{path}", parts.query, ""))


def is_loopback(url: str) -> bool:
    try:
        return _is_loopback_host(_split(url).hostname)
    except BadAddress:
        return False


def same_place(one: str, other: str) -> bool:
    """Two names of this machine with the same port and path: one server, yet two resources."""
    here, there = _split(one), _split(other)
    return is_loopback(one) and is_loopback(other) and (here.port, here.path) == (there.port, there.path)


def may_follow(url: str, *, typed: str) -> bool:
    """Tell whether a server that a person named by `typed` may send us to `url`: over https, or to this machine if it is on it itself.
    To a private address only if it has one itself, and to an odd one (link-local, one of IPv6 that leads to another, or a number that
    only resolvers read) only if it is the same host. What a name resolves to is not looked at."""
    try:
        parts = _split(url)
    except BadAddress:
        return False
    if not parts.hostname or parts.username is not None or parts.fragment or len(url) > MAX_ADDRESS:
        return False
    if any(c.isspace() or not c.isprintable() for c in url):
        return False
    if parts.scheme == "https":
        place = _place_of(parts.hostname)
        return place == "public" or _is_near(parts.hostname, place, typed)
    return parts.scheme == "http" and _is_loopback_host(parts.hostname) and is_loopback(typed)


def _is_near(host: str, place: str, typed: str) -> bool:
    try:
        start = _split(typed).hostname or ""
    except BadAddress:
        return False
    return host == start or (place != "odd" and place == _place_of(start))


def _place_of(host: str) -> str:
    """Where an https server with this host is: here | private | odd | public."""
    try:
        name = _ascii(host.lower()).removesuffix(".")
    except BadAddress:
        return "odd"
    if _is_loopback_host(name):
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


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadAddress(f"that is no URL ({error})".lower(), hint="try http://localhost:8420/mcp") from None
    return parts


def _canonical(parts: SplitResult) -> str:
    return urlunsplit((parts.scheme.lower(), _netloc(parts), parts.path.removesuffix("/"), parts.query, ""))


def _netloc(parts: SplitResult) -> str:
    host = _ascii((parts.hostname or "").removesuffix("."))
    if ":" in host:
        host = f"[{host}]"
    return host if parts.port in (None, DEFAULT_PORTS.get(parts.scheme.lower())) else f"{host}:{parts.port}"


def _ascii(host: str) -> str:
    """Write a host name as it is looked up: other letters may be digits and dots. Raises `BadAddress`."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise BadAddress("that host name cannot be written as a DNS name") from None


def _is_loopback_host(host: str | None) -> bool:
    if not host:
        return False
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
