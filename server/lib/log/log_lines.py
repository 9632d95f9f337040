"""Where the lines of the log go: whole ones, in order, and never at the expense of those who are served.

While a server runs (`held`), a thread of its own writes them, for a pipe whose reader has stopped reading holds up whoever writes
into it. What it cannot write in time waits, within bounds; beyond them lines are dropped, counted, and missed in the log as
soon as it flows again. Before and afterwards there is nobody to hold up, and each line is written by its caller.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import RLock, Thread
from typing import Final, TextIO

# What may wait while nobody reads: some seconds of a busy server, and little memory.
LINES_HELD: Final = 4096
CHARACTERS_HELD: Final = 1024 * 1024
# Ordinary lines are written together: at thousands of calls a second the writing costs more than the rest of a line. A busy
# server has so many of them sooner.
WRITTEN_EVERY_SECONDS: Final = 0.1
LINES_AT_ONCE: Final = 512
# What is left to the last lines when the server ends.
LAST_LINES_SECONDS: Final = 1.0

# What the thread is told.
_SOON: Final = 0
_NOW: Final = 1
_LAST: Final = 2


class Lines:
    """A line that nobody can take (whoever read the log has gone or is stuck, its disk is full) is dropped: callers are served
    all the same. May be used by any thread."""

    def __init__(self, out: TextIO) -> None:
        self.dropped = 0  # lines, since the start
        self.stuck = False  # the last lines could not be written, for whoever reads does not
        self.words_for_lost: Callable[[int], str] = lambda _: ""  # set by whoever knows how lines look
        self._out = out
        self._lock = RLock()  # a finalizer may log in the midst of it
        self._waiting: list[str] = []
        self._characters = 0
        self._unmissed = 0  # dropped, and not yet said
        self._told: SimpleQueue[int] | None = None  # None: there is no thread

    @contextmanager
    def held(self) -> Generator[None]:
        told = self._told = SimpleQueue[int]()
        # A daemon: one that is stuck must not keep the process from ending.
        thread = Thread(target=self._write_on, args=(told,), name="log", daemon=True)
        thread.start()
        try:
            yield
        finally:
            told.put(_LAST)
            thread.join(LAST_LINES_SECONDS)
            self.stuck = thread.is_alive()
            self._told = None

    def info(self, line: str) -> bool:
        """Whether there was room for it."""
        with self._lock:
            waiting = self._waiting
            if len(waiting) >= LINES_HELD or self._characters + len(line) > CHARACTERS_HELD:
                self.dropped += 1
                self._unmissed += 1
                return False
            waiting.append(line)
            self._characters += len(line)
            if self._told is None:
                if not self.stuck:
                    self._write_what_waits()
            elif len(waiting) == 1:
                self._told.put(_SOON)
            elif len(waiting) == LINES_AT_ONCE:
                self._told.put(_NOW)
            return True

    def warning(self, line: str) -> None:
        """Written without delay, with all that came before."""
        if self.info(line) and self._told is not None:
            self._told.put(_NOW)

    def _write_on(self, told: SimpleQueue[int]) -> None:
        word = _SOON
        while word != _LAST:
            word = told.get()
            if word == _SOON:
                with suppress(Empty):
                    word = told.get(timeout=WRITTEN_EVERY_SECONDS)
            self._write_what_waits()

    def _write_what_waits(self) -> None:
        with self._lock:
            lines, self._waiting, self._characters = self._waiting, [], 0
            unmissed, self._unmissed = self._unmissed, 0
        missed = self.words_for_lost(unmissed) if unmissed else ""
        if not lines and not missed:
            return
        try:
            _write(self._out, "".join(lines) + missed)
        except OSError:
            with self._lock:
                self.dropped += len(lines)
                self._unmissed += len(lines) + unmissed


def _write(out: TextIO, text: str) -> None:
    """Straight to the descriptor: what a thread that is stuck has locked inside of `out`, the interpreter would wait for in vain
    when it ends."""
    try:
        descriptor = out.fileno()
    except OSError:  # a text in memory
        out.write(text)
        return
    out.flush()
    data = memoryview(text.encode(out.encoding or "utf-8", out.errors or "strict"))
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # somebody who shares it has set it so
            select.select((), (descriptor,), ())
