"""What somebody sees before they accept it (server/trust/differences.py)."""

from __future__ import annotations

import pytest

from server.trust.definitions import MAX_KEPT, canonical
from server.trust.differences import COMPARED_LINES, DiffLine, difference, lines_of, near_changes, shown

OLD = canonical({"name": "read", "description": "Reads.\nPolitely.", "inputSchema": {"required": ["a"]}})


def signed(lines: list[DiffLine]) -> list[str]:
    return [line.sign + line.text for line in lines]


def test_each_member_is_a_line_and_each_line_of_a_text_as_well() -> None:
    assert lines_of(OLD) == [
        "description:",
        "  | Reads.",
        "  | Politely.",
        "inputSchema.required[0]: a",
        "name: read",
    ]


def test_a_difference_shows_what_went_and_what_came() -> None:
    new = canonical({"name": "read", "description": "Reads.\nAnd sends.", "inputSchema": {"required": ["a"]}})
    assert signed(difference(OLD, new)) == [
        " description:",
        "   | Reads.",
        "-  | Politely.",
        "+  | And sends.",
        " inputSchema.required[0]: a",
        " name: read",
    ]


def test_what_is_new_is_shown_whole() -> None:
    assert {line.sign for line in difference("", OLD)} == {"+"}
    assert len(difference("", OLD)) == 5


def test_what_is_far_from_a_change_is_left_out_and_no_change_ever_is() -> None:
    lines = [DiffLine(" ", str(n)) for n in range(20)] + [DiffLine("+", "x")] + [DiffLine(" ", "y")] * 20
    near = near_changes(lines)
    assert near[0] is None
    assert near[-1] is None
    assert [each.text for each in near if each is not None] == ["18", "19", "x", "y", "y"]


def test_a_definition_that_was_cut_is_shown_as_far_as_it_goes() -> None:
    text = canonical({"description": "y" * (2 * MAX_KEPT)})[:MAX_KEPT]
    assert "".join(lines_of(text)) == text


def test_two_definitions_of_thousands_of_members_are_compared_without_a_wait() -> None:
    old = canonical({str(n): "a" for n in range(5_000)})
    new = canonical({str(n): "b" for n in range(5_000)})
    found = difference(old, new)
    assert [line.sign for line in found] == ["-"] * 5_000 + ["+"] * 5_000


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_lines_are_compared_and_beyond_them_all_goes_and_comes(more: int) -> None:
    old = canonical({str(n): "a" for n in range(COMPARED_LINES + more)})
    found = difference(old, canonical({"0": "a"}))
    assert (found[0].sign == " ") == (more == 0)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain, größe, 日本", "plain, größe, 日本"),
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("left \N{RIGHT-TO-LEFT OVERRIDE}right", "left \\u202eright"),
        ("a\N{ZERO WIDTH SPACE}b", "a\\u200bb"),
        ("tag\U000e0041", "tag\\udb40\\udc41"),
        ("selected\N{VARIATION SELECTOR-2}\N{VARIATION SELECTOR-17}", "selected\\ufe01\\udb40\\udd00"),
        ("no\N{NO-BREAK SPACE}blank", "no\\u00a0blank"),
        ("\N{HANGUL FILLER}", "\\u3164"),
        ("a\nb", "a\\u000ab"),
    ],
)
def test_what_steers_a_terminal_or_cannot_be_seen_is_shown_as_what_it_is(text: str, seen: str) -> None:
    assert shown(text) == seen
