"""What the three editors have in common: a change of a text in one place, and the words for a file that is not understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from server.client.client_errors import ClientError


class UnreadableSettings(ClientError):
    """The file is not what its program would read, or not in a shape that can be changed safely."""


class TextEdit(msgspec.Struct, frozen=True, kw_only=True):
    """`start` to `end` of a text becomes `new`."""

    start: int
    end: int
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


class Editor(Protocol):
    """Every method raises `UnreadableSettings`. `key` is the table of servers at the top of the file."""

    def read(self, text: str, key: str) -> Mapping[str, Mapping[str, Any]]:
        """The servers that the file has."""
        ...

    def put(self, text: str, key: str, name: str, entry: Mapping[str, Any]) -> TextEdit:
        """`name` added, or in the place of the one that is there."""
        ...

    def drop(self, text: str, key: str, name: str) -> TextEdit: ...

    def alone(self, key: str, name: str, entry: Mapping[str, Any]) -> str:
        """What a person would write into an empty file."""
        ...


def newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
