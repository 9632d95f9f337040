"""Thumbprints of public keys (RFC 7638, RFC 8037 §2): a name for a key that follows from the key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from auth.jose.base64url import pack

# The members that make a key of each kind.
_MEMBERS: Final = MappingProxyType(
    {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
)
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # SHA-256 as base64url without padding


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """Raises KeyError for a kind that is not used here."""
    members = {name: jwk[name] for name in _MEMBERS[jwk["kty"]]}
    return pack(hashlib.sha256(json.dumps(members, separators=(",", ":"), sort_keys=True).encode()).digest())


def is_thumbprint(text: str) -> bool:
    return _FORM.fullmatch(text) is not None
