"""Lines in and out of file descriptors: what a stdio transport is made of. What is in a line is not looked at.

Reading and writing are done by threads on descriptors left as they are: `O_NONBLOCK` would be set for everybody who
shares the open file (on a terminal that is stderr, and the shell), and does nothing for plain files.
"""

from __future__ import annotations

import os
import select
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

import msgspec
import trio

# What one read may bring; a pipe holds 64 KiB.
CHUNK = 64 * 1024
# The longest message that anybody may send in one line.
MAX_LINE = 8 * 1024 * 1024

Read = Callable[[], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TooLong:
    """Stands for a line that was not kept."""


class LineSplitter(msgspec.Struct):
    """Chunks in, lines out, without their ends. A line beyond the limit comes out as one `TooLong`, however long it is."""

    limit: int = MAX_LINE
    _pieces: list[bytes] = msgspec.field(default_factory=list[bytes])
    _size: int = 0
    _skipping: bool = False

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        *ends, rest = chunk.split(b"\n")
        found: list[bytes | TooLong] = []
        for end in ends:
            self._add(end, found)
            if not self._skipping:
                found.append(b"".join(self._pieces))
            self._pieces, self._size, self._skipping = [], 0, False
        self._add(rest, found)
        return found

    def end(self) -> bytes:
        """What came after the last line end."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return rest

    def _add(self, piece: bytes, found: list[bytes | TooLong]) -> None:
        if self._skipping or not piece:
            return
        self._size += len(piece)
        if self._size > self.limit:
            self._pieces, self._skipping = [], True
            found.append(TooLong())
        else:
            self._pieces.append(piece)


async def read_lines(read: Read, *, limit: int = MAX_LINE) -> AsyncGenerator[bytes | TooLong, None]:
    """Every line until `read` returns nothing; also a last one that nobody ended."""
    splitter = LineSplitter(limit)
    while chunk := await read():
        for line in splitter.feed(chunk):
            yield line
    if rest := splitter.end():
        yield rest


def reader(fd: int) -> Read:
    """Reads from `fd`. A read that is cancelled leaves its thread behind, and what that reads is lost: for the end only."""
    limiter = trio.CapacityLimiter(1)

    def read_some() -> bytes:
        while True:
            try:
                return os.read(fd, CHUNK)
            except BlockingIOError:  # whoever opened it did not want to block
                _wait(fd, select.POLLIN)

    async def read() -> bytes:
        return await trio.to_thread.run_sync(read_some, limiter=limiter, abandon_on_cancel=True)

    return read


def writer(fd: int) -> Write:
    """Writes a line to `fd`, as slowly as its reader reads. Only for one task: lines are not kept apart here.

    A write that is cancelled may have put out a part of its line: for the end only.
    """
    limiter = trio.CapacityLimiter(1)

    def write_all(data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                _wait(fd, select.POLLOUT)

    async def write(line: bytes) -> None:
        await trio.to_thread.run_sync(write_all, line + b"\n", limiter=limiter, abandon_on_cancel=True)

    return write


def _wait(fd: int, event: int) -> None:
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()
