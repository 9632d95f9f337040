"""Selections of tools (server/settings/tool_selection.py): the grammar, and that nothing a request says makes more visible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.mcp.terms import Tier
from server.settings.tool_selection import (
    MAX_PARTS,
    MAX_TEXT,
    REMEMBERED,
    BadSelection,
    Selections,
    parse,
    unknown,
)

TOOLS: dict[str, Tier] = {
    "find_page": "read",
    "find_user": "read",
    "edit_page": "write",
    "delete": "write",
    "pay": "financial",
}
GROUPS = {"search": ["find_*"], "pages": ["*_page"], "nothing": []}
EVERYTHING = set(TOOLS)


def chosen(text: str, default: str = "") -> set[str]:
    selections = Selections(default=default, groups=GROUPS)
    return {name for name, tier in TOOLS.items() if selections.has(text, name, tier)}


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("", EVERYTHING),
        ("all", EVERYTHING),
        ("default", EVERYTHING),
        ("none", set[str]()),
        ("readonly", {"find_page", "find_user"}),
        ("read", {"find_page", "find_user"}),
        ("write", {"edit_page", "delete"}),
        ("financial", {"pay"}),
        ("read,write", EVERYTHING - {"pay"}),
        ("search", {"find_page", "find_user"}),
        ("nothing", set[str]()),
        ("no_such_tool", set[str]()),
        ("delete", {"delete"}),
        (" search , delete ", {"find_page", "find_user", "delete"}),
        ("-delete", EVERYTHING - {"delete"}),
        ("-write,-financial", {"find_page", "find_user"}),
        ("all,-pages", {"find_user", "delete", "pay"}),
        ("all,-pages,edit_page", {"find_user", "delete", "pay", "edit_page"}),
        ("search,none,delete", {"delete"}),
        ("-all", set[str]()),
        ("-all,pay", {"pay"}),
        ("all,-none", EVERYTHING),
        ("readonly;search,delete", {"find_page", "find_user"}),
        ("search;-find_user", {"find_page"}),
        (";delete", {"delete"}),
        ("search;;", {"find_page", "find_user"}),
    ],
)
def test_what_a_selection_chooses(text: str, tools: set[str]) -> None:
    assert chosen(text) == tools


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("", {"find_page", "find_user", "edit_page"}),
        ("default", {"find_page", "find_user", "edit_page"}),
        ("-search", {"edit_page"}),
        ("default,pay", {"find_page", "find_user", "edit_page", "pay"}),
        ("all", EVERYTHING),  # of a user or a key: more than others have without being asked
        (";all", {"find_page", "find_user", "edit_page"}),  # of a request: never more
        (";pay", set[str]()),
        ("all;default", {"find_page", "find_user", "edit_page"}),
        ("-default", set[str]()),
    ],
)
def test_the_servers_default_is_for_those_who_have_nothing_of_their_own(text: str, tools: set[str]) -> None:
    assert chosen(text, default="read,edit_page") == tools


def test_a_default_that_only_takes_away_begins_with_everything() -> None:
    assert chosen("", default="-delete") == EVERYTHING - {"delete"}
    assert chosen("", default="default,-pay") == EVERYTHING - {"pay"}


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "a,,b",
        ",",
        "-",
        "--a",
        "a;b",
        "a\nb",
        "é",
        "*",
        "find_*",
        "a/b",
        "x" * 129,
        "a," * MAX_PARTS + "a",
        "x" * (MAX_TEXT + 1),
    ],
)
def test_what_is_no_selection_is_refused(text: str) -> None:
    with pytest.raises(BadSelection):
        parse(text)


def test_words_that_mean_nothing_here_are_named() -> None:
    assert unknown("all,-serch,search,delete,gone", groups=GROUPS, tools=TOOLS) == ["serch", "gone"]


def test_a_stored_text_that_is_none_chooses_nothing() -> None:
    assert chosen("search,,") == set()
    assert chosen("all;a b") == set()


words = st.sampled_from(
    ["default", "all", "none", "readonly", "write", "financial", *GROUPS, *TOOLS, "other"]
)
texts = st.lists(st.tuples(st.booleans(), words), max_size=6).map(
    lambda parts: ",".join(("-" if minus else "") + word for minus, word in parts)
)


@given(default=texts, held=texts, asked=st.lists(texts, min_size=1, max_size=3))
def test_a_request_narrows_and_never_widens(default: str, held: str, asked: list[str]) -> None:
    assert chosen(";".join([held, *asked]), default) <= chosen(held, default)


@given(default=texts, key=texts.filter(bool), user=texts.filter(bool))
def test_a_key_sees_nothing_that_its_user_may_not(default: str, key: str, user: str) -> None:
    assert chosen(f"{key};{user}", default) == chosen(key, default) & chosen(user, default)


@given(st.text(max_size=300))
def test_any_text_is_a_selection_or_is_refused(text: str) -> None:
    try:
        parse(text)
    except BadSelection:
        return
    assert chosen(text) <= EVERYTHING


def test_texts_that_callers_make_up_are_forgotten_again() -> None:
    selections = Selections()
    for number in range(10 * REMEMBERED):
        selections.has(f"tool_{number}", "delete", "write")
    assert len(selections._chosen) == REMEMBERED
