"""A Python agent in a thread of this very process, over pipes like any other: for those who debug it, or serve
from source and accept that what it does wrong, the server does wrong.

A thread cannot be ended from outside: it is asked to, and goes with the process at the latest.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

from server.lib.process_pipes import PipeReader, PipeWriter

# To finish once its input has ended. Whoever is stuck in a function of theirs is left behind.
GRACE_SECONDS: Final = 3.0


class Thread:
    """A `Peer`. What the agent prints goes where the server's own output goes."""

    def __init__(self, input: PipeWriter, output: PipeReader, over: trio.Event) -> None:  # noqa: A002
        self.input: Final = input
        self.output: Final = output
        self._over = over

    async def listen(self) -> None:
        await trio.lowlevel.checkpoint()

    def last_words(self) -> str:
        return ""

    async def ended(self) -> str:
        await self._over.wait()
        return "its thread returned"

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            await self.input.aclose()
            with trio.move_on_after(GRACE_SECONDS):
                await self._over.wait()
            await self.output.aclose()


def start_thread(file: Path | None, module: str, *, threads: int, shim: Path) -> Thread:
    """Raises `OSError`."""
    if str(shim) not in sys.path:
        sys.path.append(str(shim))  # last: an agent's own modules come before it
    over, token = trio.Event(), trio.lowlevel.current_trio_token()
    serve: Any = importlib.import_module("ostiary.serve").serve
    reading, our_input = os.pipe()
    try:
        our_output, writing = os.pipe()
    except OSError:
        os.close(reading)
        os.close(our_input)
        raise

    def work() -> None:
        try:
            serve(reading, writing, file=str(file) if file else None, module=module or None, threads=threads)
        finally:
            os.close(reading)
            os.close(writing)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(over.set)

    threading.Thread(target=work, name="agent", daemon=True).start()
    return Thread(PipeWriter(our_input), PipeReader(our_output), over)
