"""A lock between processes: flock on a file of its own. The lock ends with the process that holds it, however that dies.

Lock files are never removed: removing one while somebody waits on it would let two in.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shlex import quote
from typing import Protocol

from server.lib.own_files import open_lock_file

# What is done under a lock takes milliseconds (a file) or one request (a refresh): beyond this, the holder is stuck.
WAIT_SECONDS = 45.0
PAUSE_SECONDS = 0.02


class FileRefusal(Protocol):
    """The kind of error that those who keep something in a file raise about it."""

    def __call__(self, message: str, *, hint: str | None = None) -> Exception: ...


class FileLock:
    def __init__(self, path: Path, *, refused: FileRefusal, elsewhere: str) -> None:
        """Prepare the lock without taking it. `elsewhere` tells people how to choose a directory that can be locked."""
        self._path = path
        self._refused = refused
        self._elsewhere = elsewhere
        self._fd: int | None = None

    def acquire_nowait(self) -> bool:
        """Try to take the lock, and return whether it was free. Raise `refused` if this file system cannot lock."""
        if self._fd is not None:
            raise RuntimeError("this lock is held by this very object")
        try:
            fd = open_lock_file(self._path)
        except OSError as error:
            raise self._refused(
                f"{self._path} cannot be used as a lock: {(error.strerror or 'unknown error').lower()}"
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError as error:
            os.close(fd)
            raise self._refused(
                f"the file system of {self._path.parent} cannot lock: {error.strerror}",
                hint=f"{self._elsewhere} to a directory on a local disk",
            ) from None
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)  # closing the only descriptor lets go
            self._fd = None

    @contextmanager
    def held(self) -> Generator[None, None, None]:
        """Hold the lock, waiting for it in this thread."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.acquire_nowait():
            if time.monotonic() >= deadline:
                raise self._stuck()
            time.sleep(PAUSE_SECONDS)
        try:
            yield
        finally:
            self.release()

    @asynccontextmanager
    async def held_async(
        self, sleep: Callable[[float], Awaitable[object]] | None = None
    ) -> AsyncGenerator[None, None]:
        """Hold the lock, waiting for it without blocking other tasks; waiting may be cancelled."""
        if sleep is None:
            import trio  # for whoever has no event loop it would be the longest part of the start

            sleep = trio.sleep
        for _ in range(int(WAIT_SECONDS / PAUSE_SECONDS)):
            if self.acquire_nowait():
                break
            await sleep(PAUSE_SECONDS)
        else:
            raise self._stuck()
        try:
            yield
        finally:
            self.release()

    def _stuck(self) -> Exception:
        return self._refused(
            f"another process has held {self._path} for {WAIT_SECONDS:.0f} seconds",
            hint=f"look for it with `fuser {quote(str(self._path))}`",
        )
