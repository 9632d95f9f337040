"""What pages of an upstream may reach (server/agents/mcp/page_bounds.py): only what their owner has named is passed on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.agents.mcp.mcp_settings import McpConfig, problems
from server.agents.mcp.page_bounds import PageBounds
from server.mcp.messages import EmbeddedResource, Resource, ResourceContents
from server.mcp.result_encoding import ToolResult

HOSTS = ("api.example.com", "*.cdn.example.com")


def kept(*origins: Any, hosts: tuple[str, ...] = HOSTS) -> list[Any]:
    meta = PageBounds(hosts, ()).meta({"ui": {"csp": {"connectDomains": list(origins)}}}, [])
    return meta["ui"]["csp"]["connectDomains"]


@pytest.mark.parametrize(
    ("origin", "goes_on"),
    [
        ("https://api.example.com", True),
        ("https://API.example.com:8443", True),
        ("wss://api.example.com/live", True),
        ("api.example.com", True),
        ("https://a.cdn.example.com", True),
        ("https://*.cdn.example.com", True),
        ("https://*.a.cdn.example.com", True),
        ("https://cdn.example.com", False),
        ("https://*.example.com", False),
        ("https://*.com", False),
        ("https://api.example.com.evil.example", False),
        ("https://evil.example/api.example.com", False),
        ("https://user@api.example.com", False),
        ("https://api.example.com; script-src *", False),
        ("https://api.example.com *", False),
        ("https:", False),
        ("*", False),
        ("data:", False),
        ("'unsafe-eval'", False),
        ("", False),
        (None, False),
        ({"host": "api.example.com"}, False),
    ],
)
def test_a_host_goes_on_if_its_owner_has_named_it(origin: Any, goes_on: bool) -> None:
    assert kept(origin) == ([origin] if goes_on else [])


def test_every_host_goes_on_where_its_owner_says_so_and_nothing_that_is_none() -> None:
    wild = ["https://*.example.com", "https://a.example", "https:", "data:"]
    assert kept(*wild, "a b", "https://a;x", "'self'", hosts=("*",)) == wild


@given(st.text())
def test_nothing_else_gets_into_a_policy(origin: str) -> None:
    for found in kept(origin, hosts=("*",)):
        assert not set(found) & set(" ;,'\"\t\n\r")


def test_each_part_of_what_a_page_wants_is_bounded_and_the_rest_is_kept() -> None:
    good, bad = "https://api.example.com", "https://evil.example"
    lists = {
        name: [bad, good]
        for name in ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains", "other")
    }
    meta = {
        "ui": {
            "csp": {**lists, "no list": bad},
            "permissions": {"camera": {}, "geolocation": {}},
            "domain": "evil.example",
            "prefersBorder": True,
            "resourceUri": "ui://a",
        },
        "openai/widgetCSP": {"connect_domains": [bad, good]},
        "openai/widgetDomain": bad,
        "mine": 1,
    }
    cut: list[str] = []
    bounded = PageBounds(HOSTS, ("geolocation",)).meta(meta, cut)
    assert bounded == {
        "ui": {
            "csp": {name: [good] for name in lists},
            "permissions": {"geolocation": {}},
            "prefersBorder": True,
            "resourceUri": "ui://a",
        },
        "openai/widgetCSP": {"connect_domains": [good]},
        "mine": 1,
    }
    assert set(cut) == {bad, "evil.example", "camera"}


@pytest.mark.parametrize(
    "ui", [None, [], "x", {"csp": "default-src *"}, {"csp": None}, {"permissions": "camera"}]
)
def test_what_is_no_policy_becomes_an_empty_one(ui: Any) -> None:
    bounded = PageBounds((), ()).meta({"ui": ui}, [])["ui"]
    assert bounded == ({name: {} for name in ui} if isinstance(ui, dict) else ui)


def test_what_asks_for_nothing_stays_as_it_is_and_a_page_in_an_answer_is_bounded() -> None:
    bounds = PageBounds((), ())
    plain = Resource(uri="note://1", name="note", meta={"mine": 1})
    assert bounds.of(plain) is plain
    page = ResourceContents(
        uri="ui://a", text="x", meta={"ui": {"csp": {"frameDomains": ["https://a.example"]}}}
    )
    result = bounds.result(ToolResult(content=(EmbeddedResource(resource=page),)))
    (block,) = result.content
    assert isinstance(block, EmbeddedResource) and block.resource.meta == {
        "ui": {"csp": {"frameDomains": []}}
    }


def test_a_host_is_written_as_a_name() -> None:
    bad = McpConfig(
        url="https://a.example", page_hosts=("https://a.example", "A.example", "*.a.example", "*", "*a")
    )
    assert [key for key, _ in problems(bad)] == ["page_hosts"] * 3
