"""The proxies that the environment names. Pure; the way through one is in dialing.py.

HTTPS_PROXY and HTTP_PROXY are read by the scheme of what is called, ALL_PROXY for both; NO_PROXY lists what is called directly.
Names in small letters win, and an empty value is none. This machine is never called through a proxy.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import inet_aton
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from server.lib.host_names import authority, in_ascii
from server.lib.http_client.failures import ProxyFailed
from server.lib.http_client.public_addresses import Address

_NUMBERS: Final = re.compile(r"(?:0[xX][0-9a-fA-F]+|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]+|[0-9]+)){0,3}")
_ENTRY: Final = re.compile(
    r"\[(?P<v6>[^\]]+)\](?::(?P<v6_port>\d{1,5}))?|(?P<name>[^:]+)(?::(?P<port>\d{1,5}))?"
)


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy, or the reason why what the environment names cannot be used."""

    host: str = ""
    port: int = 0
    secure: bool = False  # TLS is spoken with the proxy itself
    authorization: str = ""  # the value of Proxy-Authorization
    variable: str = ""  # that names it
    problem: str = ""

    @property
    def place(self) -> str:
        """Return host and port as a URL has them."""
        return authority(self.host, self.port)

    def __repr__(self) -> str:
        return f"<Proxy {self.problem or self.place}>"

    def failed(self, why: object) -> ProxyFailed:
        """Return the failure to raise; `why` continues a sentence about the proxy."""
        return ProxyFailed(f"cannot be reached: the proxy {self.place} {why}")

    def refused(self, status: int) -> ProxyFailed:
        """Return the failure that an answer of the proxy itself stands for."""
        if status != 407:
            return self.failed(f"does not let us through (status {status})")
        scheme = "https" if self.secure else "http"
        if self.authorization:
            return self.failed(f"does not accept the login in {self.variable} (status 407)")
        return self.failed(f"wants a login: set {self.variable}={scheme}://user:password@{self.place}")


def proxy_for(url: SplitResult, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a URL that is http or https, or None where it is called directly."""
    names = [f"{url.scheme}_proxy", f"{url.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environment and "HTTP_PROXY" in names:
        names.remove("HTTP_PROXY")  # of a CGI program: whoever calls it has put it there, as a header
    name = next((name for name in names if environment.get(name)), None)
    if name is None:
        return None
    port = url.port or (443 if url.scheme == "https" else 80)
    exceptions = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if _is_direct(url.hostname or "", port, exceptions):
        return None
    return _read(name, environment[name].strip())


def _read(name: str, text: str) -> Proxy:
    """Return the proxy that a variable names. No word of its value is repeated: there may be a password in it."""
    scheme, found, _ = text.partition("://")
    scheme = scheme.lower() if found else "http"
    if scheme.startswith("socks"):
        return Proxy(
            problem=f"{name} names a SOCKS proxy, which is not supported: name an HTTP proxy in HTTPS_PROXY, or put the host into NO_PROXY"
        )
    unreadable = Proxy(
        problem=f"{name} names no proxy: write http://host:port, and %2F for a / in a password"
    )
    try:
        url = urlsplit(text if found else f"http://{text}")
        port = url.port
    except ValueError:
        return unreadable
    if scheme not in ("http", "https") or not url.hostname or port == 0 or not text.isascii():
        return unreadable
    if not text.isprintable() or " " in text or url.path not in ("", "/") or url.query or url.fragment:
        return unreadable
    authorization = ""
    if url.username is not None:
        login = f"{unquote(url.username)}:{unquote(url.password or '')}"
        authorization = "Basic " + b64encode(login.encode()).decode("ascii")
    return Proxy(
        host=url.hostname,
        port=port or (443 if scheme == "https" else 80),
        secure=scheme == "https",
        authorization=authorization,
        variable=name,
    )


def _is_direct(host: str, port: int, exceptions: str) -> bool:
    host = _in_ascii(host.rstrip("."))
    address = _address(host)
    if address is not None and (address.is_loopback or address.is_unspecified):
        return True
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return any(_covers(entry, host, address, port) for entry in re.split(r"[\s,]+", exceptions.lower()))


def _covers(entry: str, host: str, address: Address | None, port: int) -> bool:
    """Compare a host with an entry of NO_PROXY; a name stands for all names below it as well."""
    if entry == "*":
        return True
    entry = entry.replace("[", "").replace("]", "") if "]/" in entry else entry  # a network
    parts = _ENTRY.fullmatch(entry)
    name = (
        entry if parts is None else parts["v6"] or parts["name"]
    )  # without brackets an IPv6 address has no port
    only = None if parts is None else parts["v6_port"] or parts["port"]
    if only is not None and int(only) != port:
        return False
    if address is None:
        name = _in_ascii(name.removeprefix("*").strip("."))
        return bool(name) and (host == name or host.endswith(f".{name}"))
    if "/" not in name:
        return _address(name) == address
    try:
        return address in ip_network(name, strict=False)
    except ValueError:
        return False


def _in_ascii(name: str) -> str:
    """Write a name as requests do (IDNA)."""
    try:
        return in_ascii(name)
    except UnicodeError:
        return name


def _address(host: str) -> Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        if not _NUMBERS.fullmatch(host):
            return None
        try:
            return IPv4Address(inet_aton(host))  # as resolvers read 127.1 and 2130706433
        except OSError:
            return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
