"""The address of an MCP server as a person types it."""

from __future__ import annotations

import msgspec

from server.client.client_errors import BadAddress
from server.lib.oauth_client.addresses import (
    DEFAULT_PORTS,
    MAX_ADDRESS,
    NotAUrl,
    canonical,
    canonical_parts,
    is_loopback,
    is_loopback_host,
    split,
)


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The address of an MCP server, completed from what a person typed."""

    url: str
    completed: bool  # something was added to what was typed

    @property
    def loopback(self) -> bool:
        return is_loopback(self.url)


def complete(typed: str, *, tcp: bool = False) -> Address:
    """Return the address meant by `typed`: a scheme and `/mcp` are added where missing. `tcp`: it may also be `tcp://HOST:PORT`. Raise
    `BadAddress`."""
    try:
        return _complete(typed, tcp=tcp)
    except NotAUrl as problem:
        raise BadAddress(str(problem), hint="try http://localhost:8420/mcp") from None


def _complete(typed: str, *, tcp: bool) -> Address:
    text = typed.strip()
    if not text or len(text) > MAX_ADDRESS or any(c.isspace() or not c.isprintable() for c in text):
        raise BadAddress("that is no URL of an MCP server", hint="try http://localhost:8420/mcp")
    if text.isdigit():
        text = f"127.0.0.1:{text}"
    elif text.startswith(":") and text[1:].isdigit():
        text = f"127.0.0.1{text}"
    if "://" not in text:
        text = f"{'http' if is_loopback_host(split(f'http://{text}').hostname) else 'https'}://{text}"
    parts = split(text)
    if parts.scheme == "tcp" and tcp:
        if not parts.hostname or not parts.port or parts.path or parts.query or "@" in parts.netloc:
            raise BadAddress("that is no host and port", hint="try tcp://127.0.0.1:9000")
        return Address(url=canonical_parts(parts), completed=False)
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
    if parts.scheme == "http" and not is_loopback_host(parts.hostname):
        near = 8420 if (parts.port or 80) < 1024 else parts.port  # ports below are for root alone
        raise BadAddress(
            f"http to {parts.hostname} would send tokens in the clear",
            hint=f"use https://{parts.netloc}{parts.path}, or a tunnel: `ssh -L {near}:127.0.0.1:{parts.port or 80} USER@{parts.hostname}`,"
            f" then http://127.0.0.1:{near}{parts.path}",
        )
    url = canonical_parts(parts._replace(path=parts.path if parts.path.strip("/") else "/mcp"))
    return Address(url=url, completed=url != canonical(typed.strip()))
