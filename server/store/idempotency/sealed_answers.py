"""Answers of calls as they are kept so that they can be given again: sealed, each bound to the row of its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from server.lib.sealing import Sealer
from server.mcp.result_encoding import ToolResult

KEY_PURPOSE: Final = "till-answers"  # of those that were paid for
# A larger one cannot be given again, and so cannot be sold. With its receipt it still fits in what a task may keep.
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024 - 64 * 1024

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ToolResult).decode


class AnswerTooLarge(Exception):
    """It cannot be kept."""


class AnswerVault:
    def __init__(self, key: bytes, entropy: Callable[[int], bytes]) -> None:
        self._sealer = Sealer(key, entropy)

    def seal(self, charge_id: str, answer: ToolResult) -> bytes:
        """Raises `AnswerTooLarge`, and what msgspec raises for what JSON does not have."""
        text = _encode(answer)
        if len(text) > MAX_ANSWER_BYTES:
            raise AnswerTooLarge
        return self.seal_bytes(charge_id, text)

    def open(self, charge_id: str, sealed: bytes) -> ToolResult:
        """Raises `ValueError` for what was not sealed here for this charge."""
        return _decode(self.open_bytes(charge_id, sealed))

    def seal_bytes(self, name: str, text: bytes) -> bytes:
        return self._sealer.seal(text, name.encode())

    def open_bytes(self, name: str, sealed: bytes) -> bytes:
        return self._sealer.open(sealed, name.encode())
