"""Threads for sync functions: as many as are needed at once, up to a limit, and daemons, so that a function that never
returns does not keep the process alive. One that nobody waits for any more does not count: another thread takes its place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Optional

# Functions that ignore that they were cancelled. Beyond this the agent has a fault that more threads do not mend.
MOST_ABANDONED = 64
# Functions that wait at once for what they use of their own server.
MOST_LENT = 64


# What is left to do when the thread counts as free again, if anything: to tell the answer. For who has that may call again
# at once, and would else find the thread busy and start another.
Rest = Optional[Callable[[], None]]


class Job:
    __slots__ = ("over", "run", "started")

    def __init__(self, run: Callable[[], Rest]) -> None:
        self.run = run
        self.started = self.over = False


class Workers:
    """`submit` and `abandon` are called from one thread alone, that of the loop; `lent` from those of jobs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0  # jobs that no thread has taken
        self._count = 0
        self._busy = 0
        self._abandoned: dict[Job, float] = {}  # since when
        self._lent = 0  # threads that wait for what other jobs come to

    def submit(self, run: Callable[[], Rest]) -> Job:
        """`run` must not raise. It waits for its turn when all threads are busy."""
        job = Job(run)
        with self._lock:
            self._waiting += 1
            self._jobs.put(job)
            enough = self._waiting <= self._count - self._busy
        if not enough:
            self._start_if_needed()
        return job

    def abandon(self, job: Job) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            if (
                not job.started
                or job.over
                or job in self._abandoned
                or len(self._abandoned) >= MOST_ABANDONED
            ):
                return
            self._abandoned[job] = time.monotonic()
        self._start_if_needed()

    @contextmanager
    def lent(self) -> Generator[None]:
        """While its job waits for others, a thread gives its place to them; up to a limit, beyond which they wait."""
        with self._lock:
            counts = self._lent < MOST_LENT
            self._lent += counts
        self._start_if_needed()
        try:
            yield
        finally:
            with self._lock:
                self._lent -= counts

    def stuck(self) -> tuple[int, float]:
        """How many run on although nobody waits for them any more, and for how many seconds the first of them has."""
        with self._lock:
            since = min(self._abandoned.values(), default=None)
            return len(self._abandoned), 0.0 if since is None else time.monotonic() - since

    def _start_if_needed(self) -> None:
        with self._lock:
            # An idle thread is taken by the job that is counted on it, even before it has woken.
            idle = self._count - self._busy
            if self._waiting <= idle or self._count >= self._most:
                return
            self._count += 1
            name = f"ostiary-{self._count}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def _most(self) -> int:
        return self._limit + len(self._abandoned) + self._lent

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            with self._lock:
                self._waiting -= 1
                self._busy += 1
                job.started = True
            rest = job.run()
            del job.run  # and with it the arguments: the call knows its job, and the job the call
            with self._lock:
                self._busy -= 1
                job.over = True
                self._abandoned.pop(job, None)
                superfluous = self._count > self._most
                self._count -= superfluous
            if rest is not None:
                rest()
            if superfluous:
                return
            del job, rest  # and with them the answer
