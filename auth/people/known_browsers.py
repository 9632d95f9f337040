"""Browsers in which somebody signed in before. Their tries at sign-in are counted apart from those of strangers: whoever knows no
more than a name can close an account's tries for strangers, but not for the person who comes back to a browser of theirs.

The cookie opens nothing: it says, under a MAC, which account it was. Counting tries is in user_accounts.py, sessions in browser_sessions.py.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from auth.jose.base64url import pack
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY

KEY_PURPOSE: Final = "known-browsers"
LASTS: Final[Millis] = 90 * DAY
NONCE_BYTES: Final = 16

_VALUE: Final = re.compile(r"(usr_[a-z0-9]{1,60})\.([0-9]{1,15})\.([A-Za-z0-9_-]{22})\.([0-9a-f]{64})")


class KnownBrowser(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a cookie of ours."""

    user_id: str
    bucket: str  # where this browser's tries are counted


def cookie_name(secure: bool) -> str:
    return "__Host-ostiary-known" if secure else "ostiary-known"


def set_cookie(key: bytes, user_id: str, *, entropy: bytes, secure: bool, now: Millis) -> tuple[str, str]:
    """Make the header that makes this a known browser. `entropy` is `NONCE_BYTES` from the system's generator."""
    if len(entropy) != NONCE_BYTES:
        raise ValueError(f"a known browser needs {NONCE_BYTES} random bytes")
    said = f"{user_id}.{now}.{pack(entropy)}"
    tail = f"Path=/; Max-Age={LASTS // 1_000}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return "set-cookie", f"{cookie_name(secure)}={said}.{_mac(key, said)}; {tail}"


def read(key: bytes, headers: Mapping[str, str], *, secure: bool, now: Millis) -> KnownBrowser | None:
    """Read the first cookie that is ours; one that somebody planted beside it fits no MAC."""
    for part in re.split("[;,]", headers.get("cookie", "")):
        name, _, value = part.partition("=")
        match = _VALUE.fullmatch(value.strip()) if name.strip() == cookie_name(secure) else None
        if match is None:
            continue
        user_id, since, nonce, mac = match.groups()
        sound = hmac.compare_digest(_mac(key, f"{user_id}.{since}.{nonce}"), mac)
        if sound and int(since) <= now < int(since) + LASTS:
            return KnownBrowser(user_id=user_id, bucket=f"signin:known:{nonce}")
    return None


def _mac(key: bytes, said: str) -> str:
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()
