"""auth/tokens/presented_credentials.py: what a request presents, read from its headers, with nothing decided."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.tokens.presented_credentials import (
    LONGEST_TOKEN,
    Conflict,
    PresentedCredential,
    PresentedProof,
    bearer,
    digest_of,
    present,
    read,
)
from tests.auth.identity_fakes import basic


@pytest.mark.parametrize(
    ("authorization", "api_key", "shown"),
    [
        (None, None, None),
        ("", None, None),
        ("Digest x", None, None),
        ("Bearer a", None, ("token", "a")),
        ("bearer   a ", None, ("token", "a")),
        ("Bearer", None, ("token", "")),
        ("Bearer ost_a", None, ("key", "ost_a")),
        ("DPoP a", None, ("dpop", "a")),
        ("dpop a", "a", ("dpop", "a")),
        (None, " a ", ("key", "a")),
        (None, "", ("key", "")),
        ("Bearer a", "a", ("token", "a")),
        ("Bearer a", "b", Conflict.TWO),
        ("Digest a", "a", Conflict.TWO),
        ("", "a", Conflict.TWO),
        (basic("n:s"), "s", ("basic", "s", "n")),
        (basic("n:s"), "n", Conflict.TWO),
        (basic("n:s:t"), None, ("basic", "s:t", "n")),
        (basic("n"), None, ("basic", "", "n")),
        ("Basic !", None, ("basic", "")),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), None, ("basic", "")),
        ("Basic " + "A" * 100_000, None, ("basic", "")),
    ],
)
def test_what_a_request_shows(authorization: str | None, api_key: str | None, shown: object) -> None:
    found = read(authorization, api_key)
    if isinstance(found, PresentedCredential):
        assert found.digest == digest_of(found.secret)
        assert (found.kind, found.secret, found.name)[: 3 if found.name else 2] == shown
    else:
        assert found is shown


@given(st.text(max_size=200) | st.none(), st.text(max_size=50) | st.none())
def test_nothing_that_is_shown_raises(authorization: str | None, api_key: str | None) -> None:
    read(authorization, api_key)


def test_what_is_too_long_to_be_any_credential_has_no_digest_that_could_be_found() -> None:
    at_most, too_long = (
        read(f"Bearer {'x' * LONGEST_TOKEN}", None),
        read(f"Bearer {'x' * (LONGEST_TOKEN + 1)}", None),
    )
    assert isinstance(at_most, PresentedCredential)
    assert isinstance(too_long, PresentedCredential)
    assert (len(at_most.digest), too_long.digest) == (32, b"")


def test_no_secret_is_printed() -> None:
    proof = PresentedProof("a-secret.proof", "POST")
    for authorization, api_key in (
        ("Bearer a-secret", None),
        (None, "a-secret"),
        (basic("n:a-secret"), None),
    ):
        shown = present(authorization, api_key, server="agent", origin="http://x", proof=proof)
        assert "a-secret" not in repr(shown)
        assert repr(digest_of("a-secret"))[2:-1] not in repr(shown)


@pytest.mark.parametrize(
    ("authorization", "token"),
    [(None, None), ("", None), ("Basic x", None), ("Bearer", ""), ("bearer  a ", "a"), ("BEARER a b", "a b")],
)
def test_a_bearer_token_is_what_follows_the_word(authorization: str | None, token: str | None) -> None:
    assert bearer(authorization) == token
