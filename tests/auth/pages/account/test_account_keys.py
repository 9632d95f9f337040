"""API keys on the Access page: whose are shown, and who ends which (auth/pages/account/api_key_section.py)."""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from typing import Any

import pytest

from auth.pages.account.api_key_section import SHOWN
from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKeyOrder, NewApiKey
from tests.auth.browser_fakes import PASSPHRASE, Browser, House, location
from tests.auth.people_fakes import household

END = "/account/keys/end"


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


async def account(house: House, name: str = "alice") -> Browser:
    browser = Browser(house)
    await browser.sign_in(name)
    await browser.get("/account/access")
    return browser


async def test_a_key_is_shown_with_what_it_may_and_never_whole() -> None:
    house = House().owned()
    made = key_of(house, tools="readonly", server="agent", expires_at=house.time + 90 * 86_400_000)
    browser = await account(house)
    assert "API keys" in browser.words
    for words in (
        "backup",
        f"…{made.key.hint}",
        "(tools: readonly)",
        "only at agent",
        "never used",
    ):
        assert words in browser.words, words
    assert made.secret.reveal() not in browser.text


async def test_without_keys_nothing_is_said_of_them_but_to_the_owner() -> None:
    house = household()
    assert "API keys" not in (await account(house, "bob")).words
    owner = await account(house)
    assert "API keys" in owner.words and 'href="/account/keys/new"' in owner.text


async def test_ending_a_key_ends_it_and_says_so() -> None:
    house = House().owned()
    key_of(house)
    other = key_of(house, name="other")
    browser = await account(house)
    form = dict(browser.fields(END))
    await browser.post(END, ("form_token", form["form_token"]), ("key", other.key.id))
    assert "End the key other?" in browser.words and other.key.id in living(house)
    await browser.submit(END)
    assert "Your key other was ended" in browser.words
    assert other.key.id not in living(house) and len(living(house)) == 1
    await browser.post(END, ("form_token", form["form_token"]), ("key", other.key.id))
    assert "nothing to change" in browser.words


async def test_a_key_of_somebody_else_is_neither_shown_nor_ended() -> None:
    house = household()
    mine, theirs = key_of(house, "usr_bob"), key_of(house, "usr_carol", name="carols")
    browser = await account(house, "bob")
    assert "carols" not in browser.words
    token = dict(browser.fields(END))["form_token"]
    await browser.post(END, ("form_token", token), ("key", theirs.key.id))
    assert "nothing to change" in browser.words
    assert set(living(house)) == {mine.key.id, theirs.key.id}


async def test_the_owner_sees_everybodys_keys_and_ends_one_after_a_fresh_proof() -> None:
    house = household()
    key_of(house, "usr_bob", name="bobs")
    browser = await account(house)
    assert "acts for bob" in browser.words
    house.time += 16 * 60_000
    await browser.get("/account/access")
    await browser.submit(END)
    assert "acts for bob" in browser.words and "Is it you?" not in browser.words
    await browser.submit(END)
    assert "Is it you?" in browser.words and len(living(house)) == 1
    await browser.submit(END, passphrase=PASSPHRASE)
    assert "bob’s key bobs was ended" in browser.words and living(house) == []
    assert house.audited("api_key.revoked") == ["ok"]


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_form_that_is_not_ours_ends_nothing(token: str) -> None:
    house = House().owned()
    made = key_of(house)
    browser = await account(house)
    page = await browser.post(END, ("form_token", token), ("key", made.key.id))
    assert page.status in (400, 403) or "again" in browser.words
    assert living(house) == [made.key.id]


async def test_without_a_session_one_is_asked_to_sign_in() -> None:
    house = House().owned()
    made = key_of(house)
    page = await Browser(house).post(END, ("key", made.key.id), follow=False)
    assert (page.status, location(page)[:7]) == (303, "/signin")
    assert living(house) == [made.key.id]


async def test_keys_come_page_by_page_each_once_and_can_be_looked_for() -> None:
    house = House().owned()
    for number in range(SHOWN + 4):
        key_of(house, name=f"key {number}")
    browser = await account(house)
    seen = re.findall(r'name="key" value="([^"]+)"', browser.text)
    assert len(seen) == SHOWN
    older = re.search(r'href="([^"]*keys=[^"]*)#keys"', browser.text)
    assert older is not None
    await browser.get(unescape(older[1]))
    seen += re.findall(r'name="key" value="([^"]+)"', browser.text)
    assert len(set(seen)) == len(seen) == SHOWN + 4
    assert '<a href="/account/access#keys">The newest keys</a>' in browser.text
    await browser.get("/account/access?q=KEY 7")
    assert browser.text.count('name="key"') == 1
