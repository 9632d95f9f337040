"""What somebody sees before they accept it (server/agents/mcp/trust/definition_differences.py)."""

from __future__ import annotations

import pytest

from server.agents.mcp.trust.definition_differences import DiffLine, difference, lines_of, near_changes, shown
from server.agents.mcp.trust.definitions import MAX_KEPT, canonical

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


def test_what_is_left_is_shown_whole_as_well() -> None:
    assert {line.sign for line in difference(OLD, "")} == {"-"}
    assert len(difference(OLD, "")) == 5
    assert difference("", "") == []


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ({"a": {}}, ["a: {}"]),
        ({"a": []}, ["a: []"]),
        ({"a": ""}, ["a: "]),
        ({"a": "\n"}, ["a:", "  | ", "  | "]),
        ({"a": [{"b": None}, 0]}, ["a[0].b: null", "a[1]: 0"]),
        ({}, [": {}"]),
    ],
)
def test_what_is_empty_is_a_line_too(value: dict[str, object], lines: list[str]) -> None:
    assert lines_of(canonical(value)) == lines


def test_what_comes_into_something_empty_shows_both() -> None:
    old, new = canonical({"properties": {}}), canonical({"properties": {"a": 1}})
    assert signed(difference(old, new)) == ["-properties: {}", "+properties.a: 1"]
    assert signed(difference(new, old)) == ["-properties.a: 1", "+properties: {}"]


def test_what_is_far_from_a_change_is_left_out_and_no_change_ever_is() -> None:
    same = [DiffLine(" ", str(n)) for n in range(6)]
    near = near_changes([*same, DiffLine("+", "x"), *same, DiffLine("-", "y"), *same])
    assert [each and each.text for each in near] == [
        None, "4", "5", "x", "0", "1", None, "4", "5", "y", "0", "1", None,
    ]  # fmt: skip


def test_between_changes_with_five_lines_one_is_left_out_and_with_four_none() -> None:
    same = [DiffLine(" ", str(n)) for n in range(5)]
    change = DiffLine("+", "x")
    assert near_changes([change, *same, change]) == [change, *same[:2], None, *same[3:], change]
    assert near_changes([change, *same[:4], change]) == [change, *same[:4], change]


@pytest.mark.parametrize(("characters", "sizes"), [(500, [500]), (501, [500, 1]), (1_000, [500, 500])])
def test_what_is_no_json_is_shown_in_lines_of_500(characters: int, sizes: list[int]) -> None:
    assert [len(line) for line in lines_of("y" * characters)] == sizes


def test_a_definition_that_was_cut_is_shown_as_far_as_it_goes() -> None:
    text = canonical({"description": "y" * (2 * MAX_KEPT)})[:MAX_KEPT]
    assert "".join(lines_of(text)) == text


def test_two_definitions_of_thousands_of_members_are_compared_without_a_wait() -> None:
    old = canonical({str(n): "a" for n in range(5_000)})
    new = canonical({str(n): "b" for n in range(5_000)})
    found = difference(old, new)
    assert [line.sign for line in found] == ["-"] * 5_000 + ["+"] * 5_000


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("lines", "compared"), [(1_500, True), (1_501, False)])
def test_so_many_lines_are_compared_and_beyond_them_all_goes_and_comes(
    lines: int, compared: bool, turned: bool
) -> None:
    long, short = canonical({str(n): "a" for n in range(lines)}), canonical({"0": "a"})
    found = difference(short, long) if turned else difference(long, short)
    assert len(found) == (lines if compared else lines + 1)
    assert (found[0].sign == " ") is compared


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
