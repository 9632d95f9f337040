"""Threads for sync functions: as many as are needed at once, up to a limit, and daemons, so that a function that never
returns does not keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Workers:
    """`submit` is called from one thread alone, that of the loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0

    def submit(self, job: Callable[[], None]) -> None:
        """The job must not raise. It waits for its turn when all threads are busy."""
        with self._lock:
            # An idle thread is taken by the job that is counted on it, even before it has woken.
            if self._idle:
                self._idle -= 1
                new = False
            else:
                new = self._count < self._limit
                self._count += new
            self._jobs.put(job)
        if new:
            threading.Thread(target=self._work, name=f"ostiary-{self._count}", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            job()
            del job  # and with it the arguments and the answer
            with self._lock:
                if self._jobs.empty():
                    self._idle += 1
