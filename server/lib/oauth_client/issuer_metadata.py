"""The document that an authorization server publishes about itself (RFC 8414 §3, OpenID Connect Discovery §4): where it may be, and what it says.

Its issuer must match to the letter, and its endpoints must be addresses that it may name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from server.lib.json_objects import strings
from server.lib.oauth_client.addresses import may_follow, well_known
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.token_requests import AUTHORIZATION_CODE, DEVICE_CODE

OPENID: Final = "openid-configuration"
S256: Final = "S256"
# Ours, beside RFC 8414's own fields.
BUILT_IN_CLIENT: Final = "ostiary_client_id"
ENDPOINTS: Final = (
    "authorization_endpoint",
    "device_authorization_endpoint",
    "revocation_endpoint",
    "registration_endpoint",
)
_ABSENT: Final = frozenset((401, 403, 404, 405, 410))


class ServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The statements of an authorization server about itself, as far as they were read."""

    issuer: str
    token_endpoint: str
    found_at: str = ""
    authorization_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    registration_endpoint: str | None = None
    jwks_uri: str | None = None
    grant_types: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] = ()
    challenge_methods: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    documents: bool = False  # a client id may be the address of a document about the client
    names_itself: bool = False  # RFC 9207: every authorization response carries `iss`
    proof_algorithms: tuple[str, ...] = ()  # RFC 9449: its tokens can be bound to such a key
    built_in_client: str | None = None  # an ostiary says which client id our terminal has there

    @property
    def device_login(self) -> bool:
        return self.device_authorization_endpoint is not None and DEVICE_CODE in self.grant_types

    @property
    def browser_login(self) -> bool:
        # RFC 8414 §2: a server that lists no grant types has this one.
        listed = AUTHORIZATION_CODE in self.grant_types or not self.grant_types
        return self.authorization_endpoint is not None and listed


def server_places(issuer: str) -> list[str]:
    """Return where the document of an issuer may be: at the two places of RFC 8414 §3, then at that of OpenID Connect."""
    places = [well_known("oauth-authorization-server", issuer), well_known(OPENID, issuer)]
    return [*places, openid_place(issuer)] if urlsplit(issuer).path.strip("/") else places


def openid_place(issuer: str) -> str:
    """Return where OpenID Connect Discovery §4 has the document of an issuer."""
    return f"{issuer.removesuffix('/')}/.well-known/{OPENID}"


async def first_document(ask: Ask, places: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the first of these documents that is there, and its place. Raise `OAuthFailure`.

    One that is there and broken is a failure, not a reason to look on."""
    for place in dict.fromkeys(places):
        answer = await ask("GET", place, {"Accept": "application/json"}, b"")
        if answer.status in _ABSENT:
            continue
        if answer.status != 200:
            raise OAuthFailure(
                f"answered with status {answer.status}", reason="status", place=place, status=answer.status
            )
        try:
            return place, answer.json_object()
        except OAuthFailure as failure:
            failure.place = place
            raise
    raise OAuthFailure("publishes no document about itself", reason="no document", place=places[0])


async def find_server(
    ask: Ask,
    issuer: str,
    *,
    typed: str,
    places: Sequence[str] | None = None,
    required: Sequence[str] = (),
    optional: Sequence[str] = ENDPOINTS,
) -> ServerMetadata:
    """Return what the authorization server says of itself. Raise `OAuthFailure`.

    `typed` is the address that a person named, from which it is decided where the endpoints may be. Others than the token endpoint and
    those that are `required` or `optional` are not looked at."""
    place, said = await first_document(ask, server_places(issuer) if places is None else places)
    if said.get("issuer") != issuer:
        raise OAuthFailure(
            "says that it is another issuer than the settings name", reason="issuer", place=place
        )
    endpoints = {
        name: _endpoint(said, name, typed, place, needed=name not in optional)
        for name in dict.fromkeys(("token_endpoint", *required, *optional))
    }
    return ServerMetadata(
        issuer=issuer,
        found_at=place,
        token_endpoint=endpoints.pop("token_endpoint") or "",
        **endpoints,
        grant_types=strings(said.get("grant_types_supported")),
        auth_methods=strings(said.get("token_endpoint_auth_methods_supported")),
        challenge_methods=strings(said.get("code_challenge_methods_supported")),
        scopes=strings(said.get("scopes_supported")),
        documents=said.get("client_id_metadata_document_supported") is True,
        names_itself=said.get("authorization_response_iss_parameter_supported") is True,
        proof_algorithms=strings(said.get("dpop_signing_alg_values_supported")),
        built_in_client=_client_id(said.get(BUILT_IN_CLIENT)),
    )


def _endpoint(said: Mapping[str, Any], name: str, typed: str, place: str, *, needed: bool) -> str | None:
    value = said.get(name)
    if value is None and not needed:
        return None
    if not isinstance(value, str) or not value.isascii() or not may_follow(value, typed=typed):
        raise OAuthFailure(
            f"has no {name} with https at a place where it may be",
            reason="endpoint",
            place=place,
            field="" if value is None else name,
        )
    return value


def _client_id(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() else None
