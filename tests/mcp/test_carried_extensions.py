"""Extensions that go through (server/mcp/carried_extensions.py): the words for what a client declares, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from server.mcp.call_questions import ABILITIES, abilities
from server.mcp.carried_extensions import (
    APPS,
    CONTENTS_BYTES,
    MOST,
    carried,
    declared_by,
    extension_words,
    united,
)
from server.mcp.versions import TASKS_EXTENSION

PAGES = {"mimeTypes": ["text/html;profile=mcp-app"]}
PASSED = frozenset({"elicitation", APPS, "com.example/more"})


@pytest.mark.parametrize(
    "declared",
    [
        {APPS: PAGES},
        {APPS: {}},
        {APPS: {"mimeTypes": ["text/html"], "deep": {"list": [1, None, "ä"]}}},
        {APPS: PAGES, "com.example/more": {"a b": "c d"}},
    ],
)
def test_what_a_client_declares_comes_out_as_it_went_in(declared: dict[str, Any]) -> None:
    can = abilities({"elicitation": {}, "extensions": declared})
    assert declared_by(can, PASSED) == declared
    assert can & frozenset(ABILITIES) == {"elicitation"}


def test_only_what_is_named_goes_through_and_never_what_is_dealt_with_here() -> None:
    words = extension_words(
        {APPS: PAGES, "com.example/other": {}, TASKS_EXTENSION: {}, "org.x402/payment": {}}
    )
    assert declared_by(words, PASSED) == {APPS: PAGES}
    assert not extension_words({TASKS_EXTENSION: {}, "elicitation": {}, "a b/c": {}, "a/b": 1, "": {}})


def test_what_one_client_can_have_kept_is_bounded() -> None:
    assert len(extension_words({f"com.example/{number}": {} for number in range(100)})) == MOST
    (word,) = extension_words({"com.example/more": {"text": "x" * CONTENTS_BYTES}})
    assert word == "com.example/more"
    deep: Any = {}
    for _ in range(5000):
        deep = {"x": deep}
    assert extension_words({"com.example/more": deep}) == {"com.example/more"}


@pytest.mark.parametrize("declared", [None, [], "io.modelcontextprotocol/ui", {APPS: True}, {APPS: None}])
def test_what_is_no_declaration_declares_nothing(declared: Any) -> None:
    assert abilities({"extensions": declared}) == frozenset()
    assert carried(declared, PASSED) == {}


def test_servers_declarations_are_united() -> None:
    one = carried({APPS: PAGES, "com.example/other": {}}, PASSED)
    other = carried({APPS: {"mimeTypes": ["text/html", *PAGES["mimeTypes"]], "more": 1}}, PASSED)
    assert united([one, other]) == {APPS: {"mimeTypes": [*PAGES["mimeTypes"], "text/html"], "more": 1}}
    assert one == {APPS: PAGES}
