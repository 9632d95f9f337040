"""Jobs that the store could not do when they were due: what they write has happened already. Done in their order, as soon as it can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import trio

from server.lib.log.logger import Logger
from server.lib.shortened import short_reason
from server.store.jobs import MOST_SLOW, JobTooSlow, Store, StoreDb, StoreError, StoreUnavailable

Job: TypeAlias = Callable[[StoreDb], object]
Told: TypeAlias = Callable[[object], None]

AGAIN_SECONDS: Final = 0.25


class _Attempt:
    __slots__ = ("over", "problem")

    def __init__(self) -> None:
        self.over: Final = trio.Event()
        self.problem: StoreUnavailable | None = None


class WriteRetry:
    def __init__(self, store: Store, log: Logger, event: str) -> None:
        """Begin with nothing due. `event` is what the log says of a job that can never be done."""
        self._store = store
        self._log = log
        self._event = event
        self._due: deque[tuple[Job, Told | None]] = deque()
        self._slow = 0
        self._attempt: _Attempt | None = None
        self._more = trio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def owe(self, job: Job, told: Told | None = None) -> None:
        """Do a job later, perhaps twice, that the store could not do now. `told` what it returned, once it is done."""
        self._due.append((job, told))
        self._more.set()

    async def run(self) -> None:
        """Do due jobs until cancelled."""
        try:
            while True:
                if not self._due:
                    self._more = trio.Event()
                    await self._more.wait()
                try:
                    await self.settle()
                except StoreUnavailable:
                    await trio.sleep(AGAIN_SECONDS)
        finally:
            with trio.CancelScope(shield=True):  # bounded by the store, which gives up by itself
                try:
                    await self.settle()
                except StoreError as problem:
                    self._log.warning(self._event, reason=short_reason(problem))

    async def settle(self) -> None:
        """Do all of them. Later callers share the attempt. Raises `StoreUnavailable`: the undone jobs are still due."""
        while self._due:
            attempt = self._attempt
            if attempt is not None:
                await attempt.over.wait()
                if attempt.problem is not None:
                    raise StoreUnavailable(str(attempt.problem), hint=attempt.problem.hint)
                continue
            attempt = self._attempt = _Attempt()
            try:
                await self._do_first()
            except StoreUnavailable as problem:
                attempt.problem = problem
                raise
            finally:
                self._attempt = None
                attempt.over.set()

    async def _do_first(self) -> None:
        job, told = self._due[0]
        try:
            done = await self._store.write(job)
            if told is not None:
                told(done)
        except StoreUnavailable:
            raise
        except JobTooSlow as problem:
            self._slow += 1
            if self._slow < MOST_SLOW:
                raise StoreUnavailable(str(problem)) from problem
            self._log.exception(self._event)
        except Exception:  # nor would it be another time
            self._log.exception(self._event)
        self._slow = 0
        self._due.popleft()
