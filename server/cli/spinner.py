"""What stands on the last line of a terminal while nothing is heard: how long that has taken already. It gives way to whatever else is
shown there, and leaves nothing behind."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from server.cli import terminal
from server.cli.terminal import StatusLine

T = TypeVar("T")

SILENT_SECONDS: Final = 1.0
TURN_SECONDS: Final = 0.1
_TURNS: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_TURNS: Final = "|/-\\"


class Spinner:
    """Not shown while `status` is held (somebody is asked something there), nor once it shows progress."""

    def __init__(self, status: StatusLine, what: str) -> None:
        self._status = status
        self._what = what
        self._turns = _TURNS if terminal.can_draw(sys.stderr) else _PLAIN_TURNS

    async def during(self, work: Callable[[], Awaitable[T]]) -> T:
        if not self._status.live:
            return await work()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._turn)
            try:
                return await work()
            finally:
                nursery.cancel_scope.cancel()
                self._status.clear()

    async def _turn(self) -> None:
        began = trio.current_time()
        await trio.sleep(SILENT_SECONDS)
        turn = 0
        while True:
            if self._status.free:
                seconds = int(trio.current_time() - began)
                self._status.show(
                    f"{self._turns[turn % len(self._turns)]} {self._what}  {seconds} s", passing=True
                )
            turn += 1
            await trio.sleep(TURN_SECONDS)
