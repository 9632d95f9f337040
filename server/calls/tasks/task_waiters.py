"""Who waits for tasks in this process: they are woken when something happens to the task, and when others come to wait for its
end, or leave. What they wait for, they look up themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from server.calls.tasks.task_outlet import Bell


class Waiting:
    """Tasks are named by the hashes of their ids. `on_fetched` is told of one for which somebody has begun or stopped to wait."""

    def __init__(self, on_fetched: Callable[[str, bool], None] = lambda _task, _on: None) -> None:
        self._on_fetched = on_fetched
        self._bells: dict[str, set[Bell]] = {}
        self._fetching = Counter[str]()

    @contextmanager
    def bell(self, task: str) -> Generator[Bell]:
        """It rings inside the block."""
        bell = Bell()
        bells = self._bells.setdefault(task, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                self._bells.pop(task, None)

    def ring(self, task: str) -> None:
        for bell in self._bells.get(task, ()):
            bell.ring()

    def ring_all(self) -> None:
        for task in self._bells:
            self.ring(task)

    @contextmanager
    def fetch(self, task: str) -> Generator[None]:
        """While somebody waits for its result, and can be asked what the task asks."""
        self._fetching[task] += 1
        self.ring(task)
        if self._fetching[task] == 1:
            self._on_fetched(task, True)
        try:
            yield
        finally:
            self._fetching[task] -= 1
            if not self._fetching[task]:
                del self._fetching[task]
                self._on_fetched(task, False)
            self.ring(task)

    def fetched(self, task: str) -> bool:
        return task in self._fetching
