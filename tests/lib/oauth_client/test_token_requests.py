"""The answers of token endpoints (server/lib/oauth_client/token_requests.py), field by field."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from server.lib.oauth_client.oauth_answers import OAuthFailure
from server.lib.oauth_client.token_requests import read_tokens
from server.lib.secret import Secret

TEN_YEARS = 315_360_000
BEST = {"access_token": "a", "token_type": "Bearer"}


@pytest.mark.parametrize(
    ("lives", "seconds"),
    [
        (600, 600),
        (0.5, 0.5),
        ("600", 600),
        ("99999999999", TEN_YEARS),
        ("999999999999", None),
        (999_999_999_999, TEN_YEARS),
        (1_000_000_000_000, None),
        (TEN_YEARS, TEN_YEARS),
        (TEN_YEARS + 1, TEN_YEARS),
        (0, None),
        (-1, None),
        (True, None),
        ("", None),
        ("-1", None),
        ("²", None),
        ([], None),
    ],
)
def test_a_lifetime_is_a_number_or_its_digits_and_anything_else_is_none(
    lives: object, seconds: float | None
) -> None:
    read = read_tokens({**BEST, "expires_in": lives})
    assert read.expires_at(1_000) == (None if seconds is None else 1_000 + seconds * 1_000)


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ({}, True),
        ({"token_type": "bEARER"}, True),
        ({"token_type": "N_A"}, False),
        ({"token_type": None}, False),
        ({"access_token": "!~"}, True),
        ({"access_token": " a"}, False),
        ({"access_token": "a\x7f"}, False),
        ({"access_token": ""}, False),
        ({"access_token": 1}, False),
        ({"access_token": "a" * 16_384}, True),
        ({"access_token": "a" * 16_385}, False),
    ],
)
def test_an_access_token_that_cannot_be_sent_is_none(said: dict[str, object], good: bool) -> None:
    with nullcontext() if good else pytest.raises(OAuthFailure):
        read_tokens({**BEST, **said})


def test_what_else_comes_with_a_token_is_kept_where_it_can_be_used() -> None:
    read = read_tokens({**BEST, "scope": "s" * 4_096, "refresh_token": "r"})
    assert (read.scope, read.refresh_token) == ("s" * 4_096, Secret("r"))
    read = read_tokens({**BEST, "scope": "s" * 4_097, "refresh_token": "\n"})
    assert (read.scope, read.refresh_token) == (None, None)


@pytest.mark.parametrize(
    ("kind", "bound", "any_type", "good"),
    [
        ("DPoP", True, False, True),
        ("Bearer", True, False, False),
        ("DPoP", False, False, False),
        (None, False, True, True),
    ],
)
def test_a_token_is_of_the_kind_that_was_asked_for(
    kind: str | None, bound: bool, any_type: bool, good: bool
) -> None:
    with nullcontext() if good else pytest.raises(OAuthFailure) as caught:
        read_tokens({**BEST, "token_type": kind}, bound=bound, any_type=any_type)
    if caught is not None:
        assert caught.value.reason == "no token"
