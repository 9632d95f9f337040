"""The seals of rows that give rights (`auth/values/sealed_rows.py`): their key, and the rows that were found not to be as they were sealed.

One object serves all connections of a store, from their threads. Nothing of a table is here.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

# Rows that are told of in the life of a process: whoever alters more has been found out.
MOST_TOLD: Final = 1_000
# Of a key that somebody else may have made up.
KEY_TOLD: Final = 200


class Seal:
    """The key of the seals, which comes from that of the audit chain, so that no store has one without the other."""

    __slots__ = ("_key", "_told", "_untold")

    def __init__(self, chain_key: bytes) -> None:
        self._key = _key_from(chain_key)
        self._told: dict[tuple[str, str], None] = {}
        self._untold: dict[tuple[str, str], None] = {}

    def is_of(self, chain_key: bytes) -> bool:
        return hmac.compare_digest(self._key, _key_from(chain_key))

    def of(self, said: bytes) -> str:
        return hmac.digest(self._key, said, "sha256").hex()

    def note(self, table: str, key: str) -> None:
        row = (table, key[:KEY_TOLD])
        if row not in self._told and len(self._told) < MOST_TOLD:
            self._told[row] = self._untold[row] = None

    def take(self) -> Sequence[tuple[str, str]]:
        """Return those that nobody has asked for yet."""
        taken = list(self._untold)
        for row in taken:
            del self._untold[row]
        return taken


def _key_from(chain_key: bytes) -> bytes:
    return hmac.digest(chain_key, b"seals of rows/1", "sha256")
