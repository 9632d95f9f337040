"""Which way of logging in: a code that is approved anywhere (RFC 8628), or a browser on this very machine (RFC 8252)."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Literal, TypeAlias

from server.client.client_errors import LoginError
from server.lib.oauth_client.issuer_metadata import ServerMetadata

Way: TypeAlias = Literal["device", "browser"]


def choose(server: ServerMetadata, url: str, *, asked: Way | None = None) -> Way:
    """`asked`, else the code wherever it is offered: it works on every machine, over SSH too, and nobody has to be at
    this one to approve it. Raises `LoginError` where there is no way that we know."""
    if asked is not None:
        return asked
    if server.device_login:
        return "device"
    if server.browser_login:
        return "browser"
    raise LoginError(
        f"{server.issuer} offers no login by device code and none in a browser",
        hint=f"ostiary doctor {quote(url)}",
    )


def headless(environ: Mapping[str, str], platform: str) -> bool:
    """Is there no browser here that the person in front of this terminal would see?"""
    if any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "CI")):
        return True
    return platform.startswith("linux") and not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
