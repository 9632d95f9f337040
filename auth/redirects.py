"""Where a browser may be sent back to after a login (RFC 8252 §7, oauth.md §4.2): which addresses a client may register.

Only the form is judged here. Comparing a registered address with a requested one comes with the endpoint that redirects.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

LENGTH: Final = 2_048
# Published by well-known clients, and no browser runs anything under them. Other custom schemes need a dot (RFC 8252 §7.1).
KNOWN_SCHEMES: Final = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf"})


def is_acceptable(uri: str) -> bool:
    """https anywhere, http on loopback, or a scheme that belongs to an application; nothing that a browser would execute."""
    if (
        len(uri) > LENGTH
        or not uri.isascii()
        or not uri.isprintable()
        or " " in uri
        or "\\" in uri
        or "#" in uri
    ):
        return False
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
        _ = parts.port  # raises where it is none
    except ValueError:
        return False
    if "@" in parts.netloc or any(segment in (".", "..") for segment in unquote(parts.path).split("/")):
        return False
    match parts.scheme:
        case "https":
            return bool(host)
        case "http":
            return _is_loopback(host)
        case scheme:
            return scheme in KNOWN_SCHEMES or "." in scheme


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
