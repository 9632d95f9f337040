"""Lines on their way to an agent's process. A line goes straight into the pipe where there is room; else it waits for a task
that writes whatever waits at once, and who has more to say waits for room in turn.

A line that is taken is written whole, whatever becomes of who gave it: half a line would break all that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from server.lib.line_peer import Inlet

WAITING: Final = 16  # lines, besides the batch that is being written; the pipe itself holds many small ones
BATCH_BYTES: Final = 64 * 1024  # written at once; a pipe holds no more


class LineOutbox:
    """A queue in front of a pipe. `run` is for one task, the others for any. Lines to a process that has ended are taken, and go nowhere: its
    calls are told of its end."""

    def __init__(self, pipe: Inlet, broken: Callable[[], None]) -> None:
        """Begin with nothing waiting. `broken` is called when nobody reads any more."""
        self._pipe = pipe
        self._broken = broken
        self._queue, self._waiting = trio.open_memory_channel[bytes | memoryview](WAITING)
        # Nothing waits, and nothing is half written.
        self._idle = True

    def put(self, line: bytes) -> bool:
        """Take a line; False: there is no room for it now, and it was not taken."""
        rest: bytes | memoryview = line
        if self._idle:
            try:
                written = self._pipe.write_some(line)
            except trio.BrokenResourceError:
                self._broken()
                return True
            if written == len(line):
                return True
            rest = memoryview(line)[written:]
            self._idle = False  # the queue is empty, so there is room for the rest
        try:
            self._queue.send_nowait(rest)
        except trio.WouldBlock:
            return False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return True
        return True

    async def send(self, line: bytes) -> None:
        """Wait until there is room; in the order of the callers. Cancelled: the line was not taken."""
        if not self.put(line):
            try:
                await self._queue.send(line)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def run(self) -> None:
        """Write what waits, until nobody reads any more or it is closed."""
        with self._waiting:
            try:
                async for line in self._waiting:
                    await self._write(self._with_more(line))
                    del line  # which may be large, and the next one may be long in coming
                    self._idle = self._waiting.statistics().current_buffer_used == 0
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._broken()

    def close(self) -> None:
        self._idle = False
        self._queue.close()

    def _with_more(self, line: bytes | memoryview) -> bytes | memoryview:
        """Return the line, and those behind it as far as they fill a batch."""
        lines, size = [line], len(line)
        while size < BATCH_BYTES:
            try:
                lines.append(self._waiting.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
            size += len(lines[-1])
        return b"".join(lines) if len(lines) > 1 else line

    async def _write(self, data: bytes | memoryview) -> None:
        with memoryview(data) as view:
            written = 0
            while written < len(view):
                await self._pipe.room()
                written += self._pipe.write_some(view[written:])
