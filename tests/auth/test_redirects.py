"""auth/redirects.py: where a client may ask a browser to be sent."""

import pytest

from auth.redirects import is_acceptable


@pytest.mark.parametrize(
    "uri",
    [
        "https://client.example/callback",
        "https://client.example:8443/cb?x=1",
        "http://127.0.0.1/callback",
        "http://127.0.0.1:33418/",
        "http://[::1]:1234/cb",
        "http://localhost/callback",
        "com.example.app:/cb",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "vscode://host/path",
    ],
)
def test_addresses_of_honest_clients_are_taken(uri: str) -> None:
    assert is_acceptable(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "javascript://x/%0aalert(1)",
        "JAVASCRIPT:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vbscript:x",
        "blob:https://a/b",
        "about:blank",
        "http://client.example/cb",
        "http://127.0.0.1.evil.example/cb",
        "http://localhost.evil.example/cb",
        "https:///cb",
        "https://user@client.example/cb",
        "https://client.example/a/../b",
        "https://client.example/%2e%2e/b",
        "https://client.example/cb#fragment",
        "https://client.example\\@evil.example/",
        "https://client.example/ cb",
        "https://client.example:port/cb",
        "https://client.ex\u00e4mple/cb",
        "//client.example/cb",
        "/cb",
        "https://client.example/" + "a" * 2_048,
    ],
)
def test_addresses_that_execute_or_mislead_are_refused(uri: str) -> None:
    assert not is_acceptable(uri)
