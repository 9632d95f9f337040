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


class CutLine(bytes):
    """The first and the last bytes of a line that was too long to be held, with a line break between the two."""


class LineFraming:
    """The lines of a stream of bytes. One unfinished line at most is held."""

    def __init__(self, limit: int, *, ends: int = 0, most: int = 0) -> None:
        """Begin with nothing held. `ends`: of a line that is too long so many bytes of either end are kept, unless it is longer than `most`."""
        self._limit = limit
        self._ends = ends
        self._most = most
        self._held: list[bytes] = []  # pieces of the unfinished line
        self._size = 0  # of those together
        self._cut: CutLine | None = None  # the unfinished line, if it is not held
        self._passed = 0  # bytes of that

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Return the lines that are whole by now, without their ends. Raises `BrokenLine` where one is too long; who feeds no
        more than the limit at a time loses no line before that one."""
        if self._cut is not None:
            return self._pass_over(data)
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
            return self._cut_off(lines)
        return lines

    def _cut_off(self, lines: list[bytes]) -> Sequence[bytes]:
        """Put in the place of each line that is too long what is kept of it."""
        if not self._ends:
            raise BrokenLine(f"a line is longer than {self._limit} bytes")
        if self._size > self._limit:
            self._cut, self._passed = self._ends_of(*self._held), self._size
            self._held.clear()
            self._size = 0
        return [line if len(line) <= self._limit else self._ends_of(line) for line in lines]

    def _pass_over(self, data: bytes) -> Sequence[bytes]:
        assert self._cut is not None
        rest, end, more = data.partition(b"\n")
        self._passed += len(rest)
        if self._passed > self._most:
            raise BrokenLine(f"a line is longer than {self._most} bytes")
        head, _, tail = self._cut.partition(b"\n")
        self._cut = CutLine(b"%s\n%s" % (head, (tail + rest)[-self._ends :]))
        if not end:
            return ()
        cut, self._cut = self._cut, None
        return [cut, *self.feed(more)]

    def _ends_of(self, *pieces: bytes) -> CutLine:
        head = tail = b""
        for piece in pieces:
            head += piece[: self._ends - len(head)]
            tail = (tail + piece)[-self._ends :]
        return CutLine(b"%s\n%s" % (head, tail))
