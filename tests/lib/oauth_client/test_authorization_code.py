"""The address that begins a login, and whose answer may be redeemed (server/lib/oauth_client/authorization_code.py)."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from server.lib.oauth_client.authorization_code import authorization_link, comes_from

ISSUER = "https://login.example"


@pytest.mark.parametrize(
    ("iss", "always", "taken"),
    [
        (ISSUER, True, True),
        (ISSUER, False, True),
        (None, False, True),
        (None, True, False),
        ("https://other.example", False, False),
        (f"{ISSUER}/", True, False),
        ("", False, False),
        ("\ud800", False, False),
    ],
)
def test_an_answer_in_another_name_is_not_taken(iss: str | None, always: bool, taken: bool) -> None:
    assert comes_from(ISSUER, iss, always=always) is taken


def test_a_query_that_an_endpoint_has_is_kept_and_what_is_empty_is_left_out() -> None:
    link = authorization_link(
        f"{ISSUER}/authorize?tenant=one",
        client_id="us",
        redirect_uri="http://127.0.0.1:1/",
        state="s",
        verifier="dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        more={"scope": "", "resource": "https://r.example/mcp"},
    )
    asked = parse_qs(link.partition("?")[2])
    assert asked["tenant"] == ["one"]
    assert "scope" not in asked
    assert asked["resource"] == ["https://r.example/mcp"]
    # RFC 7636, appendix B
    assert asked["code_challenge"] == ["E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"]
