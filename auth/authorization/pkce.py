"""Proof Key for Code Exchange (RFC 7636), S256 alone: whoever brings a code must be who asked for it."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from auth.jose.base64url import pack

METHOD: Final = "S256"

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # §4.2: SHA-256 as base64url without padding
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # §4.1


def is_challenge(text: str) -> bool:
    return _CHALLENGE.fullmatch(text) is not None


def is_verifier(text: str) -> bool:
    return _VERIFIER.fullmatch(text) is not None


def challenge_of(verifier: str) -> str:
    return pack(hashlib.sha256(verifier.encode()).digest())


def fits(verifier: str, challenge: str) -> bool:
    return is_verifier(verifier) and hmac.compare_digest(challenge_of(verifier), challenge)
