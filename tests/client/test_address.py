from __future__ import annotations

import pytest

from server.client.address import complete
from server.client.client_errors import BadAddress
from server.lib.oauth_client.addresses import (
    canonical,
    is_loopback,
    may_follow,
    origin,
    same_resource,
    well_known,
)


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example/mcp", "https://A.EXAMPLE/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp/", True),
        ("https://a.example:443/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://a.example/MCP", False),
        ("https://a.example/mcp", "http://a.example/mcp", False),
        ("http://localhost:1/mcp", "http://127.0.0.1:1/mcp", False),
        ("https://a.example/mcp", "https://a.example/mcp?x=1", False),
        ("https://a.example/mcp", "not a [url", False),
    ],
)
def test_two_spellings_of_one_resource_are_equal_and_two_resources_are_not(
    one: str, other: str, same: bool
) -> None:
    assert same_resource(one, other) is same


def test_well_known_documents_lie_between_host_and_path() -> None:
    assert well_known("x", "https://a.example/mcp") == "https://a.example/.well-known/x/mcp"
    assert well_known("x", "https://a.example/") == "https://a.example/.well-known/x"
    assert well_known("x", "https://a.example") == "https://a.example/.well-known/x"
    assert origin("https://a.example:443/mcp?x") == "https://a.example"
    assert canonical("HTTPS://A.example./") == "https://a.example"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.5.5.5", True),
        ("[::1]", True),
        ("x.localhost", True),
        ("localhost.example", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("[::ffff:10.0.0.1]", False),
    ],
)
def test_loopback_is_told_from_everything_else(host: str, loopback: bool) -> None:
    assert is_loopback(f"http://{host}:80/") is loopback


@pytest.mark.parametrize(
    ("url", "typed", "allowed"),
    [
        ("https://other.example/x", "https://a.example/mcp", True),
        ("http://other.example/x", "https://a.example/mcp", False),
        ("http://127.0.0.1:1/x", "https://a.example/mcp", False),
        ("http://127.0.0.1:1/x", "http://localhost:1/mcp", True),
        ("file:///etc/passwd", "http://localhost:1/mcp", False),
        ("/token", "http://localhost:1/mcp", False),
        ("https://u:p@a.example/", "https://a.example/mcp", False),
        ("https://a.example/\n", "https://a.example/mcp", False),
        ("https://127.0.0.1/x", "https://a.example/mcp", False),
        ("https://localhost/x", "https://a.example/mcp", False),
        ("https://x.localhost./x", "https://a.example/mcp", False),
        ("https://[::1]/x", "https://a.example/mcp", False),
        ("https://[::ffff:127.0.0.1]/x", "https://a.example/mcp", False),
        ("https://2130706433/x", "https://a.example/mcp", False),
        ("https://0x7f.1/x", "https://a.example/mcp", False),
        ("https://10.0.0.1/x", "https://a.example/mcp", False),
        ("https://100.64.0.1/x", "https://a.example/mcp", False),
        ("https://[fd00::1]/x", "https://a.example/mcp", False),
        ("https://169.254.169.254/x", "https://a.example/mcp", False),
        ("https://169.254.169.254/x", "https://10.0.0.1/mcp", False),
        ("https://0.0.0.0/x", "http://localhost:1/mcp", False),
        ("https://10.0.0.2/x", "https://10.0.0.1/mcp", True),
        ("https://10.0.0.2/x", "http://localhost:1/mcp", False),
        ("https://127.0.0.1/x", "https://10.0.0.1/mcp", False),
        ("https://127.0.0.1:5/x", "http://localhost:1/mcp", True),
        ("https://169.254.0.7:5/x", "https://169.254.0.7/mcp", True),
        ("https://93.184.216.34/x", "https://a.example/mcp", True),
        # In other letters, and in IPv6 addresses that hold one.
        ("https://127\u30020\u30020\u30021/x", "https://a.example/mcp", False),
        ("https://\u2460\u2461\u2466.0.0.1/x", "https://a.example/mcp", False),
        ("https://127.0.0.\ufe0f1/x", "https://a.example/mcp", False),
        ("https://\uff4cocalhost/x", "https://a.example/mcp", False),
        ("https://" + "\u00fc" * 300 + ".example/x", "https://a.example/mcp", False),
        ("https://[::127.0.0.1]/x", "https://a.example/mcp", False),
        ("https://[::ffff:0:7f00:1]/x", "https://a.example/mcp", False),
        ("https://[64:ff9b::a00:1]/x", "https://a.example/mcp", False),
        ("https://[64:ff9b:1::a00:1]/x", "https://a.example/mcp", False),
        ("https://[2002:7f00:1::]/x", "https://a.example/mcp", False),
        ("https://[2001:0:4136:e378::1]/x", "https://a.example/mcp", False),
        ("https://[2a00::5efe:a00:1]/x", "https://a.example/mcp", False),
        ("https://[64:ff9b::a00:1]/x", "https://10.0.0.1/mcp", False),
        ("https://[::127.0.0.1]/x", "http://127.0.0.1:1/mcp", False),
        ("https://[64:ff9b::5db8:d822]/x", "https://a.example/mcp", True),
        ("https://[2a00:1450::1]/x", "https://a.example/mcp", True),
        ("https://m\u00fcnchen.example/x", "https://a.example/mcp", True),
        ("https://m\u00fcnchen.example/x", "https://xn--mnchen-3ya.example/mcp", True),
    ],
)
def test_a_server_may_send_us_on_only_over_https_or_within_this_machine(
    url: str, typed: str, allowed: bool
) -> None:
    assert may_follow(url, typed=typed) is allowed
