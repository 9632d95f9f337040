"""The type of texts that must not be printed by accident."""

from __future__ import annotations

import hmac
from typing import Any


class Secret:
    """A text that must not be printed by accident. To show it, `reveal()` is written."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def encode_secret(value: object) -> Any:
    """Write a secret out, as msgspec's `enc_hook`, where it goes to a file or is sealed."""
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value).__name__)


def decode_secret(wanted: type, value: Any) -> Any:
    """Read a secret, as msgspec's `dec_hook`, which makes its `ValidationError` of the `TypeError`."""
    if wanted is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError(f"no {wanted.__name__}")
