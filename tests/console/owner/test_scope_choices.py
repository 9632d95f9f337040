"""What somebody may do, as the owner's forms ask for it: a plain choice of three, and each scope by itself behind *advanced*."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec.structs import replace

from auth.values.scopes import Scope, Vocabulary
from tests.auth.browser_fakes import Browser, House
from tests.auth.people_fakes import household
from tests.console.owner.test_key_pages import NEW as NEW_KEY
from tests.console.owner.test_key_pages import keys
from tests.console.owner.test_people_pages import BOB, NEW, owner, user

READ, CHANGE = "mcp:tools:read mcp:resources", "mcp"
TYPED: dict[str, dict[str, str]] = {
    NEW: {"name": "dora"},
    BOB: {},
    NEW_KEY: {"name": "nightly", "lasts": "30"},
}
OWN = (
    Scope(name="pages", words="Use the pages"),
    Scope(name="pages:delete", words="Delete pages"),
    Scope(name="rent", words="Pay the rent", financial=True),
)


def given(house: House, path: str) -> str | None:
    """What the form at `path` gave by now."""
    if path == NEW_KEY:
        return keys(house)[-1].scope if keys(house) else None
    name = "dora" if path == NEW else "bob"
    return next((row["scope"] for row in house.rows("users") if row["name"] == name), None)


class _Shown(HTMLParser):
    """The choices and boxes of a form, with what is checked, and how deep each box stands in others."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.choices: list[str] = []
        self.chosen: list[str] = []
        self.boxes: dict[str, int] = {}
        self.ticked: list[str] = []
        self.opened = False
        self._depth: list[bool] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        value, checked = has.get("value") or "", "checked" in has
        if tag == "div":
            self._depth.append(has.get("class") == "scope")
        elif tag == "details":
            self.opened = "open" in has
        elif has.get("type") == "radio":
            self.choices.append(value)
            self.chosen += [value] if checked else []
        elif has.get("type") == "checkbox":
            self.boxes[value] = sum(self._depth)
            self.ticked += [value] if checked else []

    def handle_endtag(self, tag: str) -> None:
        if tag == "div":
            self._depth.pop()


def shown(browser: Browser) -> _Shown:
    return _Shown(browser.text)


def at_fault(browser: Browser) -> bool:
    """Whether the page is the form again, which says that what was chosen is wrong."""
    described = re.search(r'<fieldset[^>]*aria-describedby="([^"]+)"', browser.text)
    return described is not None and f'id="{described[1]}"' in browser.text


# ---------------------------------------------------------------- what a choice comes to


@pytest.mark.parametrize(
    ("path", "may", "scope"),
    [
        (NEW, "read", READ),
        (NEW, "change", CHANGE),
        (NEW, "everything", "*"),
        (BOB, "read", READ),
        (BOB, "change", CHANGE),
        (BOB, "everything", "*"),
        (NEW_KEY, "read", READ),
        (NEW_KEY, "change", CHANGE),
        (NEW_KEY, "everything", "mcp financial"),
    ],
)
async def test_a_choice_gives_exactly_the_rights_that_it_names(path: str, may: str, scope: str) -> None:
    house = household()
    house.store.db.execute("UPDATE users SET scope = 'mcp:resources' WHERE name = 'bob'")
    browser = await owner(house, path)
    await browser.submit(path, TYPED[path], may=may)
    assert given(house, path) == scope


@pytest.mark.parametrize(
    ("path", "may", "scope"),
    [
        (NEW, "read", READ),
        (NEW, "change", "mcp pages"),
        (NEW, "everything", "*"),
        (NEW_KEY, "change", "mcp pages"),
        (NEW_KEY, "everything", "mcp financial pages rent"),
    ],
)
async def test_scopes_of_ones_own_belong_to_change_and_those_that_move_money_to_everything(
    path: str, may: str, scope: str
) -> None:
    house = household()
    house.parts = replace(house.parts, site=replace(house.parts.site, scopes=Vocabulary(OWN)))
    browser = await owner(house, path)
    assert shown(browser).chosen == ["change"] and "Use the pages" in browser.words
    await browser.submit(path, TYPED[path], may=may)
    assert given(house, path) == scope


async def test_a_scope_is_counted_by_itself_where_somebody_says_so() -> None:
    for path in TYPED:
        house = household()
        browser = await owner(house, path)
        await browser.submit(path, TYPED[path], may="ticked", scope=("mcp:tools:write", "financial"))
        assert given(house, path) == "mcp:tools:write financial"


# ---------------------------------------------------------------- what a form shows


@pytest.mark.parametrize(
    ("scope", "chosen", "ticked"),
    [
        (READ, "read", ["mcp:resources", "mcp:tools:read"]),
        ("mcp:resources mcp:tools:read", "read", ["mcp:resources", "mcp:tools:read"]),
        ("mcp", "change", ["mcp"]),
        ("mcp mcp:tools mcp:resources", "change", ["mcp"]),
        ("*", "everything", ["mcp", "financial"]),
        ("mcp *", "everything", ["mcp", "financial"]),
        ("mcp:tools:read", "ticked", ["mcp:tools:read"]),
        ("mcp:tools mcp:tools:read", "ticked", ["mcp:tools"]),
        (
            "mcp:tools:read mcp:tools:write mcp:resources",
            "ticked",
            ["mcp:resources", "mcp:tools:read", "mcp:tools:write"],
        ),
        ("mcp financial", "ticked", ["mcp", "financial"]),
        ("mcp given:up", "ticked", ["mcp"]),
    ],
)
async def test_a_form_shows_what_is_in_force_and_each_scope_where_no_choice_fits(
    scope: str, chosen: str, ticked: list[str]
) -> None:
    house = household()
    house.store.db.execute("UPDATE users SET scope = ? WHERE name = 'bob'", scope)
    form = shown(await owner(house, BOB))
    assert (form.choices, form.chosen) == (["read", "change", "everything", "ticked"], [chosen])
    assert (sorted(form.ticked), form.opened) == (sorted(ticked), chosen == "ticked")


@pytest.mark.parametrize("path", [NEW, NEW_KEY])
async def test_what_moves_money_is_in_no_form_beforehand(path: str) -> None:
    form = shown(await owner(household(), path))
    assert (form.chosen, form.ticked, form.opened) == (["change"], ["mcp"], False)


async def test_a_scope_is_shown_within_the_one_that_includes_it() -> None:
    form = shown(await owner(household(), NEW))
    assert form.boxes == {
        "mcp": 1,
        "mcp:tools": 2,
        "mcp:tools:read": 3,
        "mcp:tools:write": 3,
        "mcp:resources": 2,
        "financial": 1,
    }


async def test_a_new_key_begins_with_what_its_maker_may() -> None:
    house = household()
    house.store.db.execute("UPDATE users SET scope = ? WHERE role = 'owner'", READ)
    form = shown(await owner(house, NEW_KEY))
    assert (form.choices, form.chosen, form.opened) == (["read", "ticked"], ["read"], False)


async def test_a_key_is_offered_no_more_than_whoever_it_acts_for_may() -> None:
    house = household()
    house.store.db.execute("UPDATE users SET scope = 'mcp' WHERE role = 'owner'")
    house.store.db.execute("UPDATE users SET scope = ? WHERE name = 'bob'", READ)
    house.store.db.execute("UPDATE users SET scope = 'mcp:tools:read' WHERE name = 'carol'")
    browser = await owner(house, NEW_KEY)
    form = shown(browser)
    assert form.choices == ["read", "change", "ticked"] and "financial" not in form.boxes
    page = await browser.submit(NEW_KEY, TYPED[NEW_KEY], whose="bob")
    form = shown(browser)
    assert (page.status, keys(house)) == (400, [])
    assert (form.choices, form.chosen) == (["read", "ticked"], [])
    page = await browser.submit(NEW_KEY, TYPED[NEW_KEY], whose="carol", may="everything")
    form = shown(browser)
    assert (page.status, keys(house)) == (400, [])
    assert (form.choices, list(form.boxes), form.opened) == (["ticked"], ["mcp:tools:read"], True)
    await browser.submit(NEW_KEY, TYPED[NEW_KEY], whose="bob", may="read")
    assert (keys(house)[0].user_id, keys(house)[0].scope) == ("usr_bob", READ)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("path", TYPED)
@pytest.mark.parametrize("may", [(), "", "all", "mcp", "*", "Everything"])
async def test_a_choice_that_is_none_is_refused(path: str, may: Any) -> None:
    house = household()
    browser = await owner(house, path)
    before = given(house, path)
    page = await browser.submit(path, TYPED[path], may=may)
    assert page.status == 400 and at_fault(browser)
    assert given(house, path) == before
    assert (shown(browser).chosen, shown(browser).opened) == ([], False)


async def test_everything_there_will_be_is_nothing_to_tick() -> None:
    for path in TYPED:
        house = household()
        browser = await owner(house, path)
        before = given(house, path)
        page = await browser.submit(path, TYPED[path], may="ticked", scope=("*",))
        assert page.status == 400 and at_fault(browser) and given(house, path) == before
        assert shown(browser).ticked == []


@pytest.mark.parametrize("path", TYPED)
async def test_boxes_that_were_changed_beside_a_choice_are_asked_about_and_then_the_choice_counts(
    path: str,
) -> None:
    house = household()
    browser = await owner(house, path)
    before = given(house, path)
    page = await browser.submit(path, TYPED[path], may="change", scope=("mcp:tools:read",))
    assert page.status == 400 and at_fault(browser) and given(house, path) == before
    form = shown(browser)
    assert (form.chosen, form.ticked, form.opened) == (["change"], ["mcp:tools:read"], True)
    await browser.submit(path, TYPED[path])
    assert given(house, path) == CHANGE


# ---------------------------------------------------------------- what the buttons beside it do


@pytest.mark.parametrize("state", ["enabled", "disabled", "locked", "invited"])
async def test_each_button_of_an_account_stands_beside_what_it_does(state: str) -> None:
    house = household()
    house.store.db.execute("UPDATE users SET state = ? WHERE name = 'bob'", state)
    browser = await owner(house, BOB)
    assert user(house, "bob")["state"] == state
    acts = re.findall(
        rf'action="{BOB}/(\w+)".*?<button[^>]*aria-describedby="(\w+)"', browser.text, re.DOTALL
    )
    assert len(acts) == browser.text.count(f'action="{BOB}/') >= 2
    for act, described_by in acts:
        assert act == described_by
        assert re.search(rf'id="{act}">\s*\S', browser.text)
