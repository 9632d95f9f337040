"""Pages: what a walk sees, what it sees when the list changes meanwhile, and which cursors are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.mcp.cursors import Cursors
from server.mcp.errors import BadCursor

KEY = b"k" * 32
LETTERS = tuple("abcdefghij")


def page(
    items: Sequence[str], cursor: str | None = None, size: int = 3, *, cursors: Cursors | None = None
) -> tuple[Sequence[str], str | None]:
    return (cursors or Cursors(KEY)).cut("tools", items, str, cursor, size)


def next_cursor(items: Sequence[str] = LETTERS, size: int = 3) -> str:
    cursor = page(items, size=size)[1]
    assert cursor is not None
    return cursor


@pytest.mark.requirement("page.walk")
@given(st.lists(st.text(max_size=8), unique=True, max_size=60), st.integers(1, 20))
def test_a_walk_visits_every_item_once_and_in_order(items: list[str], size: int) -> None:
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(len(items) + 1):
        found, cursor = page(items, cursor, size)
        assert len(found) <= size
        seen += found
        if cursor is None:
            break
    assert cursor is None
    assert seen == items


@pytest.mark.requirement("page.stable")
@given(
    st.lists(st.integers(0, 99).map(str), unique=True, min_size=2, max_size=40),
    st.integers(1, 10),
    st.data(),
)
def test_a_walk_misses_nothing_that_stays_when_one_item_goes_and_one_comes(
    items: list[str], size: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(items))
    place = data.draw(st.integers(0, len(items) - 1))
    first, cursor = page(items, size=size)
    changed = [item for item in items if item != gone]
    if gone not in first[-1:]:  # with the last one gone, the place is all there is to go by, and it has moved
        changed.insert(place, "new")
    seen = list(first)
    while cursor is not None:
        found, cursor = page(changed, cursor, size)
        seen += found
    stayed = [item for item in items if item != gone]
    assert [item for item in seen if item in stayed] == stayed


def test_a_list_without_items_is_one_empty_page() -> None:
    assert page(()) == ((), None)


def test_a_page_that_ends_with_the_list_has_no_next_cursor() -> None:
    assert page(LETTERS, size=10) == (LETTERS, None)
    assert page(LETTERS, next_cursor(size=5), size=5) == (LETTERS[5:], None)


def test_items_put_before_the_cursor_are_not_given_twice() -> None:
    assert page(("0", "1", *LETTERS), next_cursor())[0] == ("d", "e", "f")


def test_the_item_at_the_cursor_may_be_gone() -> None:
    cursor = next_cursor()
    assert page(tuple("abdefghij"), cursor)[0] == ("d", "e", "f")


def test_a_list_that_has_shrunk_before_the_cursor_ends_there() -> None:
    cursor = next_cursor()
    assert page(("a",), cursor) == ((), None)
    assert page((), cursor) == ((), None)


def test_a_cursor_does_not_show_the_key_it_stands_for() -> None:
    items = ["internal-tool-name" * 3, "other"]
    cursor = next_cursor(items, 1)
    assert len(cursor) < 50
    assert "internal" not in cursor


@pytest.mark.parametrize("cursor", ["", "0", "3", "x" * 43, "é" * 43, "=" * 43, "a" * 100_000, "\ud800" * 43])
def test_a_text_that_is_no_cursor_of_ours_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        page(LETTERS, cursor)


@pytest.mark.requirement("page.invalid")
def test_a_cursor_of_another_list_server_or_key_is_refused() -> None:
    cursor = next_cursor()
    assert page(LETTERS, cursor)[0] == ("d", "e", "f")
    with pytest.raises(BadCursor):
        Cursors(KEY).cut("prompts", LETTERS, str, cursor, 3)
    with pytest.raises(BadCursor):
        page(LETTERS, cursor, cursors=Cursors(KEY, "another"))
    with pytest.raises(BadCursor):
        page(LETTERS, cursor, cursors=Cursors(b"x" * 32))


def test_names_do_not_run_together() -> None:
    _, cursor = Cursors(KEY, "ab").cut("c", LETTERS, str, None, 3)
    with pytest.raises(BadCursor):
        Cursors(KEY, "a").cut("bc", LETTERS, str, cursor, 3)


def test_a_cursor_with_any_character_changed_is_refused() -> None:
    cursor = next_cursor()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/="
    for place, old in enumerate(cursor):
        for new in alphabet:
            if new != old:
                with pytest.raises(BadCursor):
                    page(LETTERS, cursor[:place] + new + cursor[place + 1 :])


def test_a_page_without_room_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one"):
        page(LETTERS, size=0)
