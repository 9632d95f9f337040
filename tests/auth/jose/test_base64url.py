"""base64url in the one spelling that a value has."""

from __future__ import annotations

import pytest

from auth.jose.base64url import pack, unpack

SPELLED = {b"": "", b"\xfb": "-w", b"\xfb\xff": "-_8", b"\xfb\xff\xbf": "-_-_", b"\xfb\xff\xbf\x00": "-_-_AA"}


@pytest.mark.parametrize("value", SPELLED)
def test_each_length_has_its_spelling_without_padding(value: bytes) -> None:
    assert (pack(value), unpack(SPELLED[value])) == (SPELLED[value], value)


@pytest.mark.parametrize(
    "text",
    ["-w==", "-w=", "+w", "/w", "-x", "-", "-w-w-", " -w", "-w\n", "-_8\0", "-é", "\ud800", "-w==-w=="],
)
def test_every_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64url|ASCII"):
        unpack(text)
