"""API keys on the account page: whose are shown, and that revoking one is theirs alone (auth/account/api_keys.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from auth.account.api_keys import SHOWN
from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKeyOrder, NewApiKey
from tests.auth.browser_fakes import Browser, House, location

REVOKE = "/account/keys/revoke"


def key_of(house: House, user_id: str = "", **order: Any) -> NewApiKey:
    fields: dict[str, Any] = {"name": "backup", "user_id": user_id or house.owner_id, "scope": "mcp:tools"}
    asked = ApiKeyOrder(**{**fields, **order})
    made = house.store.now(
        partial(api_keys.create, order=asked, seed=house.entropy(32), by="local:0", now=house.time)
    )
    assert isinstance(made, NewApiKey), made
    return made


def living(house: House) -> list[str]:
    return [key.id for key in house.store.now(api_keys.listing)]


async def account(house: House) -> Browser:
    browser = Browser(house)
    await browser.sign_in()
    await browser.get("/account")
    return browser


async def test_a_key_is_shown_with_what_it_may_and_never_whole() -> None:
    house = House().owned()
    made = key_of(house, tools="readonly", server="agent", expires_at=house.time + 90 * 86_400_000)
    browser = await account(house)
    assert "Keys of programs that act for you" in browser.words
    for words in (
        "backup",
        f"…{made.key.hint}",
        "List and call the agent's tools (tools: readonly)",
        "only at agent",
        "Never used",
    ):
        assert words in browser.words, words
    assert made.secret.reveal() not in browser.text


async def test_without_keys_nothing_is_said_of_them() -> None:
    browser = await account(House().owned())
    assert "Keys of programs" not in browser.words


async def test_revoking_a_key_ends_it_and_says_so() -> None:
    house = House().owned()
    key_of(house)
    other = key_of(house, name="other")
    browser = await account(house)
    form = dict(browser.fields(REVOKE))
    await browser.post(REVOKE, ("form_token", form["form_token"]), ("key", other.key.id))
    assert "That key was revoked" in browser.words
    assert other.key.id not in living(house) and len(living(house)) == 1
    await browser.post(REVOKE, ("form_token", form["form_token"]), ("key", other.key.id))
    assert "nothing to change" in browser.words


async def test_a_key_of_somebody_else_is_neither_shown_nor_revoked() -> None:
    house = House().owned()
    house.store.db.execute(
        "INSERT INTO users (id, name, role, state, scope, created_at) VALUES ('usr_b', 'bob', 'member', 'enabled', 'mcp', 1)"
    )
    mine, theirs = key_of(house), key_of(house, "usr_b", name="bobs")
    browser = await account(house)
    assert "bobs" not in browser.words
    token = dict(browser.fields(REVOKE))["form_token"]
    await browser.post(REVOKE, ("form_token", token), ("key", theirs.key.id))
    assert "nothing to change" in browser.words
    assert set(living(house)) == {mine.key.id, theirs.key.id}


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_form_that_is_not_ours_revokes_nothing(token: str) -> None:
    house = House().owned()
    made = key_of(house)
    browser = await account(house)
    page = await browser.post(REVOKE, ("form_token", token), ("key", made.key.id))
    assert page.status in (400, 403) or "again" in browser.words
    assert living(house) == [made.key.id]


async def test_without_a_session_one_is_asked_to_sign_in() -> None:
    house = House().owned()
    made = key_of(house)
    page = await Browser(house).post(REVOKE, ("key", made.key.id), follow=False)
    assert (page.status, location(page)[:7]) == (303, "/signin")
    assert living(house) == [made.key.id]


async def test_a_long_list_is_cut_and_says_so() -> None:
    house = House().owned()
    for number in range(SHOWN + 1):
        key_of(house, name=f"key {number}")
    browser = await account(house)
    assert browser.text.count('name="key"') == SHOWN
    assert "ostiary api-keys list" in browser.words
