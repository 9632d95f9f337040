"""Servers under names of one's own: `ostiary mcp add door https://…`, and from then on `door` stands for the URL.

A file beside the token file, kept the same way; there is nothing secret in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from server.client.address import complete
from server.client.client_errors import ClientError, TokenFileError
from server.lib.private_file import MAX_FILE, PrivateFile
from server.lib.shortened import short_name

FORMAT: Final = 1
# No dot, no colon and not only digits: a name is never mistaken for a host or a port.
_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9][a-z0-9_-]{0,47}")
# Means this machine, everywhere.
RESERVED: Final = frozenset({"localhost"})


class PlacesError(ClientError):
    """A name or the list of names is not as it must be."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    servers: dict[str, str]


def check_name(name: str) -> str:
    """`name`, if it may be one. Raises `PlacesError`."""
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise PlacesError(
            f"“{short_name(name)}” cannot be the name of a server",
            hint="small letters, digits, - and _; at least one letter, at most 48 in all",
        )
    return name


class Places:
    def __init__(self, directory: Path) -> None:
        self._file = PrivateFile(directory, "servers.json", kept="servers", refused=TokenFileError)
        self.path = self._file.path

    def all(self) -> dict[str, str]:
        return self._decode(self._file.load())

    def get(self, name: str) -> str | None:
        """The address of that name. What cannot be a name is not looked for."""
        return self.all().get(name) if _NAME.fullmatch(name) else None

    def put(self, name: str, url: str) -> str | None:
        """The address that had the name before, if any. Durable when it returns."""
        check_name(name)
        before = self._change(lambda kept: {**kept, name: url})
        return before.get(name)

    def drop(self, name: str) -> str | None:
        """The address that had the name, or None for a name that nobody had."""
        before = self._change(lambda kept: {each: url for each, url in kept.items() if each != name})
        return before.get(name)

    def _change(self, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        self._file.make_directory()
        with self._file.lock().held():
            before = self._decode(self._file.load())
            after = change(before)
            if after != before:
                encoded = msgspec.json.encode(_File(version=FORMAT, servers=dict(sorted(after.items()))))
                self._file.replace(msgspec.json.format(encoded, indent=2) + b"\n")
            return before

    def _decode(self, data: bytes | None) -> dict[str, str]:
        if data is None:
            return {}
        try:
            if len(data) > MAX_FILE:
                raise msgspec.ValidationError
            found = msgspec.json.decode(data, type=_File)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise PlacesError(
                f"{self.path} is damaged", hint="mend it, or move it away and add the servers again"
            ) from None
        if found.version > FORMAT:
            raise PlacesError(f"{self.path} was written by a newer ostiary", hint="use that one")
        # Whoever edited the file by hand may not send us where a typed address could not.
        return {name: complete(url).url for name, url in found.servers.items() if _NAME.fullmatch(name)}
