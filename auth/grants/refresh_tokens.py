"""The refresh token `rt<v>.<grant>.<n>.<HMAC>`: nothing of it is stored, and a forged one fails before the store is asked.

The successor of `n` is a function of `n`, so parallel processes and retries get the same one and the chain cannot branch. `v`
names the key (keys/refresh_token_keys.py) and nothing else: while the key changes, `n` alone says which place in the chain a token has.
"""

from __future__ import annotations

import hmac
import re
from typing import Final

import msgspec

from auth.jose.base64url import pack
from auth.keys.refresh_token_keys import RefreshKey, RefreshRing
from auth.values.identity_model import Millis

# One spelling per number, and short ones: what is made up is refused before anything is computed.
_FORM: Final = re.compile(r"rt([1-9][0-9]{0,8})\.(grt_[a-z2-7]{20})\.([1-9][0-9]{0,17})\.([A-Za-z0-9_-]{43})")


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    grant_id: str
    counter: int


def write(key: RefreshKey, link: ChainLink) -> str:
    body = f"rt{key.version}.{link.grant_id}.{link.counter}"
    return f"{body}.{_mac(key.secret, body)}"


def names(token: str) -> str | None:
    """The grant that it says it is of, which is not looked at any closer."""
    found = _FORM.fullmatch(token)
    return None if found is None else found[2]


def parse(keys: RefreshRing, token: str, now: Millis) -> ChainLink | None:
    """None for whatever this server did not write, or wrote with a key that is over."""
    found = _FORM.fullmatch(token)
    if found is None:
        return None
    version, grant_id, counter, mac = found.groups()
    key = keys.get(version, now)
    if key is None or not hmac.compare_digest(_mac(key.secret, token[: -(1 + len(mac))]), mac):
        return None
    return ChainLink(grant_id=grant_id, counter=int(counter))


def _mac(key: bytes, body: str) -> str:
    return pack(hmac.digest(key, body.encode(), "sha256"))
