"""Our ends of the two pipes to an agent's process, without a wait that is not needed: bytes are written and read at once as
far as they go, and only then is the pipe waited for.

The meaning of the bytes is not known here (server/agents/python/agent_lines.py). Lines that wait for room are in server/lib/line_outbox.py.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Final

import trio

READ_BYTES: Final = 64 * 1024  # what a pipe holds


class _PipeEnd:
    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def aclose(self) -> None:
        """Close the end, and tell whoever waits for it. This may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
        await trio.lowlevel.checkpoint()


class PipeWriter(_PipeEnd):
    def write_some(self, data: bytes | memoryview) -> int:
        """Return how many bytes there was room for; 0 where there is none. Raises `trio.BrokenResourceError`."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as error:  # nobody reads any more, or it is closed
            raise trio.BrokenResourceError from error

    async def room(self) -> None:
        """Wait until there is some. Raises `trio.ClosedResourceError`."""
        await trio.lowlevel.wait_writable(self._descriptor)


class PipeReader(_PipeEnd):
    def read_some(self) -> bytes | None:
        """Return None where there is nothing to read yet; no bytes at its end, however it came."""
        try:
            return os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def news(self) -> Awaitable[None]:
        """Wait until there is something to read. Raises `trio.ClosedResourceError`."""
        return trio.lowlevel.wait_readable(self._descriptor)  # noqa: ASYNC105 - awaited by who asks
