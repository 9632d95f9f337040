"""The published documents, member for member, and the clean 404s beside them (RFC 8414, RFC 9728)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auth.identity import Identity
from auth.values import endpoint_paths
from auth.values.http_messages import WireReply
from auth.values.issuer_and_resources import Site, normalise
from tests.auth.identity_fakes import ORIGIN, get, header, open_identity, post

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp", "lab": "/lab/mcp"})

CONFIDENTIAL = ["client_secret_basic", "client_secret_post", "private_key_jwt"]
SIGNED = ["ES256", "RS256", "PS256", "EdDSA", "Ed25519"]


async def fetched(identity: Identity, path: str, **fields: Any) -> WireReply:
    reply = await identity.handle(get(path, **fields))
    assert reply is not None
    return reply


def expected_server(base: str) -> dict[str, Any]:
    return {
        "issuer": base,
        "authorization_endpoint": base + "/authorize",
        "token_endpoint": base + "/token",
        "device_authorization_endpoint": base + "/device_authorization",
        "revocation_endpoint": base + "/revoke",
        "introspection_endpoint": base + "/introspect",
        "registration_endpoint": base + "/register",
        "jwks_uri": base + "/.well-known/jwks.json",
        "pushed_authorization_request_endpoint": base + "/par",
        "require_pushed_authorization_requests": False,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "authorization_response_iss_parameter_supported": True,
        "grant_types_supported": [
            "authorization_code",
            "urn:ietf:params:oauth:grant-type:device_code",
            "refresh_token",
            "client_credentials",
        ],
        "code_challenge_methods_supported": ["S256"],
        "client_id_metadata_document_supported": True,
        "token_endpoint_auth_methods_supported": ["none", *CONFIDENTIAL],
        "token_endpoint_auth_signing_alg_values_supported": SIGNED,
        "revocation_endpoint_auth_methods_supported": ["none", *CONFIDENTIAL],
        "revocation_endpoint_auth_signing_alg_values_supported": SIGNED,
        "introspection_endpoint_auth_methods_supported": CONFIDENTIAL,
        "introspection_endpoint_auth_signing_alg_values_supported": SIGNED,
        "ostiary_client_id": "ostiary-cli",
        "dpop_signing_alg_values_supported": ["ES256", "RS256", "PS256", "EdDSA", "Ed25519"],
        "scopes_supported": ["mcp", "mcp:tools", "mcp:resources", "offline_access"],
    }


@pytest.mark.parametrize(
    "origin", [ORIGIN, "http://localhost:8420", "http://[::1]:8420", "http://localhost:9000"]
)
async def test_on_loopback_every_document_names_the_host_that_was_typed(origin: str) -> None:
    async with open_identity() as identity:
        server = await fetched(identity, "/.well-known/oauth-authorization-server", origin=origin)
        assert json.loads(server.body) == expected_server(origin)
        resource = await fetched(identity, "/.well-known/oauth-protected-resource/mcp", origin=origin)
        assert json.loads(resource.body) == {
            "resource": origin + "/mcp",
            "authorization_servers": [origin],
            "scopes_supported": ["mcp", "mcp:tools", "mcp:resources"],
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": ["ES256", "RS256", "PS256", "EdDSA", "Ed25519"],
            "dpop_bound_access_tokens_required": False,
        }


async def test_off_loopback_only_the_configured_name_is_published() -> None:
    async with open_identity(site=PUBLIC) as identity:
        server = await fetched(
            identity, "/.well-known/oauth-authorization-server", origin="https://10.0.0.1:444"
        )
        assert json.loads(server.body) == expected_server("https://agent.example")


@pytest.mark.parametrize("origin", [ORIGIN, "http://localhost:9000"])
async def test_what_a_server_says_of_itself_besides_is_in_its_own_document_alone(origin: str) -> None:
    site = Site(
        issuer=ORIGIN,
        loopback=True,
        servers={"agent": "/mcp", "lab": "/lab/mcp"},
        announced={"agent": {"ostiary_deposit_endpoint": "/agent/deposit"}},
    )
    async with open_identity(site=site) as identity:
        for path, told in (("/mcp", f"{origin}/agent/deposit"), ("/lab/mcp", None)):
            reply = await fetched(identity, f"/.well-known/oauth-protected-resource{path}", origin=origin)
            assert json.loads(reply.body).get("ostiary_deposit_endpoint") == told


@pytest.mark.requirement("auth.metadata")
@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/.well-known/oauth-protected-resource", "/mcp"),
        ("/.well-known/oauth-protected-resource/mcp", "/mcp"),
        ("/.well-known/oauth-protected-resource/mcp/", "/mcp/"),
        ("/mcp/.well-known/oauth-protected-resource", "/mcp"),
        ("/.well-known/oauth-protected-resource/lab/mcp", "/lab/mcp"),
        ("/lab/mcp/.well-known/oauth-protected-resource", "/lab/mcp"),
    ],
)
async def test_the_resource_is_the_url_that_was_typed(path: str, resource: str) -> None:
    async with open_identity(site=PUBLIC) as identity:
        reply = await fetched(identity, path, origin="https://agent.example")
        assert reply.status == 200
        assert json.loads(reply.body)["resource"] == "https://agent.example" + resource


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
        "/mcp/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server/mcp",
        "/mcp/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource/unknown",
        "/.well-known/oauth-protected-resource/",
    ],
)
async def test_other_documents_that_clients_look_for_are_a_clean_404(path: str) -> None:
    async with open_identity(site=PUBLIC) as identity:
        reply = await fetched(identity, path)
        assert reply.status == 404
        assert header(reply, "content-type") == "application/json"
        assert header(reply, "access-control-allow-origin") == "*"
        assert json.loads(reply.body)["error"] == "not_found"


async def test_documents_are_open_to_any_origin_cacheable_and_read_only() -> None:
    async with open_identity() as identity:
        path = "/.well-known/oauth-authorization-server"
        for method in ("GET", "HEAD"):
            reply = await fetched(identity, path, method=method)
            assert header(reply, "access-control-allow-origin") == "*"
            assert header(reply, "cache-control") == "public, max-age=300"
            assert header(reply, "content-type") == "application/json"
        preflight = await fetched(identity, path, method="OPTIONS")
        assert preflight.status == 204
        allowed = header(preflight, "access-control-allow-headers")
        assert allowed is not None
        assert "MCP-Protocol-Version" in allowed
        assert "DPoP" in allowed
        refused = await identity.handle(post(path))
        assert refused is not None
        assert refused.status == 405
        assert header(refused, "allow") == "GET, HEAD, OPTIONS"


async def test_documents_are_never_rate_limited() -> None:
    async with open_identity() as identity:
        for _ in range(1_000):
            assert (await fetched(identity, "/.well-known/oauth-protected-resource")).status == 200


async def test_every_endpoint_that_is_published_answers() -> None:
    async with open_identity() as identity:
        published = json.loads((await fetched(identity, "/.well-known/oauth-authorization-server")).body)
        endpoints = [url for name, url in published.items() if name.endswith(("_endpoint", "_uri"))]
        assert ORIGIN + "/authorize" in endpoints
        for path in (url.removeprefix(ORIGIN) for url in endpoints):
            # Where a person comes, and no program, is a page's to answer.
            assert (await identity.handle(post(path)) is not None) != (path in endpoint_paths.ANNOUNCED_PAGES)


async def test_paths_of_others_are_left_to_them() -> None:
    async with open_identity() as identity:
        for path in ("/", "/mcp", "/device", "/registers", "/.well-known/security.txt", "/token/"):
            assert await identity.handle(get(path)) is None


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://LocalHost:8420/mcp", "http://localhost:8420/mcp"),
        ("https://a.example:443/mcp/?utm=1#x", "https://a.example/mcp"),
        ("http://a.example:80", "http://a.example"),
        ("https://a.example/", "https://a.example"),
        ("http://[::1]:8420/mcp", "http://[::1]:8420/mcp"),
        ("https://a.example/MCP", "https://a.example/MCP"),
        ("https://a.example/mcp//", "https://a.example/mcp/"),
        ("https://user@a.example/mcp", None),
        ("ftp://a.example/mcp", None),
        ("https:///mcp", None),
        ("https://a.example:99999/mcp", None),
        ("http://[::1/mcp", None),
        ("mcp", None),
        ("", None),
    ],
)
def test_resources_are_compared_without_their_accidents(url: str, normal: str | None) -> None:
    assert normalise(url) == normal


@pytest.mark.parametrize(
    ("issuer", "servers"),
    [
        ("https://a.example/", {"a": "/mcp"}),
        ("a.example", {"a": "/mcp"}),
        ("https://a.example", {}),
        ("https://a.example", {"a": "mcp"}),
        ("https://a.example", {"a": "/mcp/"}),
    ],
)
def test_a_site_that_clients_would_stumble_over_cannot_be_made(issuer: str, servers: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        Site(issuer=issuer, loopback=False, servers=servers)
