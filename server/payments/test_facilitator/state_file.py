"""The coins in a file, so that they are as they were after a restart. Written whole beside the old one, and then put in its place."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from server.lib.own_files import open_lock_file, replace_file
from server.payments.test_facilitator.coins import Coins, CoinState

# Several times what the most that is kept comes to.
_MOST_BYTES: Final = 256 * 1024 * 1024


class StateUnusable(Exception):
    """The file cannot be read, is somebody else's, or another process has it; says so, and what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class StateFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = trio.Lock()
        self._saved = -1  # which of the changes are in it

    @contextmanager
    def held(self) -> Generator[CoinState]:
        """What is in it; the file is this process's meanwhile. Raises `StateUnusable`."""
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            descriptor = open_lock_file(lock)
        except OSError as error:
            raise StateUnusable(f"cannot make {lock}: {(error.strerror or '').lower()}") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StateUnusable(
                    f"{self.path} is in use by another facilitator", hint="end it first, or name another file"
                ) from None
            yield self._read()
        finally:
            os.close(descriptor)

    async def save(self, coins: Coins) -> None:
        """Returns when the file has all that was done until now: those who come together are served by one writing. Raises
        `OSError`; then the file is as it was."""
        wanted = coins.changes
        async with self._turn:
            if self._saved >= wanted:
                return
            changes, data = coins.changes, msgspec.json.encode(coins.state())
            await trio.to_thread.run_sync(replace_file, self.path, data)
            self._saved = changes

    def _read(self) -> CoinState:
        try:
            with self.path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return CoinState()
        except OSError as error:
            raise StateUnusable(f"cannot read {self.path}: {(error.strerror or '').lower()}") from error
        try:
            state = msgspec.json.decode(data, type=CoinState)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise StateUnusable(
                f"{self.path} is no file of test coins",
                hint="name another one, or remove it: the coins are worthless",
            ) from None
        if state.format != CoinState().format:
            raise StateUnusable(f"{self.path} was written by another version", hint="name another file")
        return state
