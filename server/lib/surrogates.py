r"""Half a character in JSON: `"\ud83d"`, the first half of an emoji whose second half was cut off.

RFC 8259 §8.2 allows it, programs that cut their texts at 16-bit units send it, and there is no UTF-8 for it, so the decoder
refuses it. Such a text is read once more with U+FFFD in the place of each half, which is what people are shown for it anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

# Every escape, so that the backslashes of `\\ud83d` are taken for the pair that they are. Two halves that belong together are
# one character, and stay.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def mended(text: bytes) -> bytes:
    """Return the JSON with U+FFFD in place of each half character; unchanged if it has none."""
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], text)


def decode_mended(decode: Callable[[bytes], T], text: bytes) -> T:
    """Decode the text; if that fails and it holds half characters, decode it once more, mended. Raise what `decode` raises."""
    try:
        return decode(text)
    except msgspec.DecodeError:
        second = mended(text)
        if second == text:
            raise
        return decode(second)
