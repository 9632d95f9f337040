"""What a Client ID Metadata Document must be like, and the client that it describes. Pure: bytes in, values out.

The draft's rules (draft-ietf-oauth-client-id-metadata-document §4) and stricter ones of ours: a document that anybody may
publish proves who owns its host and nothing more, so a browser is only ever sent back to that host or to the person's own
machine. Fetching is not here, nor is how long a document counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from auth.clients import redirect_uris as redirects
from auth.clients.client_identifier_urls import DocumentAddress, read_address
from auth.clients.client_registry import NAME_LENGTH, PRIVATE_KEY
from auth.jose import public_keys as client_keys
from auth.jose.public_keys import BadKeys
from auth.values.compact_json import json_bytes
from auth.values.identity_model import AUTHORIZATION_CODE, DEVICE_CODE, JWT_BEARER, REFRESH_TOKEN
from auth.values.requester import clean, shown

TEXT_LENGTH: Final = 200
REDIRECTS: Final = 20  # editors list one per release channel
LISTED: Final = 50  # entries of any other list

# What a client may have that nobody here has entered: nothing without a person's consent.
GRANT_TYPES: Final = (AUTHORIZATION_CODE, REFRESH_TOKEN, DEVICE_CODE)
# Nor here, but a provider that the operator trusts speaks for the person, and names the client that proves itself with a key.
PROVEN_GRANT_TYPES: Final = (*GRANT_TYPES, JWT_BEARER)
# RFC 7591 §2: what a client has that names none, and the refresh token that they all use.
USUAL_GRANT_TYPES: Final = (AUTHORIZATION_CODE, REFRESH_TOKEN)
AUTH_METHODS: Final = ("none", PRIVATE_KEY)  # a secret that is published is none

# Schemes of applications whose makers own these hosts. Everybody else's could be anybody's.
OWN_SCHEMES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "claude.ai": frozenset({"claude"}),
        "cursor.com": frozenset({"cursor"}),
        "www.cursor.com": frozenset({"cursor"}),
        "goose-docs.ai": frozenset({"goose"}),
        "vscode.dev": frozenset({"vscode", "vscode-insiders"}),
        "insiders.vscode.dev": frozenset({"vscode-insiders"}),
        "zed.dev": frozenset({"zed"}),
    }
)
# Kept for the operator to look at, and for who checks signatures.
_KEPT: Final = ("application_type", "software_id", "software_version", "token_endpoint_auth_signing_alg")

Json: TypeAlias = Mapping[str, Any]


class BadDocument(ValueError):
    """The text says why, to continue a sentence about the document."""


class DocumentDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A client as its document describes it, in the form of its row."""

    name: str
    auth_method: str
    grant_types: tuple[str, ...]
    redirect_uris: tuple[str, ...]
    client_uri: str
    jwks: str | None
    jwks_uri: str | None
    metadata: str  # JSON
    left_out: int  # redirect addresses that are neither its own nor on the person's machine


def read(client_id: str, body: bytes) -> DocumentDescription:
    """The client behind a client id that `client_identifier_urls.client_id_problem` has nothing against. Raises `BadDocument`."""
    try:
        document: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise BadDocument("is not JSON") from None
    if not isinstance(document, dict):
        raise BadDocument("is not a JSON object")
    return _described(client_id, cast("Json", document))


def _described(client_id: str, document: Json) -> DocumentDescription:
    home = read_address(client_id)
    if not isinstance(home, DocumentAddress):
        raise BadDocument("has an address that is no client id")
    if document.get("client_id") != client_id:
        raise BadDocument("has another client_id than its address")
    if any(name.startswith("client_secret") for name in document):
        raise BadDocument("has a client secret, which everybody can read")
    auth_method = document.get("token_endpoint_auth_method", "none")
    if auth_method not in AUTH_METHODS:
        raise BadDocument(f"needs token_endpoint_auth_method to be {' or '.join(AUTH_METHODS)}")
    name = shown(document["client_name"], NAME_LENGTH) if isinstance(document.get("client_name"), str) else ""
    if not name:
        raise BadDocument("needs a client_name")
    grant_types = _grant_types(document, proven=auth_method == PRIVATE_KEY)
    listed, left_out = _redirects(document, home, needed=AUTHORIZATION_CODE in grant_types)
    jwks, jwks_uri = _keys(document, needed=auth_method == PRIVATE_KEY)
    return DocumentDescription(
        name=name,
        auth_method=auth_method,
        grant_types=grant_types,
        redirect_uris=listed,
        client_uri=_client_uri(document, home),
        jwks=jwks,
        jwks_uri=jwks_uri,
        metadata=json_bytes(_kept(document)).decode(),
        left_out=left_out,
    )


def _texts(document: Json, name: str, most: int) -> tuple[str, ...] | None:
    """A list of texts, without what comes twice; None if the document has no such member."""
    if name not in document:
        return None
    values = document[name]
    if not isinstance(values, list) or not all(
        isinstance(value, str) for value in cast("list[object]", values)
    ):
        raise BadDocument(f"needs {name} to be a list of texts")
    texts = cast("list[str]", values)
    if len(texts) > most:
        raise BadDocument(f"has more than {most} {name}")
    return tuple(dict.fromkeys(texts))


def _grant_types(document: Json, *, proven: bool) -> tuple[str, ...]:
    named = _texts(document, "grant_types", LISTED)
    possible = PROVEN_GRANT_TYPES if proven else GRANT_TYPES
    ours = USUAL_GRANT_TYPES if named is None else tuple(each for each in possible if each in named)
    if not set(ours) - {REFRESH_TOKEN}:
        raise BadDocument("has no grant type that this server offers to it")
    response_types = _texts(document, "response_types", LISTED)
    if AUTHORIZATION_CODE in ours and response_types is not None and "code" not in response_types:
        raise BadDocument("needs response_types to have code")
    return ours


def _redirects(document: Json, home: DocumentAddress, *, needed: bool) -> tuple[tuple[str, ...], int]:
    listed = _texts(document, "redirect_uris", REDIRECTS) or ()
    if not all(redirects.is_acceptable(uri) for uri in listed):
        raise BadDocument(
            "has a redirect_uri that is not https, http on loopback, or an application's own scheme"
        )
    kept = tuple(uri for uri in listed if _belongs(uri, home))
    if needed and not kept:
        raise BadDocument(
            "needs redirect_uris at its own host or on loopback" if listed else "needs redirect_uris"
        )
    return kept, len(listed) - len(kept)


def _belongs(uri: str, home: DocumentAddress) -> bool:
    """Whether a browser that is sent there ends at the client's own host, in its own application, or at its person's machine."""
    parts = urlsplit(uri)
    match parts.scheme:
        case "https":
            return parts.netloc == home.host
        case "http":
            return redirects.is_loopback(uri)
        case scheme:
            return scheme in OWN_SCHEMES.get(home.host, ())


def _keys(document: Json, *, needed: bool) -> tuple[str | None, str | None]:
    """`jwks` as JSON, and `jwks_uri`. Judged even where the client does not use them: a private key is lost once published."""
    jwks, jwks_uri = document.get("jwks"), document.get("jwks_uri")
    if jwks is not None and jwks_uri is not None:
        raise BadDocument("has both jwks and jwks_uri")  # RFC 7591 §2
    if jwks is None and jwks_uri is None and needed:
        raise BadDocument(f"needs jwks or jwks_uri for {PRIVATE_KEY}")
    if jwks_uri is not None and (not isinstance(jwks_uri, str) or isinstance(read_address(jwks_uri), str)):
        raise BadDocument("needs jwks_uri to be a plain https address")
    if jwks is None:
        return None, jwks_uri if needed else None
    text = json_bytes(cast("Json", jwks)).decode() if isinstance(jwks, dict) else ""
    try:
        client_keys.read_set(cast("object", jwks))
    except BadKeys as problem:
        if needed or client_keys.is_secret(text):
            raise BadDocument(f"has a jwks that {problem}") from problem
    return text if needed else None, None


def _client_uri(document: Json, home: DocumentAddress) -> str:
    """The client's own page, where it is at its own host: a link elsewhere would lend it somebody else's name."""
    uri = document.get("client_uri")
    if not isinstance(uri, str):
        return ""
    address = read_address(uri)
    return uri if isinstance(address, DocumentAddress) and address.host == home.host else ""


def _kept(document: Json) -> dict[str, str]:
    texts = {name: document[name] for name in _KEPT if isinstance(document.get(name), str)}
    return {name: cleaned for name, text in texts.items() if (cleaned := clean(text, TEXT_LENGTH))}
