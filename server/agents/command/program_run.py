"""One run of a program that is given something, prints something, and ends: from its start to its last byte.

It is over when the program has ended, whatever it started: that ends with it. Cancelled, it is told to end (SIGTERM), and made to
(SIGKILL) two seconds later.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from server.agents.base.child_process import Child, how_it_ended
from server.mcp.call_failures import BackendError

LAST_WORDS_SECONDS: Final = (
    1.0  # for the log, from the end of a program whose error output somebody else still holds
)

_BOUNDS: Final = {
    signal.SIGXCPU: "it took more processor time than it may",
    signal.SIGXFSZ: "it wrote a larger file than it may",
}


class ProgramEnd(msgspec.Struct, frozen=True):
    code: int  # exit status, or minus the number of a signal
    output: bytes
    last_words: tuple[str, ...]  # of what it said besides

    @property
    def how(self) -> str:
        bound = _BOUNDS.get(signal.Signals(-self.code)) if -self.code in _BOUNDS else None
        return bound or how_it_ended(self.code)


async def run_to_end(start: Callable[[], Child], given: bytes, most: int) -> ProgramEnd:
    """Raises `BackendError` where it cannot be started, or prints more than `most` bytes."""
    child = start()
    output, code = _Output(child, most), 0
    try:
        async with trio.open_nursery() as nursery:
            heard = trio.Event()

            async def listen() -> None:
                await child.listen()
                heard.set()

            nursery.start_soon(listen)
            nursery.start_soon(_feed, child, given)
            nursery.start_soon(output.take, nursery.cancel_scope)
            code = await child.exit_code()
            output.drain()
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await heard.wait()
            nursery.cancel_scope.cancel()
        if output.too_much:
            raise BackendError(f"the program printed more than {most // 1024} KiB, and was ended")
        return ProgramEnd(code, b"".join(output.taken), tuple(child.last_lines))
    finally:
        await child.aclose(grace=0)


class _Output:
    def __init__(self, child: Child, most: int) -> None:
        self.taken: list[bytes] = []
        self.too_much = False
        self._child = child
        self._left = most

    async def take(self, everything: trio.CancelScope) -> None:
        """Until its end. Where it is too much, that is the end of everything."""
        while not self.too_much:
            await self._child.output.news()
            if self.drain():
                return
        everything.cancel()

    def drain(self) -> bool:
        """Whatever there is by now; whether that was all."""
        while (data := self._child.output.read_some()) is not None:
            if not data:
                return True
            self._left -= len(data)
            if self._left < 0:
                self.too_much = True
                return False
            self.taken.append(data)
        return False


async def _feed(child: Child, given: bytes) -> None:
    """A program need not read what it is given."""
    try:
        with memoryview(given) as view:
            written = 0
            while written < len(view):
                await child.input.room()
                written += child.input.write_some(view[written:])
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await child.input.aclose()
