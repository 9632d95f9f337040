"""A server that is found at several paths has one identity: tokens are for its own path, whichever a client was given."""

from __future__ import annotations

import pytest

from auth.endpoints import server_metadata
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy

ISSUER = "https://agent.example.org"
SITE = Site(
    issuer=ISSUER,
    loopback=False,
    servers={"main": "/mcp", "open": "/open/mcp"},
    aliases={"/api/mcp": "main", "/old/mcp": "open"},
    without_login=frozenset({"open"}),
)


@pytest.mark.parametrize(
    ("resource", "server"),
    [
        (f"{ISSUER}/mcp", "main"),
        (f"{ISSUER}/api/mcp", "main"),
        (f"{ISSUER}/api/mcp/", "main"),
        (f"{ISSUER}/old/mcp", "open"),
        (f"{ISSUER}/api", None),
        ("https://other.example/api/mcp", None),
    ],
)
def test_a_resource_that_names_an_alias_is_the_server_behind_it(resource: str, server: str | None) -> None:
    assert SITE.server_of(resource, ()) == server
    assert SITE.audience("main") == f"{ISSUER}/mcp"


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-protected-resource/api/mcp",
        "/.well-known/oauth-protected-resource/api/mcp/",
        "/api/mcp/.well-known/oauth-protected-resource",
    ],
)
def test_the_metadata_of_an_alias_names_the_one_address_that_tokens_are_for(path: str) -> None:
    found = server_metadata.document(SITE, Policy(), path, ISSUER)
    assert found is not None
    assert found["resource"] == f"{ISSUER}/mcp"


def test_an_alias_of_a_server_without_logins_has_no_metadata_and_probes_beside_it_find_nothing() -> None:
    assert (
        server_metadata.document(SITE, Policy(), "/.well-known/oauth-protected-resource/old/mcp", ISSUER)
        is None
    )
    assert server_metadata.is_probe(SITE, "/old/mcp/.well-known/oauth-authorization-server")
