"""base64url without padding (RFC 7515 §2), in the one spelling that a value has."""

from __future__ import annotations

import base64
import binascii
from typing import Final

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def pack(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE).rstrip(b"=").decode()


def unpack(text: str) -> bytes:
    """Only the one spelling that `pack` gives: a token has one form. Raises ValueError."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
    if pack(data) != text:
        raise ValueError("not base64url in its one form")
    return data
