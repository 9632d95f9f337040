"""Work that outlives the request that began it: a call of the handshake era goes on when its client has left.

Here such work has a nursery to live in. Bounding it and cancelling it is up to the code that started it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from server.lib.log.logger import Logger
from server.mcp.loads import Load

Job: TypeAlias = Callable[[], Awaitable[None]]


class BackgroundTasks:
    """`start` may be called before `run` is; what is started is run once that is."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._waiting = deque[tuple[Job, Load | None]]()
        self._wake = trio.Event()
        self._at_work = 0
        self._idle = trio.Event()
        self._idle.set()

    def start(self, job: Job, load: Load | None = None) -> None:
        """Never waits. What the job raises is logged. `load`: held until it has ended."""
        self._waiting.append((job, load.hold() if load is not None else None))
        self._at_work += 1
        self._idle = trio.Event() if self._idle.is_set() else self._idle
        self._wake.set()

    def count(self) -> int:
        return self._at_work

    async def run(self) -> None:
        """For ever. Cancelling it cancels everything that is being done."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._waiting:
                    nursery.start_soon(self._do, *self._waiting.popleft())

    async def wait_idle(self) -> None:
        """Returns when nothing is being done: at the end of a drain, which gives it a deadline."""
        await self._idle.wait()

    async def _do(self, job: Job, load: Load | None) -> None:
        try:
            await job()
        except Exception:
            self._log.exception("crew.job_failed")
        finally:
            if load is not None:
                load.let_go()
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()
