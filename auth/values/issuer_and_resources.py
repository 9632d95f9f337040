"""The issuer and the MCP endpoints of this server, and the choice of the one that a client means (RFC 8707).

The issuer is configuration, never the Host header. On loopback alone, documents repeat the name that the caller typed,
because every MCP client refuses metadata that names another host; tokens always carry the canonical names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from auth.values.scopes import Vocabulary

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Site(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str  # canonical: scheme and host, no trailing slash
    loopback: bool
    servers: Mapping[str, str]  # name → path of its MCP endpoint; the first is the default
    scopes: Vocabulary = msgspec.field(default_factory=Vocabulary)
    aliases: Mapping[str, str] = MappingProxyType({})  # further path → name of the server to which it leads
    # Servers that nobody logs in to: they are no protected resources.
    without_login: frozenset[str] = frozenset()
    # Who may try tools in a browser; "": nobody.
    tried_by: Literal["", "owners", "people"] = ""
    program: str = "ostiary"  # how its commands begin, for somebody who is where it runs
    # What a server says of itself besides: its name → members of its metadata, each the path of an address.
    announced: Mapping[str, Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        if normalise(self.issuer) is None or urlsplit(self.issuer).path:
            raise ValueError(f"not a canonical issuer: {self.issuer!r}")
        if not self.servers or any(not p.startswith("/") or p.endswith("/") for p in self.servers.values()):
            raise ValueError("a server's path starts with a slash and does not end with one")

    @property
    def default(self) -> str:
        return next(iter(self.servers))

    def public(self, origin: str) -> str:
        """Return the origin that documents show to a caller who came by `origin`."""
        return origin if self.loopback else self.issuer

    def login_at(self, origin: str) -> str:
        """Return the command that logs a terminal in at the default server."""
        return f"{self.program} login {quote(origin + self.servers[self.default])}"

    def audience(self, server: str) -> str | None:
        """Return the `aud` claim of a server's tokens, or None if no such server is configured (any more)."""
        path = self.servers.get(server)
        return None if path is None else self.issuer + path

    def server_of(self, resource: str, origins: Sequence[str]) -> str | None:
        """Return the server that `resource` names under the issuer or one of `origins`; None if it is not ours."""
        wanted = normalise(resource)
        for name, path in self.servers.items():
            if any(wanted == normalise(origin + path) for origin in (self.issuer, *origins)):
                return name
        for path, name in self.aliases.items():
            if any(wanted == normalise(origin + path) for origin in (self.issuer, *origins)):
                return name
        return None

    def choose(self, resources: Sequence[str], origins: Sequence[str]) -> str | ForeignResource | None:
        """Return the server that all `resources` name; None if there are none; `ForeignResource` if one is not ours or they differ."""
        if not resources:
            return None
        found = {self.server_of(resource, origins) for resource in resources}
        server = found.pop()
        return ForeignResource() if found or server is None else server

    def meant(
        self, resources: Sequence[str], origins: Sequence[str], bound: str | None = None
    ) -> str | ForeignResource:
        """Return the server that a client asks for: by its resources, else by its registration (`bound`), else the default."""
        named = self.choose(resources, origins)
        if isinstance(named, ForeignResource) or (bound is not None and bound not in self.servers):
            return ForeignResource()
        server = named or bound or self.default
        return server if bound in (None, server) else ForeignResource()


class ForeignResource(msgspec.Struct, frozen=True):
    """A resource that this server does not issue tokens for."""


def normalise(url: str) -> str | None:
    """Normalise the URL of a resource for comparison; return None if it is no HTTP URL.

    Clients add a slash to a bare host, carry query strings along, and write hosts in capitals; none of that makes a
    different resource.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not host or "@" in parts.netloc:
        return None
    name = f"[{host}]" if ":" in host else host
    if port is not None and port != _DEFAULT_PORTS[scheme]:
        name = f"{name}:{port}"
    path = parts.path[:-1] if parts.path.endswith("/") else parts.path
    return f"{scheme}://{name}{path}"
