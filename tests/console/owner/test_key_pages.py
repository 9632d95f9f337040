"""Making an API key in a browser: shown once, never wider than its person, only for an owner who was proven lately."""

from __future__ import annotations

import re
from typing import Any

import pytest

from auth.tokens import api_keys
from tests.auth.browser_fakes import PASSPHRASE, Browser, House
from tests.auth.people_fakes import household
from tests.console.owner.test_people_pages import DAY, MINUTE, owner

NEW = "/account/keys/new"


def keys(house: House) -> list[api_keys.ApiKey]:
    return house.store.now(api_keys.listing)


def shown(browser: Browser) -> str:
    found = re.search(r"<textarea[^>]*>([^<]+)</textarea>", browser.text)
    assert found is not None, browser.words
    return found[1]


async def test_a_key_is_made_as_it_was_asked_for_and_shown_once() -> None:
    house = household()
    browser = await owner(house, NEW)
    await browser.submit(
        NEW, name="home assistant", may="ticked", scope=("mcp:tools:read",), tools="search", lasts="30"
    )
    text = shown(browser)
    (key,) = keys(house)
    assert api_keys.is_one(text) and api_keys.hash_of(text) == key.key_hash
    assert (key.name, key.user_id, key.scope, key.tools) == (
        "home assistant",
        house.owner_id,
        "mcp:tools:read",
        "search",
    )
    assert key.expires_at == house.time + 30 * DAY and key.server is None
    row = [row for row in house.rows("audit") if row["event"] == "api_key.created"][-1]
    assert (row["actor"], row["grant_id"]) == (f"user:{house.owner_id}", key.id)
    assert text not in "\n".join(house.store.db.database.dump())
    await browser.get("/account/access")
    assert "home assistant" in browser.words and text not in browser.text


async def test_a_key_for_ever_is_chosen_and_never_left_out() -> None:
    house = household()
    browser = await owner(house, NEW)
    await browser.submit(NEW, name="a", lasts="never")
    assert keys(house)[0].expires_at is None
    await browser.get(NEW)
    page = await browser.submit(NEW, name="b", lasts="")
    assert page.status == 400 and "Choose how long it lasts" in browser.words and len(keys(house)) == 1


async def test_a_key_for_somebody_else_goes_no_further_than_they_do() -> None:
    house = household()
    house.store.db.execute("UPDATE users SET scope = 'mcp:tools:read' WHERE name = 'bob'")
    browser = await owner(house, NEW)
    page = await browser.submit(NEW, name="bobs", lasts="30", whose="bob")
    assert page.status == 400 and "A key cannot do more than its user" in browser.words
    assert "At most: mcp:tools:read" in browser.words and keys(house) == []
    await browser.submit(NEW, name="bobs", lasts="30", whose="bob", may="ticked", scope=("mcp:tools:read",))
    assert "acts for bob until" in browser.words and keys(house)[0].user_id == "usr_bob"


async def test_what_moves_money_is_ticked_by_nobody_but_its_maker() -> None:
    house = household()
    browser = await owner(house, NEW)
    assert re.findall(r'name="scope" value="([^"]+)" checked', browser.text) == ["mcp"]
    assert 'value="*"' not in browser.text
    house.store.db.execute("UPDATE users SET scope = '*' WHERE role = 'owner'")
    await browser.submit(NEW, name="payer", lasts="30", may="ticked", scope=("financial",))
    assert keys(house)[0].scope == "financial"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": ""}, "A name for it"),
        ({"name": "x" * 101}, "A name for it"),
        ({"name": "two\u2028lines"}, "A name for it"),
        ({"whose": "nobody"}, "There is no user nobody"),
        ({"scope": ()}, "one thing ticked"),
        ({"scope": ("*",)}, "Tick what it may"),
        ({"scope": ("no:such",)}, "some of mcp"),
        ({"tools": "," * 3}, "A selection of tools is a list of words"),
        ({"name": "", "whose": "nobody"}, "There is no user nobody"),
        ({"tools": "no-such-tool"}, "There is no tool or group no-such-tool."),
        ({"server": "elsewhere"}, "There is no such server"),
        ({"lasts": "40000"}, "Choose how long it lasts"),
    ],
)
async def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_stays(
    wrong: dict[str, Any], sentence: str
) -> None:
    house = household()
    browser = await owner(house, NEW)
    typed: dict[str, Any] = {
        "name": "a key",
        "may": "ticked",
        "scope": ("mcp:tools",),
        "tools": "echo",
        "lasts": "30",
    }
    page = await browser.submit(NEW, {**typed, **wrong})
    assert page.status == 400 and sentence in browser.words
    assert keys(house) == []
    if "name" not in wrong:
        assert 'value="a key"' in browser.text
    if "tools" not in wrong:
        assert 'value="echo"' in browser.text


async def test_two_keys_of_one_name_cannot_be_told_apart_and_are_not_made() -> None:
    house = household()
    browser = await owner(house, NEW)
    await browser.submit(NEW, name="twice", lasts="30")
    await browser.get(NEW)
    page = await browser.submit(NEW, name="twice", lasts="30")
    assert page.status == 400 and "There is a key called twice" in browser.words and len(keys(house)) == 1


async def test_nobody_but_an_owner_who_was_proven_lately_makes_one() -> None:
    house = household()
    alice = await owner(house, NEW)
    stolen = dict(alice.fields(NEW))["form_token"]
    bob = await owner(house, NEW, name="bob")
    assert bob.page.status == 403
    sent = (("form_token", stolen), ("name", "mine"), ("may", "change"), ("lasts", "30"))
    assert (await bob.post(NEW, *sent)).status == 403
    assert (await alice.post(NEW, *sent[1:])).status == 403
    assert (await Browser(house).post(NEW, *sent, follow=False)).status == 303
    house.time += 16 * MINUTE
    await alice.get(NEW)
    await alice.submit(
        NEW, name="late", lasts="30", tools="echo", may="ticked", scope=("mcp:tools", "mcp:resources")
    )
    assert "to make an API key" in alice.words and keys(house) == []
    await alice.submit(NEW, passphrase=PASSPHRASE)
    assert [(key.name, key.tools, key.scope) for key in keys(house)] == [
        ("late", "echo", "mcp:tools mcp:resources")
    ]
    assert api_keys.is_one(shown(alice)), "what was typed is carried through the page that asks"
