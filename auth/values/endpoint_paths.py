"""The addresses of what programs and people ask identity for. Which module answers at one is in auth/endpoints/endpoint_table.py, and for pages in `server/console/pages`."""

from __future__ import annotations

from typing import Final

from auth.values.issuer_and_resources import Site

AUTHORIZATION_SERVER: Final = "/.well-known/oauth-authorization-server"
PROTECTED_RESOURCE: Final = "/.well-known/oauth-protected-resource"
JWKS: Final = "/.well-known/jwks.json"
# Those that sign no more are there as well: what they signed is kept for years.
RECEIPT_KEYS: Final = "/.well-known/receipt-keys.json"
DID_DOCUMENT: Final = "/.well-known/did.json"
KEY_DOCUMENTS: Final = frozenset((JWKS, RECEIPT_KEYS, DID_DOCUMENT))
AUTHORIZE: Final = "/authorize"  # a page
PAR: Final = "/par"
REGISTER: Final = "/register"
INTROSPECT: Final = "/introspect"
TOKEN: Final = "/token"
REVOKE: Final = "/revoke"
DEVICE_AUTHORIZATION: Final = "/device_authorization"
DEVICE: Final = "/device"  # a page: where people type the code

# Pages that programs send people to: metadata and the device endpoint name them. The others are known to our own links alone.
ANNOUNCED_PAGES: Final = frozenset((AUTHORIZE, DEVICE))

# Clients try these in turn. A clean 404 moves them on; a page or a 401 confuses them, a 5xx ends their login.
PROBED: Final = ("/.well-known/oauth-", "/.well-known/openid-")


def resource_metadata_url(site: Site, server: str, origin: str, typed: str | None = None) -> str:
    """Return the URL of a server's metadata (RFC 9728). `typed` is the path of the request: if it ends in a slash, so does the URL."""
    path = site.servers[server]
    slash = "/" if typed == path + "/" else ""
    return f"{site.public(origin)}{PROTECTED_RESOURCE}{path}{slash}"
