from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.agents.skills.command_lines import NeedsShell, arguments, binary, filled, placeholders

TEMPLATE = "rg --line-number {pattern} {path}"


def test_values_are_quoted_and_what_has_none_stays_to_be_seen() -> None:
    assert filled(TEMPLATE, {"pattern": "it's; rm -rf ~", "path": "src"}) == (
        "rg --line-number 'it'\\''s; rm -rf ~' 'src'"
    )
    assert filled(TEMPLATE, {"path": "src"}) == "rg --line-number {pattern} 'src'"
    assert filled("x '{a}' \"{a}\" \\{a}", {"a": "\"$(id)`\\'"}) == (
        "x '\"$(id)`\\'\\''' \"\\\"\\$(id)\\`\\\\'\" \\{a}"
    )


def test_placeholders_and_the_program() -> None:
    assert placeholders("{b} {a} {b} {1} {}") == ("b", "a")
    assert binary(TEMPLATE) == "rg"
    assert binary("  ") == ""


# `printf %s\0` says each of its arguments, so that a shell's reading and ours can be compared.
TEMPLATES = [
    "printf %s\\\\0 {a}",
    "printf '%s\\0' \"{a}\" '{a}' x{a}y",
    "printf '%s\\0' \"pre {a} post\" {b}{a}",
]


@pytest.mark.parametrize("template", TEMPLATES)
@given(a=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), b=st.sampled_from(["", "-n", "'", "$HOME", "a b"]))  # fmt: skip
def test_a_value_is_one_piece_of_text_for_a_shell_and_without_one(template: str, a: str, b: str) -> None:
    values = {"a": a, "b": b}
    line = filled(template, values)
    shell = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True)
    assert shell.stdout == b"".join(each.encode() + b"\0" for each in arguments(template, values)[2:])


def test_without_a_shell_no_value_is_split_and_quotes_are_gone() -> None:
    assert arguments("jq '.a b' \"x \\\" y\" --q={v}z {v}", {"v": "1 2 $(id)"}) == [
        "jq", ".a b", 'x " y', "--q=1 2 $(id)z", "1 2 $(id)",
    ]  # fmt: skip
    assert arguments("git show HEAD~1 '' a#b", {}) == ["git", "show", "HEAD~1", "", "a#b"]
    with pytest.raises(KeyError):
        arguments(TEMPLATE, {})


@pytest.mark.parametrize("template", ["a | b", "a > b", "a; b", "ls *.py", "echo $HOME", 'echo "$HOME"', "cd ~", "a `b`", "a 'b", "a \\", "a && b", "a # b"])  # fmt: skip
def test_what_only_a_shell_understands_is_not_run(template: str) -> None:
    with pytest.raises(NeedsShell):
        arguments(template, {})
