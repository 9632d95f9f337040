"""Keeps one process of an agent at work: starts it, starts it again when it ends, and exchanges it when its files change.

started → works → ended      → waits a little, longer each time → started …
                → files edited, or functions stuck
                               → a second one is started beside it → ready: they change places, the old one finishes
                                                                   → broken: the old one goes on
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from functools import partial
from typing import Final, TypeAlias

import trio

from server.agents.base.agent_faults import TroubleWatch
from server.agents.base.file_watch import Stamps, changed, look
from server.agents.python.agent_process import Worker, WorkerAnswer
from server.agents.python.offer import NOTHING, AgentOffer
from server.lib.line_peer import Peer
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError

FIRST_DELAY_SECONDS: Final = 0.2
LONGEST_DELAY_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0  # a process that lasted this long has not ended because of how it starts
# A caller rather waits for the next process than fails: most are ready in less than a second.
PATIENCE_SECONDS: Final = 5.0

Fresh: TypeAlias = Callable[[], Awaitable[Worker]]
Wait: TypeAlias = Callable[[], Awaitable[None]]


class Keeper:
    """`run` is for one task, `worker` for any."""

    def __init__(
        self,
        start: Callable[[], Peer],
        *,
        watched: Sequence[str] | None,
        exchanged_when_stuck: bool,
        calls_at_once: int,
        start_seconds: float,
        longest_call: Callable[[AgentOffer], float],
        name: str,
        log: Logger,
    ) -> None:
        """`start` raises `OSError`. `watched` are the files to look at besides those that the agent names; None: at none at
        all. `exchanged_when_stuck`: ending one ends its functions. `longest_call`: how long a process that was exchanged may take over the calls that it still has."""
        self.offer = NOTHING
        self.trouble = TroubleWatch()
        self._start = start
        self._watched = watched
        self._exchanged_when_stuck = exchanged_when_stuck
        self._calls_at_once = calls_at_once
        self._start_seconds = start_seconds
        self._longest_call = longest_call
        self._name = name
        self._log = log
        self._worker: Worker | None = None
        self._arrived = trio.Event()
        self._stamps: Stamps = {}

    async def run(
        self,
        offers_changed: Callable[[], None],
        updated: Callable[[str], None],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Raises `BackendError` where not even the first process gets ready."""
        problem: BackendError | None = None
        async with trio.open_nursery() as nursery:
            fresh = partial(self._fresh, offers_changed, updated, nursery)
            try:
                worker = await fresh()
            except BackendError as error:
                problem = error
            else:
                task_status.started()
                await self._keep(worker, fresh)
            nursery.cancel_scope.cancel()
        if problem is not None:
            raise problem

    def worker_nowait(self) -> Worker | None:
        """The one that takes new calls, if there is one at the moment."""
        worker = self._worker
        return None if worker is None or worker.over else worker

    @property
    def busy(self) -> bool:
        """Whether the one that takes new calls has any. What an exchanged one still has, it keeps an eye on itself."""
        worker = self.worker_nowait()
        return worker is not None and worker.busy

    async def worker(self) -> Worker:
        """The same, once there is one. Raises `BackendError`."""
        with trio.move_on_after(PATIENCE_SECONDS):
            while (worker := self.worker_nowait()) is None:
                await self._arrived.wait()
            return worker
        raise BackendError("the agent's process has ended and could not be started again yet")

    async def _keep(self, worker: Worker, fresh: Fresh) -> None:
        delay = FIRST_DELAY_SECONDS
        while True:
            begun = trio.current_time()
            await self._ended_edited_or_stuck(worker)
            stuck = worker.stuck.is_set()
            if worker.ended.is_set():
                self._log.error("agent.ended", agent=self._name, reason=worker.reason)
                self.trouble.begins(f"its process has ended: {worker.reason}")
                if trio.current_time() - begun >= HEALTHY_SECONDS:
                    delay = FIRST_DELAY_SECONDS
                worker, delay = await self._start_again(fresh, delay)
                self._log.info("agent.started_again", agent=self._name)
                continue
            try:
                newer = await fresh()
            except BackendError as error:
                self._log.warning("agent.not_reloaded", agent=self._name, reason=str(error))
                self.trouble.begins(
                    f"the version before goes on, because the new one cannot be loaded: {error}"
                )
                worker.stay()
            else:
                worker.retire(self._longest_call(worker.offer))
                worker = newer
                self._log.info("agent.exchanged" if stuck else "agent.reloaded", agent=self._name)

    async def _start_again(self, fresh: Fresh, delay: float) -> tuple[Worker, float]:
        """As often as it takes; and how long to wait the next time."""
        while True:
            with trio.move_on_after(delay):
                await self._edited()
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)
            try:
                return await fresh(), delay
            except BackendError as error:
                self._log.error("agent.not_started", agent=self._name, reason=str(error))
                self.trouble.begins(f"it cannot be started again: {error}")

    async def _fresh(
        self, offers_changed: Callable[[], None], updated: Callable[[str], None], nursery: trio.Nursery
    ) -> Worker:
        """Another process at work, in the keeper's own nursery. Raises `BackendError`."""

        def take_offer(offer: AgentOffer) -> None:
            if worker is self._worker:
                self._watch({*self._stamps, *worker.files})
                self._take_offer(offer, offers_changed)

        def take_update(uri: str) -> None:
            if worker is self._worker:
                updated(uri)

        # Before it reads them: what is edited while it starts is noticed.
        self._stamps = look({*(self._watched or ()), *self._stamps})
        try:
            peer = self._start()
        except OSError as error:
            raise BackendError(f"the agent's process cannot be started: {error.strerror}") from error
        worker = Worker(
            peer,
            WorkerAnswer(offer=take_offer, updated=take_update),
            calls_at_once=self._calls_at_once,
            name=self._name,
            log=self._log,
        )
        try:
            await nursery.start(partial(worker.run, start_seconds=self._start_seconds))
        finally:
            self._watch(
                {*(self._watched or ()), *worker.files, *(self._worker.files if self._worker else ())}
            )
        first = self._worker is None
        self._worker = worker
        self.trouble.is_over()
        self._arrived.set()
        self._arrived = trio.Event()
        if first:
            self.offer = worker.offer
        else:
            self._take_offer(worker.offer, offers_changed)
        return worker

    def _watch(self, files: Set[str]) -> None:
        """Those that were looked at already are compared with what they were then."""
        for file in self._stamps.keys() - files:
            del self._stamps[file]
        self._stamps.update(look(files - self._stamps.keys()))

    def _take_offer(self, offer: AgentOffer, offers_changed: Callable[[], None]) -> None:
        if offer != self.offer:
            self.offer = offer
            offers_changed()

    async def _ended_edited_or_stuck(self, worker: Worker) -> None:
        async with trio.open_nursery() as either:

            async def until(wait: Wait) -> None:
                await wait()
                either.cancel_scope.cancel()

            either.start_soon(until, worker.ended.wait)
            either.start_soon(until, self._edited)
            if self._exchanged_when_stuck:
                either.start_soon(until, worker.stuck.wait)

    async def _edited(self) -> None:
        if self._watched is None:
            await trio.sleep_forever()
        await changed(self._stamps)
