"""The documents that clients find us by: RFC 8414 (authorization server) and RFC 9728 (protected resource).

Built from the tables of what exists, so that they cannot promise more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auth.clients.client_registry import AUTH_METHODS, CLI_CLIENT_ID, CONFIDENTIAL_METHODS
from auth.grant_types.grant_type_table import offered
from auth.grants.identity_assertions import PROFILE
from auth.jose.public_keys import ALGORITHMS
from auth.values import scopes
from auth.values.endpoint_paths import (
    AUTHORIZATION_SERVER,
    AUTHORIZE,
    DEVICE_AUTHORIZATION,
    INTROSPECT,
    JWKS,
    PAR,
    PROBED,
    PROTECTED_RESOURCE,
    REGISTER,
    REVOKE,
    TOKEN,
)
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy


def _untitled(server: str) -> str:
    del server
    return ""


def authorization_server(site: Site, policy: Policy, origin: str) -> dict[str, Any]:
    """RFC 8414 §2, for a caller who came by `origin`."""
    base = site.public(origin)
    return {
        "issuer": base,
        "authorization_endpoint": base + AUTHORIZE,
        "token_endpoint": base + TOKEN,
        "device_authorization_endpoint": base + DEVICE_AUTHORIZATION,
        "revocation_endpoint": base + REVOKE,
        "introspection_endpoint": base + INTROSPECT,
        **({} if policy.registration.mode == "off" else {"registration_endpoint": base + REGISTER}),
        "jwks_uri": base + JWKS,
        "pushed_authorization_request_endpoint": base + PAR,
        "require_pushed_authorization_requests": False,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "authorization_response_iss_parameter_supported": True,
        "grant_types_supported": list(offered(policy)),
        # draft-ietf-oauth-identity-assertion-authz-grant §7.2
        **({"authorization_grant_profiles_supported": [PROFILE]} if policy.assertions else {}),
        "code_challenge_methods_supported": ["S256"],
        # Clients use it only where "none" is among the methods below as well.
        "client_id_metadata_document_supported": policy.registration.documents != "off",
        "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "token_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "revocation_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "introspection_endpoint_auth_methods_supported": list(CONFIDENTIAL_METHODS),
        "introspection_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "dpop_signing_alg_values_supported": list(ALGORITHMS),
        "scopes_supported": [*site.scopes.listed, scopes.OFFLINE_ACCESS],
        "ostiary_client_id": CLI_CLIENT_ID,  # ours (RFC 8414 §2 leaves room): who our own terminal is here
    }


def protected_resource(
    site: Site, origin: str, path: str, server: str, title: Callable[[str], str] = _untitled
) -> dict[str, Any]:
    """RFC 9728 §2, which leaves room for what is ours. `path` as it was typed: clients compare `resource` with their own URL, slash
    and all. `title`: what a server is called, for people."""
    name, base = title(server), site.public(origin)
    return {
        "resource": base + path,
        **({"resource_name": name} if name else {}),
        "authorization_servers": [base],
        "scopes_supported": list(
            site.scopes.listed
        ),  # without offline_access, which is no scope of the resource
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": list(ALGORITHMS),
        "dpop_bound_access_tokens_required": False,
        **{name: base + place for name, place in site.announced.get(server, {}).items()},
    }


def document(
    site: Site, policy: Policy, path: str, origin: str, title: Callable[[str], str] = _untitled
) -> dict[str, Any] | None:
    """What is published under `path`, if anything."""
    if path == AUTHORIZATION_SERVER:
        return authorization_server(site, policy, origin)
    if path == PROTECTED_RESOURCE and site.default not in site.without_login:
        return protected_resource(site, origin, site.servers[site.default], site.default, title)
    # A program that was given another way is told of the one that tokens are for.
    for way, name in site.aliases.items():
        documents = (PROTECTED_RESOURCE + way, way + PROTECTED_RESOURCE)
        if name not in site.without_login and path.removesuffix("/") in documents:
            return protected_resource(site, origin, site.servers[name], name, title)
    for name, served in site.servers.items():
        if name in site.without_login:
            continue
        if path in (PROTECTED_RESOURCE + served, PROTECTED_RESOURCE + served + "/"):
            return protected_resource(site, origin, path.removeprefix(PROTECTED_RESOURCE), name, title)
        if path == served + PROTECTED_RESOURCE:
            return protected_resource(site, origin, served, name, title)
    return None


def is_probe(site: Site, path: str) -> bool:
    """Whether a client looks for a document here that we do not publish."""
    return path.startswith(PROBED) or any(
        path.startswith(served + prefix)
        for served in (*site.servers.values(), *site.aliases)
        for prefix in PROBED
    )
