"""The refresh token `rt1.<grant>.<n>.<HMAC>`: nothing of it is stored, and a forged one fails before the store is asked.

The successor of `n` is a function of `n`, so parallel processes and retries get the same one and the chain cannot branch.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final

import msgspec

VERSION: Final = "rt1"  # names the key as well: the next key is rt2
KEY_PURPOSE: Final = "refresh-token-1"

_FORM: Final = re.compile(r"rt1\.(grt_[a-z2-7]{20})\.([1-9][0-9]{0,17})\.([A-Za-z0-9_-]{43})")


class Link(msgspec.Struct, frozen=True, kw_only=True):
    grant_id: str
    counter: int


def write(key: bytes, link: Link) -> str:
    body = f"{VERSION}.{link.grant_id}.{link.counter}"
    return f"{body}.{_mac(key, body)}"


def parse(key: bytes, token: str) -> Link | None:
    """None for whatever this server did not write."""
    found = _FORM.fullmatch(token)
    if found is None:
        return None
    body = token[: -(1 + len(found[3]))]
    if not hmac.compare_digest(_mac(key, body), found[3]):
        return None
    return Link(grant_id=found[1], counter=int(found[2]))


def _mac(key: bytes, body: str) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, body.encode(), hashlib.sha256)).rstrip(b"=").decode()
