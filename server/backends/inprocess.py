"""A Python agent in a thread of this very process, over a socket pair instead of pipes: for those who debug it, or serve
from source and accept that what it does wrong, the server does wrong.

A thread cannot be ended from outside: it is asked to, and goes with the process at the latest.
"""

from __future__ import annotations

import importlib
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

# To finish once its input has ended. Whoever is stuck in a function of theirs is left behind.
GRACE_SECONDS: Final = 3.0


class Thread:
    """A `Peer`. What the agent prints goes where the server's own output goes."""

    def __init__(self, stream: trio.SocketStream, over: trio.Event) -> None:
        self.input: Final = stream
        self.output: Final = stream
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
            with suppress(trio.BrokenResourceError):
                await self.input.send_eof()
            with trio.move_on_after(GRACE_SECONDS):
                await self._over.wait()
            await self.input.aclose()


def start_thread(file: Path | None, module: str, *, threads: int, shim: Path) -> Thread:
    """Raises `OSError`."""
    if str(shim) not in sys.path:
        sys.path.append(str(shim))  # last: an agent's own modules come before it
    ours, theirs = socket.socketpair()
    over, token = trio.Event(), trio.lowlevel.current_trio_token()

    serve: Any = importlib.import_module("ostiary.serve").serve

    def work() -> None:
        with theirs:
            try:
                number = theirs.fileno()
                serve(
                    number, number, file=str(file) if file else None, module=module or None, threads=threads
                )
            finally:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(over.set)

    threading.Thread(target=work, name="agent", daemon=True).start()
    return Thread(trio.SocketStream(trio.socket.from_stdlib_socket(ours)), over)
