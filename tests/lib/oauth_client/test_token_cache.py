"""Tokens that are kept while they are good, and refusals for a moment (server/lib/oauth_client/token_cache.py)."""

from __future__ import annotations

import pytest

from server.lib.oauth_client.token_cache import NoToken, TokenCache
from server.lib.oauth_client.token_requests import Tokens
from server.lib.secret import Secret

START = 1_000_000


class Made:
    """A cache for two, and how often a token was made for each."""

    def __init__(self) -> None:
        self.now = START
        self.made: list[str] = []
        self.refuses = False
        self.lives: float | None = 1
        self.cache = TokenCache(lambda: self.now, most=2)

    async def get(self, *names: str) -> None:
        for name in names:

            async def make(name: str = name) -> Tokens:
                self.made.append(name)
                if self.refuses:
                    raise NoToken(f"none for {name}")
                return Tokens(access_token=Secret(name), expires_in=self.lives)

            assert await self.cache.get(name, make) == Secret(name)

    async def refuse(self, *names: str) -> None:
        self.refuses = True
        for name in names:
            with pytest.raises(NoToken, match=f"none for {name}"):
                await self.get(name)
        self.refuses = False


@pytest.mark.parametrize(
    ("lives", "age", "made"),
    [
        (1, -1, 2),
        (1, 0, 1),
        (1, 899, 1),
        (1, 900, 2),
        (None, 269_999, 1),
        (None, 270_000, 2),
        (10**6, 77_759_999, 1),
        (10**6, 77_760_000, 2),
    ],
)
async def test_a_token_is_good_until_its_last_tenth(lives: float | None, age: int, made: int) -> None:
    there = Made()
    there.lives = lives
    await there.get("ann")
    there.now += age
    await there.get("ann")
    assert len(there.made) == made


async def test_the_one_that_was_used_the_longest_ago_goes_first() -> None:
    there = Made()
    await there.get("ann", "bob", "ann", "cat", "ann", "bob")
    assert there.made == ["ann", "bob", "cat", "bob"]


async def test_one_that_is_made_anew_is_the_newest() -> None:
    there = Made()
    await there.get("ann", "bob")
    there.now += 900
    await there.get("ann", "cat", "ann")
    assert there.made == ["ann", "bob", "ann", "cat"]


@pytest.mark.parametrize(("later", "asked"), [(0, 1), (4_999, 1), (5_000, 2), (-1, 2)])
async def test_whoever_was_refused_is_asked_for_again_after_a_moment(later: int, asked: int) -> None:
    there = Made()
    await there.refuse("ann")
    there.now += later
    await there.refuse("ann")
    assert len(there.made) == asked


async def test_of_refusals_as_many_are_remembered_as_of_tokens() -> None:
    there = Made()
    await there.refuse("ann", "bob", "cat", "bob", "ann")
    assert there.made == ["ann", "bob", "cat", "ann"]


async def test_a_refusal_is_forgotten_with_the_next_token() -> None:
    there = Made()
    await there.refuse("ann")
    there.now += 5_000
    await there.get("ann")
    assert there.cache.drop("ann")
    there.now -= 5_000  # the clock was set back
    await there.get("ann")
    assert there.made == ["ann"] * 3


async def test_what_is_not_there_cannot_be_dropped() -> None:
    there = Made()
    assert not there.cache.drop("ann")
