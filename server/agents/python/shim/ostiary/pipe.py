"""JSON lines over two file descriptors: out with a bounded queue, in without ever blocking the loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from .plain import utf8

# The protocol's own limit for a line, in bytes.
MAX_LINE = 8 * 1024 * 1024
# What may wait for a slow reader before those who write have to wait as well. A pipe holds 64 KiB besides.
HIGH_WATER = 256 * 1024
_CHUNK = 256 * 1024


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder()


class LineTooLong(ValueError):
    pass


def decoded(line: bytes) -> Any:
    """Raises `ValueError`."""
    text = line.decode("utf-8")
    event, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("a line holds more than one message")
    return event


def encoded(event: Any) -> bytes:
    """Raises `LineTooLong`, and `ValueError` at NaN and infinity."""
    text = _ENCODER.encode(event)
    line = utf8(text) + b"\n"
    if len(line) > MAX_LINE:
        raise LineTooLong(
            f"this is {len(line) / (1 << 20):.1f} MiB, and a message may have {MAX_LINE >> 20} MiB: send less at once"
        )
    return line


class Outgoing:
    """`write` is for any thread, `wait_for_room` for any but the loop's, the rest for that one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, broken: Callable[[], None]) -> None:
        """`broken` is called when nobody reads any more, from any thread."""
        self._loop = loop
        self._fd = fd
        self._broken = broken
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._buffer = bytearray()
        self._waiting: list[asyncio.Future[None]] = []
        self.closed = False
        os.set_blocking(fd, False)

    def write(self, line: bytes) -> None:
        with self._lock:
            if self.closed:
                return
            if self._buffer:
                self._buffer += line
                return
            sent = self._send(line)
            if sent == len(line):
                return
            self._buffer += memoryview(line)[sent:]
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._watch)

    def wait_for_room(self) -> None:
        """As `drain`, in a thread. Nobody waits for a reader that has gone."""
        with self._room:
            while len(self._buffer) > HIGH_WATER and not self.closed:
                self._room.wait()

    async def drain(self) -> None:
        """Waits until there is room again."""
        while len(self._buffer) > HIGH_WATER:
            room = self._loop.create_future()
            self._waiting.append(room)
            await room

    def close(self, seconds: float) -> None:
        """Sends what is left, for at most so long."""
        self._loop.remove_writer(self._fd)
        end = time.monotonic() + seconds
        with self._lock:
            while self._buffer and not self.closed:
                left = end - time.monotonic()
                if left <= 0 or not select.select([], [self._fd], [], left)[1]:
                    break
                del self._buffer[: self._send(self._buffer)]
            self.closed = True
            self._room.notify_all()

    def _watch(self) -> None:
        if self._buffer and not self.closed:
            self._loop.add_writer(self._fd, self._continue)

    def _continue(self) -> None:
        with self._lock:
            del self._buffer[: self._send(self._buffer)]
            if not self._buffer or self.closed:
                self._loop.remove_writer(self._fd)
            if len(self._buffer) <= HIGH_WATER:
                self._room.notify_all()
        if len(self._buffer) <= HIGH_WATER:
            for room in self._waiting:
                if not room.done():
                    room.set_result(None)
            self._waiting.clear()

    def _send(self, data: Any) -> int:
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            # Nobody reads any more: what is left has no address.
            self.closed = True
            self._buffer.clear()
            self._room.notify_all()
            self._broken()
            return len(data)


class Incoming:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held: list[bytes] = []  # pieces of a line that has no end yet
        self._size = 0
        os.set_blocking(fd, False)

    def read(self) -> list[bytes] | None:
        """The lines that are complete by now; None at the end. Raises `LineTooLong`."""
        try:
            chunk = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        if not chunk:
            return None
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._held:
            lines[0] = b"".join((*self._held, lines[0]))
            self._held.clear()
            self._size = 0
        if rest:
            self._held.append(rest)
            self._size += len(rest)
            if self._size > MAX_LINE:
                raise LineTooLong("the server sent a line without an end")
        return lines
