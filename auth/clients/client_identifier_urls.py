"""Clients whose id is the address of a document about them (OAuth Client ID Metadata Documents): what identity asks for.

Documents are judged in client_metadata_document.py; how long one counts, and what happens while it cannot be had, is in
stored_client_documents.py.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote

import msgspec

from auth.values.identity_model import Millis

URL_LENGTH: Final = 2_048
HOST_LENGTH: Final = 253
PREFIX: Final = "https://"

# RFC 3986's characters and nothing else. A port, even 443, would be a second spelling of the same address.
_URL: Final = re.compile(
    r"https://(?P<host>[^/?#:@\[\]]+)(?P<path>(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?)"
    r"(?P<query>(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?)"
)
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# No domain ends in a number; what resolvers take for an IPv4 address (decimal, octal, hexadecimal, short) always does.
_LAST_LABEL: Final = re.compile(r"[a-z]{2,63}|xn--[a-z0-9-]{1,59}")


class FetchedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON document that a stranger's server gave."""

    body: bytes
    max_age_seconds: int | None


class CannotFetch(Exception):
    """A failure to get a document. The text continues a sentence about its address. `definite`: its server answered, and has none."""

    def __init__(self, text: str, *, definite: bool = False) -> None:
        super().__init__(text)
        self.definite = definite


# One GET of a stranger's https address: checked, bounded, never redirected. Lent by the server. Raises `CannotFetch`.
FetchDocument: TypeAlias = Callable[[str], Awaitable[FetchedDocument]]


class Documents(Protocol):
    async def ensure(self, client_id: str, *, network: str, signed_in: bool, now: Millis) -> str | None:
        """Have the client behind this address in the store, as its document describes it; return None, or a sentence that says why
        there is no such client. `signed_in`: a person waits for it; without one, fetching is bounded per network."""
        ...


class _NoDocuments:
    async def ensure(self, client_id: str, *, network: str, signed_in: bool, now: Millis) -> str | None:
        return "this server takes no addresses as client ids"


NO_DOCUMENTS: Final[Documents] = _NoDocuments()


def is_document(client_id: str) -> bool:
    """Return whether a client id is an address: no client that is registered here has such a one."""
    return client_id.startswith(PREFIX)


class DocumentAddress(msgspec.Struct, frozen=True):
    """The parts of an address that a stranger names and that may be asked."""

    host: str
    path: str
    query: str

    @property
    def target(self) -> str:
        return (self.path or "/") + self.query


def read_address(url: str) -> DocumentAddress | str:
    """Return the parts, or what is wrong, to continue a sentence.

    There is one way to write an address, so that nothing reads it differently than this did.
    """
    if len(url) > URL_LENGTH:
        return f"must not be longer than {URL_LENGTH} characters"
    match = _URL.fullmatch(url)
    if match is None:
        return "must be https, with a name, and without a port, credentials, a fragment or unusual characters"
    host = match["host"]
    labels = host.split(".")
    if (
        len(host) > HOST_LENGTH
        or len(labels) < 2
        or not all(_LABEL.fullmatch(label) for label in labels)
        or not _LAST_LABEL.fullmatch(labels[-1])
        or labels[-1] == "localhost"
    ):
        return "must name a public host in lower case, and no number"
    return DocumentAddress(host, match["path"], match["query"])


def client_id_problem(url: str) -> str | None:
    """Say what keeps an address from being a client id, to continue a sentence; None: nothing."""
    address = read_address(url)
    if isinstance(address, str):
        return address
    if address.path in ("", "/"):
        return "must have a path"
    if any(segment in (".", "..") for segment in unquote(address.path).split("/")):
        return "must not have dots for a part of its path"
    return None
