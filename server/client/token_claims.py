"""What an access token says of itself, for showing to its owner. Nothing is verified, and nothing is decided by it."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from server.lib.json_objects import decode_object
from server.lib.secret import Secret

SHOWN = ("sub", "client_id", "scope", "sid", "iss", "aud", "exp", "iat")


def read_claims(token: Secret) -> dict[str, Any]:
    """The plain claims of a JWT (RFC 9068 §2.2); empty for a token that is none."""
    claims = read_payload(token.reveal())
    return {name: claims[name] for name in SHOWN if isinstance(claims.get(name), str | int)}


def read_payload(text: str) -> dict[str, Any]:
    """Whatever a JWT says; empty for what is none."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        body = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return {}
    return decode_object(body) or {}
