"""What a metadata document of a client must be like: the published ones, and what could be wrong with one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auth.clients import pinned
from auth.clients.client_identifier_urls import client_id_problem
from auth.clients.client_metadata_document import BadDocument, read
from auth.values.identity_model import AUTHORIZATION_CODE, DEVICE_CODE, REFRESH_TOKEN

URL = "https://app.example/oauth/client.json"
GOOD: dict[str, Any] = {
    "client_id": URL,
    "client_name": "An App",
    "redirect_uris": ["http://127.0.0.1/callback", "https://app.example/done"],
}
EC_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}
GONE = object()  # a member that is not there

CODE = (AUTHORIZATION_CODE, REFRESH_TOKEN)
LOOPBACK = ("http://127.0.0.1/callback", "http://localhost/callback")


def document(**changes: Any) -> bytes:
    members = {**GOOD, **changes}
    return json.dumps({name: value for name, value in members.items() if value is not GONE}).encode()


# ---------------------------------------------------------------- the published ones

PUBLISHED = {
    "https://claude.ai/oauth/claude-code-client-metadata": (
        "Claude Code",
        CODE,
        ("http://localhost/callback", "http://127.0.0.1/callback"),
    ),
    "https://claude.ai/oauth/mcp-oauth-client-metadata": (
        "Claude",
        CODE,
        ("https://claude.ai/api/mcp/auth_callback",),
    ),
    "https://chatgpt.com/oauth/client.json": (
        "ChatGPT",
        CODE,
        ("https://chatgpt.com/connector_platform_oauth_redirect",),
    ),
    "https://chatgpt.com/oauth/codex/client.json": ("Codex", CODE, LOOPBACK),
    "https://opencode.ai/oauth/opencode/client.json": ("opencode", CODE, LOOPBACK),
    "https://vscode.dev/oauth/client-metadata.json": (
        "Visual Studio Code",
        (*CODE, DEVICE_CODE),
        ("http://127.0.0.1:33418/", "https://vscode.dev/redirect"),
    ),
    "https://zed.dev/oauth/client-metadata.json": ("Zed", CODE, ("http://127.0.0.1/callback",)),
}


def test_every_pinned_document_is_one_of_these() -> None:
    assert set(pinned.names()) == set(PUBLISHED)
    assert pinned.body(URL) is None


@pytest.mark.parametrize("url", PUBLISHED)
def test_a_published_document_describes_its_client(url: str) -> None:
    body = pinned.body(url)
    assert body is not None
    assert client_id_problem(url) is None
    client = read(url, body)
    assert (client.name, client.grant_types, client.redirect_uris) == PUBLISHED[url]
    assert client.left_out == 0
    assert len(body) < 5_120


def test_chatgpt_signs_with_keys_at_its_own_address() -> None:
    url = "https://chatgpt.com/oauth/client.json"
    client = read(url, pinned.body(url) or b"")
    assert client.auth_method == "private_key_jwt"
    assert client.jwks_uri == "https://chatgpt.com/oauth/jwks.json"
    assert json.loads(client.metadata) == {"token_endpoint_auth_signing_alg": "RS256"}


# ---------------------------------------------------------------- client ids

GOOD_IDS = (
    URL,
    "https://app.example/c",
    "https://app.example/c/",
    "https://app.example/c?version=2",
    "https://app.example//c",
    "https://a-b.c.example/~me/client%20one.json",
    "https://xn--pp-eka.example/c",
    "https://1app.example/c",
    "https://app.example/" + "a" * (2_048 - len("https://app.example/")),
)
BAD_IDS = (
    "https://app.example",
    "https://app.example/",
    "https://app.example?x",
    "https://app.example/?x",
    "https://app.example/a/../c",
    "https://app.example/./c",
    "https://app.example/..",
    "https://app.example/a/.",
    "https://app.example/%2e%2e/c",
    "https://app.example/a/%2E/c",
    "https://app.example/a%2f..%2fc",
    "https://app.example/.%2e/c",
    "https://app.example/c#",
    "https://app.example/c#part",
    "https://app.example:443/c",
    "https://app.example:8443/c",
    "https://user@app.example/c",
    "https://user:word@app.example/c",
    "https://APP.example/c",
    "https://app.example./c",
    "https://app.example/a b",
    "https://app.example/a\nb",
    "https://app.example/a\\b",
    "https://app.example/é",
    "https://äpp.example/c",
    "https://app.example/%",
    "https://app.example/%g0",
    "https://localhost/c",
    "https://127.0.0.1/c",
    "https://[::1]/c",
    "https://0x7f.1/c",
    "https://017700000001/c",
    "https://2130706433/c",
    "https://intranet/c",
    "https://a.localhost/c",
    "https://-a.example/c",
    "https://a_b.example/c",
    "https://app.example/" + "a" * 2_048,
    "https://",
    "https:///c",
    "http://app.example/c",
    "HTTPS://app.example/c",
    " https://app.example/c",
    "https://app.example/c ",
    "https://app.example/[c]",
    "https://app.example/c|d",
    "https://app.example/c^",
    "https://app.example/`c`",
)


@pytest.mark.parametrize("url", GOOD_IDS)
def test_an_address_with_a_path_may_be_a_client_id(url: str) -> None:
    assert client_id_problem(url) is None


@pytest.mark.parametrize("url", BAD_IDS)
def test_an_address_that_is_written_in_any_unusual_way_may_not(url: str) -> None:
    problem = client_id_problem(url)
    assert problem is not None
    assert url not in problem or url == ""


# ---------------------------------------------------------------- documents


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"grant_types": CODE, "auth_method": "none", "jwks": None, "jwks_uri": None}),
        (
            {"grant_types": ["refresh_token", DEVICE_CODE, AUTHORIZATION_CODE]},
            {"grant_types": (*CODE, DEVICE_CODE)},
        ),
        (
            {"grant_types": [AUTHORIZATION_CODE, "client_credentials", "password", "urn:x"]},
            {"grant_types": (AUTHORIZATION_CODE,)},
        ),
        (
            {"grant_types": [DEVICE_CODE], "redirect_uris": GONE},
            {"grant_types": (DEVICE_CODE,), "redirect_uris": ()},
        ),
        ({"grant_types": [DEVICE_CODE], "response_types": []}, {"grant_types": (DEVICE_CODE,)}),
        ({"response_types": ["code", "token"]}, {"grant_types": CODE}),
        ({"client_name": "  A\u202e\u200bn\x07  App\n "}, {"name": "An App"}),
        ({"client_name": "x" * 1_000}, {"name": "x" * 99 + "…"}),
        ({"client_uri": "https://app.example/about"}, {"client_uri": "https://app.example/about"}),
        ({"client_uri": "https://app.example"}, {"client_uri": "https://app.example"}),
        ({"client_uri": "https://bank.example/"}, {"client_uri": ""}),
        ({"client_uri": "javascript:alert(1)"}, {"client_uri": ""}),
        ({"client_uri": 7}, {"client_uri": ""}),
        (
            {"logo_uri": "http://169.254.169.254/", "tos_uri": [], "scope": "everything", "x": {}},
            {"name": "An App"},
        ),
        (
            {"redirect_uris": ["http://[::1]/cb", "http://localhost:8080/cb", "http://127.0.0.9/cb"]},
            {"redirect_uris": ("http://[::1]/cb", "http://localhost:8080/cb", "http://127.0.0.9/cb")},
        ),
        (
            {"redirect_uris": ["https://app.example/a", "https://app.example/a"]},
            {"redirect_uris": ("https://app.example/a",)},
        ),
        # Elsewhere, with another port, under a name below its own, in an application that could be anybody's.
        (
            {
                "redirect_uris": [
                    "https://app.example/a",
                    "https://other.example/a",
                    "https://app.example:8443/a",
                    "https://sub.app.example/a",
                    "com.example.app:/cb",
                    "vscode://app/cb",
                ]
            },
            {"redirect_uris": ("https://app.example/a",), "left_out": 5},
        ),
        (
            {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://keys.example/jwks"},
            {"auth_method": "private_key_jwt", "jwks_uri": "https://keys.example/jwks"},
        ),
        (
            {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [EC_KEY]}},
            {"auth_method": "private_key_jwt", "jwks_uri": None},
        ),
        (
            {"token_endpoint_auth_method": "none", "jwks": {"keys": [EC_KEY]}},
            {"auth_method": "none", "jwks": None},
        ),
        ({"software_id": "s\u202e1", "software_version": 3}, {"metadata": '{"software_id":"s1"}'}),
    ],
)
def test_a_good_document_describes_a_client(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    client = read(URL, document(**changes))
    assert {name: getattr(client, name) for name in expected} == expected


def test_an_application_may_be_called_by_its_own_scheme_where_its_maker_is_known() -> None:
    url = "https://vscode.dev/oauth/other.json"
    listed = ["vscode://host/cb", "vscode-insiders://host/cb", "cursor://host/cb"]
    client = read(url, document(client_id=url, redirect_uris=listed))
    assert (client.redirect_uris, client.left_out) == (tuple(listed[:2]), 1)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "is not JSON"),
        (b"<!doctype html><title>Just a moment...</title>", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b'{"client_id":"\xff"}', "is not JSON"),
        (b'{"client_id":"\\ud800"}', "is not JSON"),
        (b"[" * 5_000, "is not JSON"),
        (b'{"a":' * 1_000, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b'"https://app.example/oauth/client.json"', "is not a JSON object"),
    ],
)
def test_what_is_no_json_object_is_no_document(body: bytes, why: str) -> None:
    with pytest.raises(BadDocument) as raised:
        read(URL, body)
    assert str(raised.value) == why


BAD: list[tuple[dict[str, Any], str]] = [
    ({"client_id": GONE}, "another client_id"),
    ({"client_id": None}, "another client_id"),
    ({"client_id": [URL]}, "another client_id"),
    ({"client_id": URL + "/"}, "another client_id"),
    ({"client_id": URL + "?"}, "another client_id"),
    ({"client_id": "https://APP.example/oauth/client.json"}, "another client_id"),
    ({"client_id": "https://app.example:443/oauth/client.json"}, "another client_id"),
    ({"client_secret": "s"}, "client secret"),
    ({"client_secret": None}, "client secret"),
    ({"client_secret_expires_at": 0}, "client secret"),
    ({"token_endpoint_auth_method": "client_secret_basic"}, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_method": "client_secret_post"}, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_method": "client_secret_jwt"}, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_method": "tls_client_auth"}, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_method": None}, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_method": ["none"]}, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_method": {"none": 1}}, "token_endpoint_auth_method"),
    ({"client_name": GONE}, "client_name"),
    ({"client_name": ""}, "client_name"),
    ({"client_name": "\u202e\x00 "}, "client_name"),
    ({"client_name": ["An App"]}, "client_name"),
    ({"redirect_uris": GONE}, "needs redirect_uris"),
    ({"redirect_uris": []}, "needs redirect_uris"),
    ({"redirect_uris": None}, "list of texts"),
    ({"redirect_uris": "https://app.example/done"}, "list of texts"),
    ({"redirect_uris": {"a": "https://app.example/done"}}, "list of texts"),
    ({"redirect_uris": ["https://app.example/done", 7]}, "list of texts"),
    ({"redirect_uris": [f"https://app.example/{n}" for n in range(21)]}, "more than 20"),
    ({"redirect_uris": ["https://other.example/done"]}, "at its own host"),
    ({"redirect_uris": ["https://sub.app.example/done"]}, "at its own host"),
    ({"redirect_uris": ["https://app.example.evil.example/done"]}, "at its own host"),
    ({"redirect_uris": ["com.example.app:/cb"]}, "at its own host"),
    ({"redirect_uris": ["cursor://app/cb"]}, "at its own host"),
    ({"redirect_uris": ["https://app.example/done", "javascript:alert(1)"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/done", "data:text/html,x"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/done", "http://app.example/done"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/done", "http://10.0.0.1/done"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/done#x"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example@evil.example/"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/a/../b"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/*"]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/" + "a" * 2_048]}, "own scheme"),
    ({"redirect_uris": ["https://app.example/a https://evil.example/"]}, "own scheme"),
    ({"redirect_uris": [""]}, "own scheme"),
    ({"grant_types": []}, "no grant type"),
    ({"grant_types": ["refresh_token"]}, "no grant type"),
    ({"grant_types": ["client_credentials", "password", "implicit"]}, "no grant type"),
    ({"grant_types": "authorization_code"}, "list of texts"),
    ({"grant_types": [1]}, "list of texts"),
    ({"grant_types": None}, "list of texts"),
    ({"grant_types": [str(n) for n in range(51)]}, "more than 50"),
    ({"response_types": ["token"]}, "response_types"),
    ({"response_types": "code"}, "list of texts"),
    ({"token_endpoint_auth_method": "private_key_jwt"}, "jwks or jwks_uri"),
    ({"jwks": {"keys": [EC_KEY]}, "jwks_uri": "https://app.example/k"}, "both jwks and jwks_uri"),
    ({"jwks_uri": "http://app.example/k"}, "jwks_uri"),
    ({"jwks_uri": "https://127.0.0.1/k"}, "jwks_uri"),
    ({"jwks_uri": "https://app.example:8443/k"}, "jwks_uri"),
    ({"jwks_uri": ["https://app.example/k"]}, "jwks_uri"),
    ({"jwks": {"keys": [{**EC_KEY, "d": "AA"}]}}, "jwks"),
    ({"jwks": {"keys": [EC_KEY, {"kty": "oct", "k": "AA"}]}}, "jwks"),
    ({"token_endpoint_auth_method": "private_key_jwt", "jwks": []}, "jwks"),
    ({"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": []}}, "jwks"),
    ({"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": {}}}, "jwks"),
    ({"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": ["k"]}}, "jwks"),
    (
        {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [{**EC_KEY, "y": "AA"}]}},
        "jwks",
    ),
]


@pytest.mark.parametrize(("changes", "why"), BAD)
def test_a_bad_document_is_refused_and_says_why(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(BadDocument) as raised:
        read(URL, document(**changes))
    assert why in str(raised.value)
    assert raised.value.args[0].isascii()
