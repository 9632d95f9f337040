"""What may reach a console of texts from elsewhere."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from server.lib.log.visible_text import clean, escaped
from server.lib.shortened import NAME_CHARACTERS, REASON_CHARACTERS, short_name, short_reason

STEERING = ["\x00", "\x07", "\x1b", "\x7f", "\x80", "\x90", "\x9b", "\x9d", "\u200e", "\u202e", "\u2066", "\ufeff", "\ue000",
            "\ud800", "\U000e0001", "\U0010ffff"]  # fmt: skip
ENDS = ["\n", "\r", "\v", "\x85", "\u2028", "\u2029"]
READ = "plain, ünïcode, 日本語, עברית, e\u0301, 👍 and \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("character", STEERING)
def test_what_steers_is_marked_for_people_and_escaped_for_programs(character: str) -> None:
    assert clean(f"a{character}b") == "a\N{REPLACEMENT CHARACTER}b"
    written = escaped(f"a{character}b")
    assert written.isascii() and written.isprintable()
    assert json.loads(f'"{written}"') == f"a{character}b"


@pytest.mark.parametrize("character", ENDS)
def test_what_ends_a_line_ends_none(character: str) -> None:
    assert clean(f"a{character}b") == "a b"
    assert json.loads(f'"{escaped(character)}"') == character


def test_what_is_read_stays_as_it_is() -> None:
    assert clean(READ) == escaped(READ) == READ
    assert clean("a\tb\nc\x9bd", keep_lines=True) == "a\tb\nc\N{REPLACEMENT CHARACTER}d"
    assert escaped("a\nb\x9b", keep="\n") == "a\nb\\u009b"


def test_no_character_at_all_gets_through_that_steers() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    for shown in (clean(every), escaped(every)):
        left = {unicodedata.category(character) for character in set(shown)}
        assert left.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def test_the_words_of_others_are_shown_in_part() -> None:
    assert short_reason(ValueError("no " * 1000)) == ("no " * 1000)[:REASON_CHARACTERS]
    assert short_name("n" * 1000) == "n" * NAME_CHARACTERS
    assert (short_reason(OSError("gone")), short_name("search")) == ("gone", "search")
