"""Bytes that only whoever has the key can read or make: AES-GCM with a fresh nonce in front, bound to the place that they stand in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# Random: good for far more than is sealed with one key (2**32).
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16


class NotSealedHere(ValueError):
    """With another key, for another place, or altered since."""


class Sealer:
    def __init__(self, key: bytes, entropy: Callable[[int], bytes]) -> None:
        self._cipher = AESGCM(key)
        self._entropy = entropy

    def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        nonce = self._entropy(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, bound_to)

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Raises `NotSealedHere`."""
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError):  # the latter for what is shorter than a nonce
            raise NotSealedHere("this was not sealed here") from None
