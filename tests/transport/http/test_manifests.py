"""What a server says of itself to programs that only know where it is (server/transport/http/manifests.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auth.values.http_messages import WireReply, WireRequest
from auth.values.issuer_and_resources import Site
from server.mcp.messages import Tool
from server.transport.http.manifests import Manifests
from tests.interaction.agents import house


def manifests(*, login: bool = False) -> Manifests:
    site = Site(
        issuer="https://agent.example.org",
        loopback=False,
        servers={"main": "/mcp", "second": "/second/mcp"},
        aliases={"/api/mcp": "second"},
        without_login=frozenset() if login else frozenset({"main", "second"}),
    )
    endpoint = house().endpoint

    def offered(_name: str) -> list[tuple[Tool, str]] | None:
        return None if login else [(entry.tool, "read") for entry in endpoint.catalog.tools.values()]

    return Manifests(site, {"main": endpoint, "second": endpoint}, offered=offered)


def asked(path: str, *, method: str = "GET", login: bool = False) -> WireReply | None:
    request = WireRequest(method=method, path=path, origin="https://agent.example.org", ip="192.0.2.1")
    return manifests(login=login).answer(request)


def read(path: str, *, login: bool = False) -> Any:
    reply = asked(path, login=login)
    assert reply is not None
    assert reply.status == 200
    return json.loads(reply.body)


def test_the_manifest_says_where_the_server_is_what_it_is_and_whether_one_logs_in() -> None:
    assert read("/.well-known/mcp.json") == {
        "protocolVersion": "2026-07-28",
        "server": {
            "name": "house",
            "title": "House",
            "version": "1.2.3",
            "url": "https://agent.example.org/mcp",
            "transport": "streamable-http",
        },
        "auth": {"type": "public"},
    }
    assert read("/.well-known/mcp.json/second/mcp", login=True)["auth"] == {
        "type": "oauth-protected-resource",
        "resource_metadata": "https://agent.example.org/.well-known/oauth-protected-resource/second/mcp",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/second/mcp/.well-known/mcp.json",
        "/.well-known/mcp.json/second/mcp",
        "/api/mcp/.well-known/mcp.json",
        "/.well-known/mcp.json/api/mcp",
    ],
)
def test_each_server_has_one_by_every_way_to_it_and_all_name_the_same_address(path: str) -> None:
    assert read(path)["server"]["url"] == "https://agent.example.org/second/mcp"


def test_it_may_be_cached_for_five_minutes_and_read_by_pages_of_any_origin() -> None:
    reply = asked("/.well-known/mcp.json")
    assert reply is not None
    headers = {name.lower(): value for name, value in reply.headers}
    assert headers["cache-control"] == "public, max-age=300"
    assert headers["access-control-allow-origin"] == "*"
    assert headers["content-type"] == "application/json"
    refused = asked("/.well-known/mcp.json", method="POST")
    assert refused is not None
    assert refused.status == 405


def test_the_card_lists_what_everybody_may_call_and_nothing_where_one_logs_in() -> None:
    card = read("/.well-known/agent-card.json")
    assert card["url"] == "https://agent.example.org/mcp"
    assert card["mcp"]["manifest"] == "https://agent.example.org/.well-known/mcp.json/mcp"
    echo = next(skill for skill in card["skills"] if skill["id"] == "echo")
    assert set(echo) == {"id", "name", "description", "tags"}
    assert card["securitySchemes"] == {}
    closed = read("/.well-known/agent-card.json", login=True)
    assert closed["skills"] == []
    assert closed["security"] == [{"login": []}]
    assert "A2A" not in json.dumps(card)


@pytest.mark.parametrize(
    "path", ["/.well-known/mcp.json/", "/.well-known/mcp.jso", "/third/mcp/.well-known/mcp.json"]
)
def test_nothing_else_is_answered(path: str) -> None:
    assert asked(path) is None
