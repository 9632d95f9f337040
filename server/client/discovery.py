"""The way from the URL a person typed to the endpoints of its authorization server, as a careful client goes it:
challenge (MCP authorization, RFC 9728 §5.1) → protected-resource metadata (RFC 9728 §3) → server metadata (RFC 8414 §3).

Each step is a function of its own, because `doctor` shows them one by one. Every step is refused rather than guessed:
the resource must be the one typed, the issuer must match byte for byte, and every address must be https or this machine.
One thing is forgiven: servers from before 2025-06-18 have no resource metadata, and are their own authorization server.
"""

from __future__ import annotations

from shlex import quote
from urllib.parse import urlsplit

import msgspec

from server.client.client_errors import DiscoveryError, Unreachable
from server.client.http_exchange import exchange, peek
from server.client.mcp_session.agreement import discover_params
from server.client.mcp_session.session_messages import request_message
from server.client.oauth_exchange import asking
from server.lib.http_client.http_client import HttpAnswer, HttpClient
from server.lib.oauth_client import issuer_metadata, resource_metadata
from server.lib.oauth_client.addresses import host_of, may_follow, origin
from server.lib.oauth_client.challenge import Challenge, read_challenge
from server.lib.oauth_client.issuer_metadata import ServerMetadata
from server.lib.oauth_client.oauth_answers import OAuthFailure
from server.lib.oauth_client.resource_metadata import RESOURCE_METADATA, ResourceMetadata
from server.mcp.versions import LATEST

OFFLINE_ACCESS = "offline_access"
# How a person is told which addresses a server may name.
FOLLOWED = "only https, or http on this machine for a server on this machine"
# A probe without side effects: the cheapest request of the newest revision, which needs no session.
_PROBE = request_message(1, "server/discover", discover_params())
_PROBE_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": LATEST.version,
    "Mcp-Method": "server/discover",
}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The resource and the server to log in at."""

    url: str
    resource: str
    scope: str
    server: ServerMetadata
    title: str = ""  # as the server calls itself


class OpenServer(DiscoveryError):
    """The error of a server that answers without a token: there is nothing to log in to."""


class NoDocument(DiscoveryError):
    """The error where none of the places has a document."""


async def discover(client: HttpClient, url: str) -> Place:
    """Take all steps. Raise `DiscoveryError` naming the step that broke, `OpenServer`, `Unreachable` or `BadAnswer`."""
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
    """Take the origin for the authorization server (MCP 2025-03-26, "Authorization Base URL")."""
    try:
        server = await find_server(client, url, origin(url))
    except NoDocument:
        raise missing from None
    return Place(url=url, resource=url, scope=login_scope(challenge.scope or "", server), server=server)


def wanted_scope(challenge: Challenge, resource: ResourceMetadata) -> str:
    """Return the scopes that the challenge asks for, else those that the resource lists (MCP authorization)."""
    return challenge.scope if challenge.scope else " ".join(resource.scopes)


def login_scope(scope: str, server: ServerMetadata) -> str:
    """Return `scope`, and the word that makes a foreign server give refresh tokens, where it knows that.

    An ostiary gives them anyway, and whoever approves there should not read a word that changes nothing."""
    if OFFLINE_ACCESS not in server.scopes or server.built_in_client is not None:
        return scope
    return " ".join(dict.fromkeys([*scope.split(), OFFLINE_ACCESS]))


async def find_challenge(client: HttpClient, url: str) -> Challenge:
    """Take step 1: ask without a token and be told where to get one."""
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
    """Take step 2: find out what the resource calls itself, and which authorization server it trusts."""
    named = challenge.resource_metadata
    try:
        return await resource_metadata.find_resource(asking(client), url, named=named)
    except OAuthFailure as failure:
        raise _broken(failure, "resource metadata", url) from None
    except Unreachable as error:
        if named is None or origin(named) == origin(url):
            raise
        raise DiscoveryError(
            f"the server at {origin(url)} calls itself {origin(named)}, where it cannot be reached: {error}",
            hint=f"if it is yours, set issuer in its settings to the address that callers type: {origin(url)}",
        ) from error


async def find_server(client: HttpClient, url: str, issuer: str) -> ServerMetadata:
    """Take step 3: find the endpoints of the authorization server."""
    if not may_follow(issuer, typed=url) or urlsplit(issuer).query:
        raise DiscoveryError(
            f"the authorization server {issuer[:300]} has an address that must not be followed",
            hint=FOLLOWED,
        )
    try:
        return await issuer_metadata.find_server(asking(client), issuer, typed=url)
    except OAuthFailure as failure:
        raise _broken(failure, "authorization server metadata", issuer) from None


def _broken(failure: OAuthFailure, what: str, asked: str) -> DiscoveryError:
    """Return the error for a document that is not there, or cannot be used."""
    place = failure.place
    match failure.reason:
        case "no document":
            return NoDocument(
                f"no {what} at {host_of(place)}", hint="this server offers no login that can be discovered"
            )
        case "status":
            return DiscoveryError(f"no {what}: {place} answers with status {failure.status}")
        case "issuer":
            return DiscoveryError(
                f"the metadata at {place} speaks for another issuer than {asked}",
                hint="the two must be equal to the letter; this is the server's to put right",
            )
        case "resource":
            said = failure.description
            return DiscoveryError(
                f"the server calls itself {said or 'nothing'}, not {asked}",
                hint=f"use that address: {quote(said)}" if said else None,
            )
        case "no server":
            return DiscoveryError(f"the resource metadata at {place} names no authorization server")
        case "endpoint" if failure.field == RESOURCE_METADATA:
            return DiscoveryError(f"the challenge {failure}", hint=FOLLOWED)
        case "endpoint" if failure.field:
            return DiscoveryError(f"{failure.field} is an address that must not be followed", hint=FOLLOWED)
        case "endpoint":
            return DiscoveryError(f"the metadata at {place} names no token endpoint")
        case _:
            return DiscoveryError(f"no {what}: {place} does not answer in JSON")
