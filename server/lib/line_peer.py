"""Another program with which lines are exchanged, over pipes or a TCP connection: its ends, and how bytes become lines."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol


class Inlet(Protocol):
    """The end that we write to. A write goes as far as there is room; waiting for room is a step of its own."""

    def write_some(self, data: bytes | memoryview) -> int:
        """Return how many bytes there was room for. Raises `trio.BrokenResourceError`."""
        ...

    async def room(self) -> None: ...

    async def aclose(self) -> None: ...


class Outflow(Protocol):
    """The end that we read from. A read takes what is there; waiting for more is a step of its own."""

    def read_some(self) -> bytes | None:
        """Return what there is to read: None for nothing yet, no bytes at the end."""
        ...

    def news(self) -> Awaitable[None]: ...


class Peer(Protocol):
    """The program at the other end, and how it is ended. One task waits for each pipe at a time."""

    @property
    def input(self) -> Inlet: ...

    @property
    def output(self) -> Outflow: ...

    async def listen(self) -> None:
        """Take in what it says besides; return when it says no more."""
        ...

    async def ended(self) -> str:
        """Wait for its end, and tell of it in a few words."""
        ...

    def last_words(self) -> str: ...

    async def aclose(self) -> None:
        """End it, in bounded time, whatever is cancelled."""
        ...


class BrokenLine(Exception):
    """A breach of the protocol by the other end; the text says how, and holds nothing that it sent."""


class LineFraming:
    """The lines of a stream of bytes. One unfinished line at most is held."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []  # pieces of the unfinished line
        self._size = 0  # of those together

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Return the lines that are whole by now, without their ends. Raises `BrokenLine` where one is too long; who feeds no
        more than the limit at a time loses no line before that one."""
        lines = data.split(b"\n")
        rest = lines.pop()
        may_be_too_long = self._size + len(data) > self._limit
        if lines and self._held:
            lines[0] = b"".join((*self._held, lines[0]))
            self._held.clear()
            self._size = 0
        if rest:
            self._held.append(rest)
            self._size += len(rest)
        if may_be_too_long and max((self._size, *map(len, lines))) > self._limit:
            raise BrokenLine(f"a line is longer than {self._limit} bytes")
        return lines
