"""Texts that a stranger claims (auth/values/requester.py), made plain before they are shown."""

from __future__ import annotations

import pytest

from auth.values.requester import clean


@pytest.mark.parametrize(
    ("claimed", "shown"),
    [
        ("a" + "\u0301" * 60 + "b", "a" + "\u0301" * 4 + "b"),
        ("\u3164\u2800\u115f", ""),
        ("one\u3164\u2800two", "one two"),
        ("q\u0323\u0307 Việt ไม้ל\u05b8", "q\u0323\u0307 Việt ไม้ל\u05b8"),
        ("tab\there\x00\u202egone", "tab heregone"),
    ],
)
def test_what_a_stranger_claims_can_neither_cover_its_surroundings_nor_pass_for_nothing(
    claimed: str, shown: str
) -> None:
    assert clean(claimed, 80) == shown
