"""What counts as seen of what a document shows (walk.py): … is something, and everything else is itself."""

from __future__ import annotations

import pytest
from walk import Block, check_shown

APPROVE = "  in another terminal  …ostiary approve WDJB-MJHT"


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        (APPROVE, "  in another terminal  ostiary approve BCDF-GHJK"),
        (APPROVE, "  in another terminal  /opt/bin/ostiary approve BCDF-GHJK"),
        (APPROVE, "  in another terminal  uv run ostiary approve BCDF-GHJK"),
        ("claim/…", "claim/x"),
        ("call …", "before\ncall abc  \nafter"),
    ],
)
def test_what_a_document_shows_is_found(shown: str, seen: str) -> None:
    check_shown(Block(lines=[], shown=[shown]), seen)


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        (APPROVE, "  in another terminal  notostiary approve BCDF-GHJK"),
        (APPROVE, "  in another terminal  ostiary approve"),
        (APPROVE, "  in another terminal"),
        ("claim/…", "claim/"),
        ("paid …, transaction 0x…", "paid , transaction 0x12"),
        ("fixed", "fixed and more"),
    ],
)
def test_what_is_missing_or_otherwise_is_not(shown: str, seen: str) -> None:
    with pytest.raises(AssertionError, match="the document shows the line"):
        check_shown(Block(lines=[], shown=[shown]), seen)


def test_lines_are_seen_in_their_order() -> None:
    check_shown(Block(lines=[], shown=["one", "two"]), "one\nthree\ntwo\n")
    with pytest.raises(AssertionError):
        check_shown(Block(lines=[], shown=["one", "two"]), "two\none\n")
