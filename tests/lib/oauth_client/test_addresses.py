from __future__ import annotations

import pytest

from server.lib.oauth_client.addresses import (
    canonical,
    is_fit,
    is_loopback,
    may_follow,
    origin,
    same_resource,
    well_known,
)


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


@pytest.mark.parametrize(
    ("issuer", "fit"),
    [
        ("https://login.example.org", True),
        ("https://192.168.1.5/idp", True),
        ("http://127.0.0.1:8420", True),
        ("http://192.168.1.5", False),
        ("https://user@login.example.org", False),
        ("https://login.example.org#here", False),
        ("https://lögin.example.org", False),
        ("login.example.org", False),
    ],
)
def test_an_owner_names_https_or_this_machine_in_plain_letters(issuer: str, fit: bool) -> None:
    assert is_fit(issuer) is fit
