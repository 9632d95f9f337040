"""The wallet of whoever sits here: where its key is, and what may be spent of it. A file beside the token file, kept the same way; the key
is not in it.

What the limits mean is in server/payments/buyer; loading this loads nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from server.client.client_errors import ClientError, TokenFileError
from server.lib.private_file import MAX_FILE, PrivateFile

FORMAT: Final = 1
KEY_FILE: Final = "wallet.key"


class WalletError(ClientError):
    """There is no wallet, or its settings are not as they must be."""


class WalletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """As they were typed and found to be good. Empty: not set, and then nothing is paid."""

    version: int = FORMAT
    key: str = ""  # env:NAME or file:/path
    per_call: str = ""
    per_day: str = ""
    per_deposit: str = ""  # as a call, where it is not set
    confirm_above: str = "$0"
    networks: tuple[str, ...] = ()
    payees: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()


class WalletFile:
    def __init__(self, directory: Path) -> None:
        self._file = PrivateFile(directory, "wallet.json", kept="limits", refused=TokenFileError)
        self.directory = directory
        self.path = self._file.path

    @property
    def usual_key_file(self) -> Path:
        return self.directory / KEY_FILE

    def load(self) -> WalletSettings:
        data = self._file.load()
        if data is None:
            return WalletSettings()
        try:
            if len(data) > MAX_FILE:
                raise msgspec.ValidationError
            found = msgspec.json.decode(data, type=WalletSettings)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise WalletError(
                f"{self.path} is damaged", hint="mend it, or move it away and set the limits again"
            ) from None
        if found.version > FORMAT:
            raise WalletError(f"{self.path} was written by a newer ostiary", hint="use that one")
        return found

    def change(self, change: Callable[[WalletSettings], WalletSettings]) -> WalletSettings:
        """What `change` made of it; durable when it returns."""
        self.make_directory()
        with self._file.lock().held():
            before = self.load()
            after = change(before)
            if after != before:
                self._file.replace(msgspec.json.format(msgspec.json.encode(after), indent=2) + b"\n")
            return after

    def make_directory(self) -> None:
        self._file.make_directory()
