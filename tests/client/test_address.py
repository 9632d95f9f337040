from __future__ import annotations

import pytest

from server.client.address import complete
from server.client.client_errors import BadAddress


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("localhost:8420", "http://localhost:8420/mcp"),
        ("localhost:8420/", "http://localhost:8420/mcp"),
        ("localhost:8420/notes/mcp", "http://localhost:8420/notes/mcp"),
        ("127.0.0.1:8420", "http://127.0.0.1:8420/mcp"),
        ("[::1]:8420", "http://[::1]:8420/mcp"),
        ("8420", "http://127.0.0.1:8420/mcp"),
        (":8420", "http://127.0.0.1:8420/mcp"),
        ("agent.example.org", "https://agent.example.org/mcp"),
        ("agent.example.org:8443", "https://agent.example.org:8443/mcp"),
        ("https://Agent.Example.org:443/mcp/", "https://agent.example.org/mcp"),
        ("http://app.localhost:80", "http://app.localhost/mcp"),
        ("https://münchen.example/mcp", "https://xn--mnchen-3ya.example/mcp"),
    ],
)
def test_a_short_address_is_completed_to_the_one_that_was_meant(typed: str, meant: str) -> None:
    assert complete(typed).url == meant


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("localhost:8420", True), ("http://localhost:8420", True), ("http://LOCALHOST:8420/mcp/", False)],
)
def test_completion_is_told_only_where_something_was_added(typed: str, completed: bool) -> None:
    assert complete(typed).completed is completed


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "   ",
        "ftp://localhost/mcp",
        "http://agent.example.org/mcp",
        "http://192.168.1.5:8420/mcp",
        "http://localhost.example.org/mcp",
        "https://user:password@agent.example.org/mcp",
        "https://user@agent.example.org/mcp",
        "https://agent.example.org/mcp#part",
        "https://agent.example.org:99999/mcp",
        "https://agent.example.org/m cp",
        "https://agent.example.org/\x1b[31m",
        "https:///mcp",
        "https://[::1/mcp",
        "https://agent.example.org/" + "a" * 3000,
    ],
)
def test_an_address_that_must_not_be_used_is_refused_with_a_hint(typed: str) -> None:
    with pytest.raises(BadAddress) as refused:
        complete(typed)
    assert refused.value.hint
    assert "password" not in typed or "password@" not in str(refused.value)


def test_plain_http_off_this_machine_is_refused_and_the_https_form_is_hinted_at() -> None:
    with pytest.raises(BadAddress, match="in the clear") as refused:
        complete("http://agent.example.org/mcp")
    assert refused.value.hint is not None
    assert "https://agent.example.org/mcp" in refused.value.hint
