"""From the URL a person typed to the endpoints of its authorization server, the way a careful client goes it:
challenge (MCP authorization, RFC 9728 §5.1) → protected-resource metadata (RFC 9728 §3) → server metadata (RFC 8414 §3).

Each step is a function of its own, because `doctor` shows them one by one. Every step is refused rather than guessed:
the resource must be the one typed, the issuer must match byte for byte, and every address must be https or this machine.
One thing is forgiven: servers from before 2025-06-18 have no resource metadata, and are their own authorization server.
"""

from __future__ import annotations

from shlex import quote
from typing import Any
from urllib.parse import urlsplit

import msgspec

from server.client.address import may_follow, origin, same_resource, well_known
from server.client.challenge import Challenge, read_challenge
from server.client.client_errors import DiscoveryError, Unreachable
from server.client.http_exchange import HttpAnswer, exchange, host_of, peek
from server.client.token_requests import AUTHORIZATION_CODE, DEVICE_CODE_GRANT
from server.lib.http_client.http_client import HttpClient

MODERN = "2026-07-28"
OFFLINE_ACCESS = "offline_access"
# Ours, beside RFC 8414's own fields.
BUILT_IN_CLIENT = "ostiary_client_id"
# A probe without side effects: the cheapest request of the newest revision, which needs no session.
_PROBE = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "server/discover",
        "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        },
    }
)
_PROBE_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": MODERN,
    "Mcp-Method": "server/discover",
}


class ResourceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    found_at: str
    resource: str
    authorization_server: str
    scopes: tuple[str, ...] = ()
    title: str = ""  # what it calls itself (RFC 9728 §2, `resource_name`)


class ServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    found_at: str
    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    registration_endpoint: str | None = None
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
        return self.device_authorization_endpoint is not None and DEVICE_CODE_GRANT in self.grant_types

    @property
    def browser_login(self) -> bool:
        # RFC 8414 §2: a server that lists no grant types has this one.
        listed = AUTHORIZATION_CODE in self.grant_types or not self.grant_types
        return self.authorization_endpoint is not None and listed


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where and for what to log in."""

    url: str
    resource: str
    scope: str
    server: ServerMetadata
    title: str = ""  # as the server calls itself


class OpenServer(DiscoveryError):
    """The server answers without a token: there is nothing to log in to."""


class NoDocument(DiscoveryError):
    """None of the places where a document may be has one."""


async def discover(client: HttpClient, url: str) -> Place:
    """All steps. Raises `DiscoveryError` naming the step that broke, `OpenServer`, `Unreachable`, `BadAnswer`."""
    challenge = await find_challenge(client, url)
    try:
        resource = await find_resource(client, url, challenge)
    except NoDocument as missing:
        return await discover_as_of_old(client, url, challenge, missing)
    server = await find_server(client, url, resource.authorization_server)
    scope = login_scope(wanted_scope(challenge, resource), server)
    return Place(url=url, resource=resource.resource, scope=scope, server=server, title=resource.title)


async def discover_as_of_old(
    client: HttpClient, url: str, challenge: Challenge, missing: NoDocument
) -> Place:
    """MCP 2025-03-26, "Authorization Base URL": the origin is the authorization server."""
    try:
        server = await find_server(client, url, origin(url))
    except NoDocument:
        raise missing from None
    return Place(url=url, resource=url, scope=login_scope(challenge.scope or "", server), server=server)


def wanted_scope(challenge: Challenge, resource: ResourceMetadata) -> str:
    """MCP authorization: what the challenge asks for, else what the resource lists."""
    return challenge.scope if challenge.scope else " ".join(resource.scopes)


def login_scope(scope: str, server: ServerMetadata) -> str:
    """`scope`, and what makes a foreign server give refresh tokens where it knows that word. An ostiary gives them anyway,
    and whoever approves there should not read a word that changes nothing."""
    if OFFLINE_ACCESS not in server.scopes or server.built_in_client is not None:
        return scope
    return " ".join(dict.fromkeys([*scope.split(), OFFLINE_ACCESS]))


async def find_challenge(client: HttpClient, url: str) -> Challenge:
    """Step 1: ask without a token and be told where to get one."""
    answer = await exchange(client, "POST", url, content=_PROBE, headers=_PROBE_HEADERS)
    if answer.status != 401:
        # Some servers look at the message before they look for a token; a GET has none.
        second = await peek(client, "GET", url, headers={"Accept": "application/json, text/event-stream"})
        if second.status != 401:
            raise _no_challenge(url, answer)
        answer = second
    challenge = read_challenge(answer.head.values(b"www-authenticate"))
    return challenge or Challenge()


def _no_challenge(url: str, answer: HttpAnswer) -> DiscoveryError:
    host = host_of(url)
    if answer.status in (301, 302, 303, 307, 308):
        where = answer.head.value(b"location")[:300]
        return DiscoveryError(
            f"{url} redirects", hint=f"type the address it names: {quote(where)}" if where else None
        )
    speaks_mcp = "jsonrpc" in (answer.json_object() or {}) or answer.media_type == "text/event-stream"
    if speaks_mcp and answer.status < 500 and answer.status != 403:
        return OpenServer(f"{url} needs no login", hint=f"ostiary tools {quote(url)}")
    if answer.status in (404, 405) or 200 <= answer.status < 300:  # a page, perhaps; nothing in MCP
        return DiscoveryError(
            f"{host} speaks HTTP, and has no MCP server at {urlsplit(url).path}",
            hint="is its address right? Type the path as well, where it is another than /mcp",
        )
    if answer.status == 403:
        return DiscoveryError(
            f"{host} refuses to be called by this name", hint="use the name under which the server was set up"
        )
    return DiscoveryError(
        f"{url} answers with status {answer.status} where a login challenge (401) belongs",
        hint="is this an MCP server?",
    )


async def find_resource(client: HttpClient, url: str, challenge: Challenge) -> ResourceMetadata:
    """Step 2: what the resource calls itself and which authorization server it trusts."""
    places = [
        well_known("oauth-protected-resource", url),
        f"{origin(url)}/.well-known/oauth-protected-resource",
    ]
    named = challenge.resource_metadata
    if named is not None:
        if not may_follow(named, typed=url):
            raise DiscoveryError(
                "the challenge names resource metadata at an address that must not be followed",
                hint="only https, or http on this machine for a server on this machine",
            )
        places.insert(0, named)
    try:
        found_at, document = await _first_document(client, places, what="resource metadata")
    except Unreachable as error:
        if named is None or origin(named) == origin(url):
            raise
        raise DiscoveryError(
            f"the server at {origin(url)} calls itself {origin(named)}, where it cannot be reached: {error}",
            hint=f"if it is yours, set issuer in its settings to the address that callers type: {origin(url)}",
        ) from error
    resource = document.get("resource")
    # RFC 9728 §3.3: a document speaks for what its place was made from, which at the root is the origin; one that the
    # challenge named speaks for the address that was asked.
    from_root = found_at == places[-1] and found_at != named
    expected = (url, origin(url)) if from_root else (url,)
    if not isinstance(resource, str) or not any(same_resource(resource, each) for each in expected):
        spelled = resource[:300] if isinstance(resource, str) else "nothing"
        raise DiscoveryError(
            f"the server calls itself {spelled}, not {url}",
            hint=f"use that address: {quote(spelled)}" if isinstance(resource, str) else None,
        )
    servers = _strings(document.get("authorization_servers"))
    if not servers:
        raise DiscoveryError(f"the resource metadata at {found_at} names no authorization server")
    chosen = next((server for server in servers if same_resource(server, origin(url))), servers[0])
    return ResourceMetadata(
        found_at=found_at,
        resource=resource,
        authorization_server=chosen,
        scopes=_strings(document.get("scopes_supported")),
        title=name if isinstance(name := document.get("resource_name"), str) else "",
    )


async def find_server(client: HttpClient, url: str, issuer: str) -> ServerMetadata:
    """Step 3: the endpoints of the authorization server."""
    parts = urlsplit(issuer)
    if not may_follow(issuer, typed=url) or parts.query:
        raise DiscoveryError(
            f"the authorization server {issuer[:300]} has an address that must not be followed",
            hint="only https, or http on this machine for a server on this machine",
        )
    places = [well_known("oauth-authorization-server", issuer), well_known("openid-configuration", issuer)]
    if parts.path.strip("/"):
        places.append(f"{issuer.removesuffix('/')}/.well-known/openid-configuration")
    found_at, document = await _first_document(client, places, what="authorization server metadata")
    if document.get("issuer") != issuer:
        raise DiscoveryError(
            f"the metadata at {found_at} speaks for another issuer than {issuer}",
            hint="the two must be equal to the letter; this is the server's to put right",
        )
    token_endpoint = _endpoint(document, "token_endpoint", url)
    if token_endpoint is None:
        raise DiscoveryError(f"the metadata at {found_at} names no token endpoint")
    return ServerMetadata(
        found_at=found_at,
        issuer=issuer,
        token_endpoint=token_endpoint,
        authorization_endpoint=_endpoint(document, "authorization_endpoint", url),
        device_authorization_endpoint=_endpoint(document, "device_authorization_endpoint", url),
        revocation_endpoint=_endpoint(document, "revocation_endpoint", url),
        registration_endpoint=_endpoint(document, "registration_endpoint", url),
        grant_types=_strings(document.get("grant_types_supported")),
        auth_methods=_strings(document.get("token_endpoint_auth_methods_supported")),
        challenge_methods=_strings(document.get("code_challenge_methods_supported")),
        scopes=_strings(document.get("scopes_supported")),
        documents=document.get("client_id_metadata_document_supported") is True,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
        proof_algorithms=_strings(document.get("dpop_signing_alg_values_supported")),
        built_in_client=_client_id(document.get(BUILT_IN_CLIENT)),
    )


async def _first_document(client: HttpClient, places: list[str], *, what: str) -> tuple[str, dict[str, Any]]:
    """The first of these that is there. One that is there and broken is an error, not a reason to look on."""
    for place in dict.fromkeys(places):
        answer = await exchange(client, "GET", place, headers={"Accept": "application/json"})
        if answer.status in (401, 403, 404, 405, 410):
            continue
        if answer.status != 200:
            raise DiscoveryError(f"no {what}: {place} answers with status {answer.status}")
        document = answer.json_object()
        if document is None:
            raise DiscoveryError(f"no {what}: {place} does not answer in JSON")
        return place, document
    raise NoDocument(
        f"no {what} at {host_of(places[0])}", hint="this server offers no login that can be discovered"
    )


def _endpoint(document: dict[str, Any], name: str, typed: str) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not may_follow(value, typed=typed):
        raise DiscoveryError(
            f"{name} is an address that must not be followed",
            hint="only https, or http on this machine for a server on this machine",
        )
    return value


def _client_id(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() else None


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    items: list[object] = value  # pyright: ignore[reportUnknownVariableType]  # JSON
    return tuple(item for item in items if isinstance(item, str))[:100]
