"""Randomness for jobs. A job may run twice and must do the same both times, so it is handed a seed, not a generator.

The stream is HMAC-SHA-256(seed, counter): as unpredictable as the 32 bytes that the caller drew, and the same on every run.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

SEED_BYTES = 32
IDENTIFIER_BYTES: Final = 20

_ALPHABET: Final = b"abcdefghijklmnopqrstuvwxyz234567"
# Of every byte its letter: 32 divides 256, so they are drawn evenly and none is thrown away.
_LETTERS: Final = _ALPHABET * (256 // len(_ALPHABET))


def identifier(prefix: str, drawn: bytes) -> str:
    """Return a unique identifier: a prefix and 100 random bits, in letters that survive e-mail, shells and double clicks.

    `drawn` are at least `IDENTIFIER_BYTES` random bytes.
    """
    return f"{prefix}_{drawn[:IDENTIFIER_BYTES].translate(_LETTERS).decode()}"


class Entropy:
    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes")
        self._seed = seed
        self._blocks = 0
        self._rest = b""

    def take(self, count: int) -> bytes:
        while len(self._rest) < count:
            self._rest += hmac.digest(self._seed, self._blocks.to_bytes(8, "big"), hashlib.sha256)
            self._blocks += 1
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def letters(self, alphabet: str, count: int) -> str:
        """Draw letters evenly: bytes beyond the last full multiple of the alphabet's length are discarded."""
        limit = 256 - 256 % len(alphabet)
        chosen: list[str] = []
        while len(chosen) < count:
            drawn = self.take(count - len(chosen))
            chosen += [alphabet[byte % len(alphabet)] for byte in drawn if byte < limit]
        return "".join(chosen)

    def token(self) -> str:
        """Draw a secret that cannot be guessed: 256 bits in base64url."""
        return base64.urlsafe_b64encode(self.take(32)).rstrip(b"=").decode()

    def identifier(self, prefix: str) -> str:
        return identifier(prefix, self.take(IDENTIFIER_BYTES))
