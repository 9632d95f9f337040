"""For whom this server answers: the Host allow-list and, for MCP endpoints, the Origin allow-list. Decisions on values only.

Both stop DNS rebinding: a page of any site can make a browser connect to a private address under the page's own name, and
then Host and Origin name that site. What an allowed cross-origin caller may read and send (CORS) is said by whoever answers;
here it is only decided whether it may call. MCP basic/transports/streamable-http.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))
_DEFAULT_PORT: Final = {"http": ":80", "https": ":443"}
_ORIGIN: Final = re.compile(r"(https?)://([^/?#@\s]+)")
_AUTHORITY: Final = re.compile(r"([0-9a-z._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


class OwnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Host and Origin are ours. `origin` is what the caller typed: scheme and host, no trailing slash."""

    origin: str
    cors: bytes | None = None  # for Access-Control-Allow-Origin; None without an Origin header


class ForeignRequest(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    status: int = 403


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts` are names as `authority` writes them: without a port they stand for the scheme's default port."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()  # as `normal_origin` writes them
    any_origin: bool = False  # only when the owner asked for `*`
    # Every listener is reachable from this machine alone although its sockets cannot show it (a Unix socket; a container
    # whose port is published on the host's loopback).
    on_loopback: bool = False
    refused: Callable[[str], object] = str  # is told each name that is not answered for

    def admits_host(self, scope: MutableMapping[str, Any], host: bytes | None) -> bool:
        name = authority(host, scope["scheme"])
        if name is None:
            return False
        if name in self.hosts:
            return True
        if _name_of(name) in LOOPBACK_NAMES and self._is_local(scope):
            return True
        self.refused(name)
        return False

    def admit(
        self, scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> OwnRequest | ForeignRequest:
        """For an MCP endpoint: Host, then Origin. `headers` has lower-case names, duplicates joined."""
        host = headers.get(b"host")
        if not self.admits_host(scope, host):
            return ForeignRequest(reason="this server does not answer for the name in the Host header")
        own = f"{scope['scheme']}://{authority(host, scope['scheme'])}"
        origin = headers.get(b"origin")
        if origin is None:
            return OwnRequest(origin=own)
        if self._admits_origin(scope, origin, own):
            return OwnRequest(origin=own, cors=origin)
        return ForeignRequest(reason="pages of this origin may not call this server")

    def _admits_origin(self, scope: MutableMapping[str, Any], sent: bytes, own: str) -> bool:
        origin = normal_origin(sent.decode("latin-1"))
        if origin is None:
            return False  # `null` too: sandboxed frames and local files of anybody send it
        if self.any_origin or origin == own or origin in self.origins:
            return True
        return _name_of(origin.partition("://")[2]) in LOOPBACK_NAMES and self._is_local(scope)

    def _is_local(self, scope: MutableMapping[str, Any]) -> bool:
        """The caller reached us over loopback, and no proxy stands between us and it."""
        return not scope["state"].get("proxied") and (self.on_loopback or _is_loopback(scope.get("server")))


def origin_of(scope: MutableMapping[str, Any]) -> str:
    """The origin that the caller typed: "http://localhost:8420". To be asked after the guard admitted the host."""
    scheme: str = scope["scheme"]
    return f"{scheme}://{authority(host_of(scope), scheme) or ''}"


def host_of(scope: MutableMapping[str, Any]) -> bytes | None:
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    for name, value in headers:
        if name == b"host":
            return value
    return None


def _is_loopback(server: tuple[str, int] | None) -> bool:
    """Our end of the connection is a loopback address."""
    return bool(server) and (server[0].startswith(("127.", "::ffff:127.")) or server[0] == "::1")


# The few names that a server goes by come with every request.
@lru_cache(maxsize=256)
def authority(host: bytes | None, scheme: str) -> str | None:
    """A Host header in the one form in which names are compared: lower case, without the scheme's default port."""
    if host is None:
        return None
    text = host.decode("latin-1").lower()
    if _AUTHORITY.fullmatch(text) is None:
        return None
    return text.removesuffix(_DEFAULT_PORT.get(scheme, ""))


def normal_origin(text: str) -> str | None:
    """An http or https origin in the one form in which origins are compared; None for anything else."""
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        return None
    scheme, rest = match.groups()
    name = authority(rest.encode("latin-1", "replace"), scheme)
    return None if name is None else f"{scheme}://{name}"


def _name_of(authority: str) -> str:
    """Without the port."""
    if authority.endswith("]"):
        return authority
    return authority.rpartition(":")[0] or authority
