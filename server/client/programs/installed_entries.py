"""What we put into which file: the words and what stood there before, so that taking them out leaves the file as it was.

Lost, it costs only that: an entry is then known by its looks, and taken out as a person would.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from server.client.client_errors import TokenFileError
from server.lib.private_file import MAX_FILE, PrivateFile

FORMAT: Final = 1


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    program: str
    file: str
    name: str
    url: str
    put: str = ""
    replaced: str = ""
    made_file: bool = False

    @property
    def key(self) -> str:
        return f"{self.file} {self.name}"


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    installed: dict[str, Installed]


class InstalledEntries:
    def __init__(self, directory: Path) -> None:
        self._file = PrivateFile(directory, "installed.json", kept="records", refused=TokenFileError)

    def of(self, file: Path) -> dict[str, Installed]:
        """Return what we put into this file, by name, oldest first."""
        return {each.name: each for each in self._read().values() if each.file == str(file)}

    def all(self) -> list[Installed]:
        return list(self._read().values())

    def keep(self, file: Path, records: Sequence[Installed]) -> None:
        """Make these, oldest first, all that there is of this file."""
        self._file.make_directory()
        with self._file.lock().held():
            before = self._read()
            after = {key: each for key, each in before.items() if each.file != str(file)}
            after |= {each.key: each for each in records}
            encoded = msgspec.json.encode(_File(version=FORMAT, installed=after))
            self._file.replace(msgspec.json.format(encoded, indent=2) + b"\n")

    def _read(self) -> dict[str, Installed]:
        data = self._file.load()
        if data is None or len(data) > MAX_FILE:
            return {}
        try:
            return msgspec.json.decode(data, type=_File).installed
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return {}
