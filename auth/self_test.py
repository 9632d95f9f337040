"""Whether what this server announces is what it does: looked at once at every start, and by `ostiary doctor`.

Clients believe the metadata to the letter and give up on the first promise that is not kept. The documents are built from the
tables of what exists; this holds what comes out against those tables once more, and signs and verifies tokens with the
keys of now. A problem here is a bug or a broken store, and the server must not start with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from auth.clients import client_registry as clients
from auth.context.identity_parts import Parts
from auth.endpoints import endpoint_table, server_metadata
from auth.grant_types.grant_type_table import offered
from auth.grants import refresh_tokens
from auth.grants.token_request import Issue
from auth.jose.base64url import pack
from auth.keys import key_rotation
from auth.tokens import access_token_verifier
from auth.tokens import access_tokens as tokens
from auth.tokens.access_token_verifier import BadToken
from auth.values import endpoint_paths, scopes
from auth.values.endpoint_paths import AUTHORIZATION_SERVER, JWKS, PROTECTED_RESOURCE
from auth.values.entropy import SEED_BYTES
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy

# RFC 7517 §4, RFC 7518 §6.2.1; what is not here is nobody's business, "d" above all.
PUBLIC_MEMBERS: Final = frozenset({"kty", "crv", "x", "y", "kid", "alg", "use"})
NOBODY: Final = "self-test"

Publish = Callable[[Site, Policy, str, str], dict[str, Any] | None]


def examine(parts: Parts, publish: Publish = server_metadata.document) -> tuple[str, ...]:
    """What is wrong, in words; nothing, as a rule. Asks no store."""
    site = parts.site

    def read(path: str) -> dict[str, Any] | None:
        return publish(site, parts.policy, path, site.issuer)

    server = read(AUTHORIZATION_SERVER)
    if server is None:
        return ("the metadata of the authorization server is not published",)
    return (
        *_endpoints(server, site),
        *_promises(server, parts.policy),
        *_resources(server, site, read),
        *_published_keys(parts),
        *_round_trip(parts),
        *_refresh_round_trip(parts),
    )


def _endpoints(server: Mapping[str, Any], site: Site) -> Iterator[str]:
    if server.get("issuer") != site.issuer or site.issuer.endswith("/"):
        yield f"the issuer is {server.get('issuer')!r} in the metadata and {site.issuer!r} in tokens"
    for name, url in server.items():
        if not name.endswith(("_endpoint", "_uri")):
            continue
        path = str(url).removeprefix(site.issuer)
        if path == url:
            yield f"{name} is {url!r}, which is not under the issuer"
        elif not (
            path in endpoint_table.FORMS
            or endpoint_table.special_of(path) is not None
            or path in endpoint_paths.ANNOUNCED_PAGES
            or path == JWKS
        ):
            yield f"{name} is announced at {path}, where nothing answers"


def _promises(server: Mapping[str, Any], policy: Policy) -> Iterator[str]:
    if tuple(server.get("grant_types_supported", ())) != offered(policy):
        yield "the grant types that are announced are not those that the token endpoint knows"
    if server.get("code_challenge_methods_supported") != ["S256"]:
        yield "another code challenge method than S256 is announced"
    if "none" in server.get("introspection_endpoint_auth_methods_supported", ()):
        yield "introspection is announced for clients that prove nothing"
    for name, methods in server.items():
        if name.endswith("_auth_methods_supported") and not set(methods) <= set(clients.AUTH_METHODS):
            yield f"{name} names a method by which no client is let in"


def _resources(
    server: Mapping[str, Any], site: Site, read: Callable[[str], dict[str, Any] | None]
) -> Iterator[str]:
    listed = set(server.get("scopes_supported", ()))
    for name, path in site.servers.items():
        if name in site.without_login:
            if read(PROTECTED_RESOURCE + path) is not None:
                yield f"{path} asks nobody to log in, and says that it does"
            continue
        resource = site.audience(name)
        for place in (PROTECTED_RESOURCE + path, path + PROTECTED_RESOURCE):
            found = read(place) or {}
            if found.get("resource") != resource:
                yield f"{place} names the resource {found.get('resource')!r}, and its tokens {resource!r}"
            if found.get("authorization_servers") != [server.get("issuer")]:
                yield f"{place} sends clients to another authorization server"
            if not set(found.get("scopes_supported", ())) <= listed:
                yield f"{place} lists a scope that the authorization server does not"
        if resource is None or site.server_of(resource, ()) != name:
            yield f"{resource!r} is not understood as the resource {name!r}"
    for scope in sorted(listed - {scopes.OFFLINE_ACCESS}):
        if site.scopes.asked(scope, scopes.EVERYTHING) != scope:
            yield f"the scope {scope!r} is listed and cannot be granted"


def _published_keys(parts: Parts) -> Iterator[str]:
    published: list[dict[str, Any]] = json.loads(parts.keys.ring.jwks(parts.clock()))["keys"]
    if not 1 <= len(published) <= key_rotation.PUBLISHED:
        yield f"{len(published)} signing keys are published"
    if len({key.get("kid") for key in published}) != len(published):
        yield "two published keys have one kid"
    for key in published:
        if private := sorted(key.keys() - PUBLIC_MEMBERS):
            yield f"the published key {key.get('kid')} has {', '.join(private)}, which is not public"


def _round_trip(parts: Parts) -> Iterator[str]:
    site, now = parts.site, parts.clock()
    try:
        key = parts.keys.ring.signing(now)
    except LookupError:
        yield "there is no key that signs"
        return
    if f'"{key.kid}"'.encode() not in parts.keys.ring.jwks(now):
        yield f"the key that signs, {key.kid}, is not published"
    issue = Issue(
        grant_id=NOBODY,
        subject=NOBODY,
        client_id=NOBODY,
        server=site.default,
        scope=NOBODY,
        auth_time=now,
        issued_at=now,
        ends_at=now + parts.policy.tokens.access_ms,
        counter=None,
    )
    token, _ = tokens.mint(
        issue, site=site, policy=parts.policy.tokens, key=key, seed=parts.entropy(SEED_BYTES)
    )
    try:
        claims = access_token_verifier.read(token, site.issuer, parts.keys, now)
    except BadToken as problem:
        yield f"a token that the key {key.kid} just signed is refused: {problem}"
        return
    if (claims.subject, claims.audience, claims.kid) != (NOBODY, site.audience(site.default), key.kid):
        yield "a token does not say what it was made to say"
    head, _, signature = token.split(".")
    try:
        access_token_verifier.read(f"{head}.{pack(b'{}')}.{signature}", site.issuer, parts.keys, now)
    except BadToken as problem:
        if str(problem) != "bad signature":
            yield f"a token with a foreign signature is refused for another reason: {problem}"
    else:
        yield "a token with a foreign signature is let in"


def _refresh_round_trip(parts: Parts) -> Iterator[str]:
    ring, now = parts.keys.refresh, parts.clock()
    link = refresh_tokens.ChainLink(grant_id="grt_" + "a" * 20, counter=1)
    try:
        written = refresh_tokens.write(ring.newest(), link)
    except LookupError:
        yield "there is no key that proves refresh tokens"
        return
    if refresh_tokens.parse(ring, written, now) != link:
        yield "a refresh token that was just written is not known again"
    if refresh_tokens.parse(ring, written.replace(".1.", ".2."), now) is not None:
        yield "a refresh token that somebody changed is let in"
