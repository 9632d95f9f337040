"""Secrets in the store: AES-GCM under a subkey of the key file, bound to the row that they are in."""

from __future__ import annotations

import base64
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES: Final = 12


class CannotUnseal(Exception):
    """A key in the store was sealed with another key file."""


def seal(seal_key: bytes, secret: bytes, *, nonce: bytes, bound_to: str) -> str:
    box = AESGCM(seal_key).encrypt(nonce, secret, bound_to.encode())
    return base64.b64encode(nonce + box).decode()


def unseal(seal_key: bytes, sealed: str, *, bound_to: str, what: str) -> bytes:
    raw = base64.b64decode(sealed)
    try:
        return AESGCM(seal_key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], bound_to.encode())
    except InvalidTag:
        raise CannotUnseal(f"{what} was sealed with another key file") from None
